from __future__ import annotations

import asyncio
import http.server
import ipaddress
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from genai_pipeline.server import media_urls
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.media_urls import Media, MediaFetcher, MediaRules, is_public

INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
]


class Host(http.server.BaseHTTPRequestHandler):
    """Answers by path, and counts."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        assert self.headers["Accept-Encoding"] == "identity"
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Type", "image/png; charset=x")
        if self.path == "/declared":
            self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        size = 10_000 if self.path in ("/large", "/declared") else 5
        self.wfile.write(b"x" * size)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A web server on loopback that stands for port 80 of any host; gives the paths it was asked for."""
    asked: list[str] = []
    handler = type("Counting", (Host,), {"requests": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setitem(media_urls.PORTS, "http", server.server_address[1])
        yield asked
        server.shutdown()
        thread.join()


def fetcher(check: Callable[[Any], bool] = lambda _: True, **rules: Any) -> MediaFetcher:
    """One that finds every name at loopback, and allows that unless told otherwise."""
    given = {"hosts": ("media.test", "*.cdn.test"), "max_bytes": 1000, **rules}
    return MediaFetcher(MediaRules(**given), resolve=lambda name, port: ["127.0.0.1"], allowed=check)


def fetch(fetching: MediaFetcher, url: str) -> Media:
    return asyncio.run(fetching.fetch(url, "messages[0].content[1]"))


def refused(fetching: MediaFetcher, url: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        fetch(fetching, url)
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[1]"
    for part in (url, "127.0.0.1", "media.test", "evil"):
        assert part not in caught.value.message
    return caught.value


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"])
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_a_listed_host_is_fetched(host: list[str]) -> None:
    assert fetch(fetcher(), "http://media.test/cat.png") == Media(b"xxxxx", "image/png")
    assert fetch(fetcher(), "http://a.cdn.test/cat.png?size=1").data == b"xxxxx"
    assert host == ["/cat.png", "/cat.png?size=1"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://media.test/x",
        "gopher://media.test/x",
        "http://evil.test/x",
        "http://media.test.evil.test/x",
        "http://xcdn.test/x",
        "http://cdn.test/x",
        "http://127.0.0.1/x",
        "http://localhost/x",
        "http://media.test:22/x",
        "http://user:secret@media.test/x",
        "http://media.test@evil.test/x",
        "http://media.test/a b",
        "http://media.test/\r\nX: y",
        "http:///x",
        "http://[::1/x",
        "http://media.test:99999/x",
        "media.test/x",
        "nothing",
        "http://media.test/" + "x" * 9000,
    ],
)
def test_whatever_is_not_listed_is_refused_before_anybody_is_asked(host: list[str], url: str) -> None:
    assert refused(fetcher(), url).code == "media_not_allowed"
    assert host == []


def test_nothing_is_listed_at_first(host: list[str]) -> None:
    assert refused(fetcher(hosts=()), "http://media.test/cat.png").code == "media_not_allowed"
    assert host == []


def test_a_listed_name_with_an_address_inside_is_refused_before_connecting(host: list[str]) -> None:
    assert refused(fetcher(is_public), "http://media.test/cat.png").code == "media_not_allowed"
    assert host == []


def test_one_address_inside_among_others_is_enough(host: list[str]) -> None:
    mixed = MediaFetcher(MediaRules(hosts=("media.test",)), resolve=lambda name, port: ["1.1.1.1", "10.0.0.1"])
    assert refused(mixed, "http://media.test/x").code == "media_not_allowed"


def test_redirects_are_checked_like_the_first_url(host: list[str]) -> None:
    assert fetch(fetcher(), "http://media.test/to//cat.png").data == b"xxxxx"
    assert refused(fetcher(), "http://media.test/to/http://127.0.0.1/secret").code == "media_not_allowed"
    assert refused(fetcher(), "http://media.test/to/file:///etc/passwd").code == "media_not_allowed"
    assert "/secret" not in host


def test_a_redirect_to_a_listed_name_that_moved_inside_is_refused(host: list[str]) -> None:
    seen: list[str] = []

    def moves(name: str, port: int) -> list[str]:
        seen.append(name)
        return ["127.0.0.1"] if len(seen) == 1 else ["169.254.169.254"]

    def check(address: Any) -> bool:
        return str(address) == "127.0.0.1"

    moving = MediaFetcher(MediaRules(hosts=("media.test",)), resolve=moves, allowed=check)
    assert refused(moving, "http://media.test/to/http://media.test/cat.png").code == "media_not_allowed"
    assert host == ["/to/http://media.test/cat.png"]


def test_redirects_are_counted(host: list[str]) -> None:
    assert refused(fetcher(redirects=1), "http://media.test/to//to//to//cat.png").code == "media_unavailable"
    assert len(host) == 2


@pytest.mark.parametrize("path", ["/large", "/declared"])
def test_size_is_bounded_whether_or_not_it_is_declared(host: list[str], path: str) -> None:
    assert refused(fetcher(), f"http://media.test{path}").code == "media_too_large"


def test_other_answers_say_nothing_of_what_is_there(host: list[str]) -> None:
    assert refused(fetcher(), "http://media.test/missing").code == "media_unavailable"


def test_time_is_bounded_for_hosts_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setitem(media_urls.PORTS, "http", silent.getsockname()[1])
        assert refused(fetcher(seconds=0.2), "http://media.test/x").code == "media_unavailable"


def test_data_urls_are_read_within_the_size() -> None:
    assert fetch(fetcher(hosts=()), "data:image/png;base64,aGVsbG8=") == Media(b"hello", "image/png")
    assert fetch(fetcher(hosts=()), "data:,a%20b") == Media(b"a b", "")
    assert refused(fetcher(), "data:image/png;base64,###").code == "media_invalid"
    assert refused(fetcher(), "data:image/png;base64," + "AAAA" * 1000).code == "media_too_large"
