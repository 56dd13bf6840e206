"""Media that clients name by URL: fetched only from hosts that are listed, and never from inside the network.

Every hop is checked anew: the scheme, the host against the list, and every address that its name has now; the
connection then goes to the address that was checked, so that another answer of the name server changes nothing.
Bytes and time are bounded. Messages never repeat the URL, nor tell what was found behind it: both would help somebody
who looks around with this server's eyes.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.inline_media import Media, is_data_url, media_type, read_data_url, too_large

PIECE: Final = 1 << 16
LONGEST_URL: Final = 8192  # characters; data URLs may be as long as their media
FETCHES: Final = 8  # at once
PORTS: Final = {"http": 80, "https": 443}
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]  # host and port -> addresses
Check = Callable[[Address], bool]


@dataclass(frozen=True, slots=True)
class MediaRules:
    """Where media may be fetched from: nowhere unless ``hosts`` are listed ("*.example.org": all below that).

    ``seconds`` and ``max_bytes`` bound each fetch, redirects included.
    """

    hosts: tuple[str, ...] = ()
    max_bytes: int = 32 << 20
    seconds: float = 20.0
    redirects: int = 3


def is_public(address: Address) -> bool:
    """Whether an address belongs to the internet at large, also where it wraps another one."""
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = _wrapped(address)
        if wrapped is not None:
            return is_public(wrapped)
        if address in _NAT64_LOCAL or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _wrapped(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this one end up at."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def addresses(host: str, port: int) -> list[str]:
    """The addresses that a name has now. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class MediaFetcher:
    """Fetches media by URL within rules."""

    def __init__(self, rules: MediaRules, resolve: Resolve = addresses, allowed: Check = is_public) -> None:
        self._rules = rules
        self._resolve = resolve
        self._allowed = allowed
        self._threads = ThreadPoolExecutor(FETCHES, "fetch")  # slow hosts keep no other work waiting

    async def fetch(self, url: str, param: str | None = None) -> Media:
        """What is behind a URL. Raises ApiError 400 that names the field and not the URL."""
        if is_data_url(url):
            return await asyncio.to_thread(read_data_url, url, self._rules.max_bytes, param)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.fetch_now, url, param)

    def fetch_now(self, url: str, param: str | None = None) -> Media:
        """The same on the thread that calls."""
        deadline = time.monotonic() + self._rules.seconds
        for _ in range(self._rules.redirects + 1):
            target = self._target(url, param)
            address = self._address(target, param)
            try:
                found = self._get(target, address, deadline, param)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise _failed(param) from error
            if isinstance(found, Media):
                return found
            url = urljoin(url, found)
        raise _failed(param)

    def _target(self, url: str, param: str | None) -> SplitResult:
        """The parts of a URL that may be fetched. Raises ApiError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _refused(param) from None
        host = (parts.hostname or "").rstrip(".")
        fine = parts.scheme in PORTS and parts.username is None and parts.password is None
        plain = len(url) <= LONGEST_URL and url.isascii() and url.isprintable() and " " not in url
        if not (fine and plain and host and port in (None, PORTS[parts.scheme]) and self._is_listed(host)):
            raise _refused(param)
        return parts

    def _is_listed(self, host: str) -> bool:
        for rule in self._rules.hosts:
            listed = rule.lower()
            if host == listed or (listed.startswith("*.") and host.endswith(listed[1:])):
                return True
        return False

    def _address(self, target: SplitResult, param: str | None) -> str:
        """An address to connect to. Raises ApiError where any address of the name is not a public one."""
        assert target.hostname is not None
        try:
            found = self._resolve(target.hostname, PORTS[target.scheme])
            fit = [self._allowed(ipaddress.ip_address(address.partition("%")[0])) for address in found]
        except (OSError, ValueError) as error:
            raise _refused(param) from error
        if not found or not all(fit):
            raise _refused(param)
        return found[0]

    def _get(self, target: SplitResult, address: str, deadline: float, param: str | None) -> Media | str:
        """The media, or where it is said to be instead. Raises ApiError, OSError or HTTPException."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise _failed(param)
        with closing(_connect(target, address, left)) as connection:
            sock = connection.sock
            timer = threading.Timer(deadline - time.monotonic(), _cut, (sock,))
            timer.start()
            try:
                return self._read(connection, target, param)
            finally:
                timer.cancel()

    def _read(self, connection: http.client.HTTPConnection, target: SplitResult, param: str | None) -> Media | str:
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        headers = {
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "User-Agent": "genai-pipeline",
            "Connection": "close",
        }
        connection.request("GET", path, headers=headers)
        with closing(connection.getresponse()) as response:
            return self._taken(response, param)

    def _taken(self, response: http.client.HTTPResponse, param: str | None) -> Media | str:
        location = response.headers.get("Location")
        if response.status in REDIRECTS and location is not None:
            return location
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if response.status != 200 or encoding != "identity":
            raise _failed(param)
        most = self._rules.max_bytes
        if response.length is not None and response.length > most:
            raise too_large(most, param)
        data = bytearray()
        while piece := response.read(PIECE):
            data += piece
            if len(data) > most:
                raise too_large(most, param)
        if response.length:
            raise _failed(param)  # it was cut off
        return Media(bytes(data), media_type(response.headers.get("Content-Type", "")))


def _connect(target: SplitResult, address: str, seconds: float) -> http.client.HTTPConnection:
    """A connection to that very address, which speaks for the host in the URL. Raises OSError."""
    assert target.hostname is not None
    port = PORTS[target.scheme]
    connection = http.client.HTTPConnection(target.hostname, port, timeout=seconds)
    sock = socket.create_connection((address, port), timeout=seconds)
    try:
        if target.scheme == "https":
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=target.hostname)
    except OSError:
        sock.close()
        raise
    connection.sock = sock
    return connection


def _cut(sock: socket.socket) -> None:
    """The time is over: whoever reads from the socket wakes up with an error."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        sock.close()


def _refused(param: str | None) -> ApiError:
    return bad_request("media may not be fetched from that URL", param, code="media_not_allowed")


def _failed(param: str | None) -> ApiError:
    return bad_request("the media could not be fetched from that URL", param, code="media_unavailable")
