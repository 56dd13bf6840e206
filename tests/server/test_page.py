"""The page's files, and what it asks the server for besides the API; the tests below page/ look at it in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.graph.render import to_json
from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.routes.page import FILES, FOLDER

SOURCES = sorted(FOLDER.iterdir())
ADMIN = {"authorization": "Bearer admin-secret"}
USER = {"authorization": "Bearer user-secret"}
KEYS = (ApiKey.of("boss", "admin-secret", admin=True), ApiKey.of("user", "user-secret"))


def test_the_page_and_its_files_have_their_types_and_a_strict_policy(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    for path, kind in [("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/style.css", "text/css")]:
        answer = http.get(url + path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == kind
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
        assert policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"


def test_every_file_is_shipped_and_sent(live: Any, tiny: Any, http: Any) -> None:
    assert {path.name for path in SOURCES} == set(FILES)
    url = live(tiny())
    for name in FILES:
        assert http.get(f"{url}/page/{name}").content == (FOLDER / name).read_bytes()


def test_a_file_that_the_browser_has_is_not_sent_again(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    tag = http.get(f"{url}/").headers["etag"]
    again = http.get(f"{url}/", headers={"if-none-match": f'"other", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert http.get(f"{url}/", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page"])
def test_nothing_else_can_be_read(live: Any, tiny: Any, http: Any, path: str) -> None:
    answer = http.get(live(tiny()) + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'`]+", source))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function(")
    assert not [word for word in forbidden if word in source]
    assert not [word for word in ("localStorage", "document.cookie", "indexedDB") if word in source]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_files_stay_within_the_size_of_modules(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert path.suffix != ".js" or max(map(len, lines)) <= 120


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_file_that_is_named_is_there(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    named = re.findall(r'from "\./([^"]+)"', source) + re.findall(r'(?:src|href)="page/([^"]+)"', source)
    assert set(named) <= set(FILES)


def test_the_page_needs_no_key_and_what_it_asks_for_does(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="it"), keys=KEYS)
    assert http.get(f"{url}/").status_code == 200
    assert http.get(f"{url}/page/main.js").status_code == 200
    graph = f"{url}/admin/models/it/graph"
    for path in (f"{url}/v1/models", f"{url}/admin/status", graph):
        assert http.get(path).status_code == 401
    refused = http.get(graph, headers=USER)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_admin")
    assert http.get(graph, headers=ADMIN).status_code == 200


def test_the_graph_is_what_inspect_shows_and_loads_nothing(live: Any, tiny: Any, http: Any) -> None:
    first, second = tiny("embeds", name="first"), tiny("kv", name="second")
    url = live(first, second)
    for name, package in (("first", first), ("second", second)):
        spec, _ = gp.validate(package.path)
        assert spec is not None
        assert http.get(f"{url}/admin/models/{name}/graph").json() == to_json(gp.compile(spec))
    states = {model["name"]: model["state"] for model in http.get(f"{url}/admin/status").json()["models"]}
    assert states == {"first": "loaded", "second": "unloaded"}


def test_graphs_of_unknown_packages_and_where_administration_is_off(live: Any, tiny: Any, http: Any) -> None:
    missing = http.get(f"{live(tiny(name='it'))}/admin/models/that/graph")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    off = http.get(f"{live(tiny(name='it'), admin=False)}/admin/models/it/graph")
    assert (off.status_code, off.json()["error"]["code"]) == (404, "not_found")


def test_a_package_that_broke_after_the_start_has_no_graph(live: Any, tiny: Any, http: Any) -> None:
    broken = tiny(name="broken")
    url = live(tiny(name="it"), broken)
    (broken.path / "inference_metadata.yaml").write_text("schema_version: '1'\nname: broken\n", encoding="utf-8")
    answer = http.get(f"{url}/admin/models/broken/graph")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unavailable")
