"""Models pulled from a stand-in hub on the loopback address: what is needed, once, whole, and errors by name."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import (
    ExtraMissingError,
    ImportModelError,
    ImportRefusedError,
    OfflineError,
    OptionError,
    PackageNotFoundError,
    PullError,
)
from genai_pipeline.importers import hub
from genai_pipeline.importers.hub_names import HubName, hub_name
from genai_pipeline.importers.pull import metadata_of, pull, resolve
from genai_pipeline.testing.packages import TinyPackage, write_package

COMMIT = "5" * 40
TOKEN = "hf_token_of_a_test"


class StandIn:
    """The files of one repository at one commit, and the paths that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gone = False
        self.gated = False
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                server.answer(self)

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: Any) -> None:
                """Nothing is written."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Listing at /api/models/..., files at /OWNER/NAME/resolve/REVISION/FILE."""
        if "me/" in request.path:  # the library asks for a list of its own besides
            self.tokens.add(request.headers.get("Authorization"))
        if request.path.startswith("/api/models/"):
            self._listing(request)
        elif "/resolve/" in request.path:
            self._file(request, request.path.split("/resolve/", 1)[1].split("/", 1)[1])
        else:
            self._refuse(request, 404, "EntryNotFound")

    def _listing(self, request: BaseHTTPRequestHandler) -> None:
        revision = request.path.partition("/revision/")[2] or "main"
        if not request.path.startswith("/api/models/me/tiny"):
            return self._refuse(request, 404, "RepoNotFound")
        if revision not in ("main", COMMIT):
            return self._refuse(request, 404, "RevisionNotFound")
        files = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        body = {
            "id": "me/tiny",
            "modelId": "me/tiny",
            "sha": COMMIT,
            "siblings": [{"rfilename": name} for name in files],
        }
        return self._send(request, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        if self.gated:
            return self._refuse(request, 403, "GatedRepo")
        path = self.folder / name
        if not path.is_file():
            return self._refuse(request, 404, "EntryNotFound")
        if request.command == "GET":
            self.asked.append(name)
        content = path.read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        return self._send(request, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'})

    def _refuse(self, request: BaseHTTPRequestHandler, status: int, code: str) -> None:
        self._send(request, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, status)

    def _send(self, request: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)


@pytest.fixture
def tiny(tmp_path: Path) -> TinyPackage:
    """The closed-form package whose graph the hub has."""
    return write_package(tmp_path / "tiny", "kv", update="append")


@pytest.fixture
def stand_in(tmp_path: Path, tiny: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A hub with me/tiny, laid out as Optimum does, and empty caches to pull it into."""
    folder = tmp_path / "hub"
    (folder / "onnx").mkdir(parents=True)
    for name in ("model.onnx", "model_q4.onnx"):
        (folder / "onnx" / name).write_bytes((tiny.path / "model.onnx").read_bytes())
    (folder / "tokenizer.json").write_bytes((tiny.path / "tokenizer.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 256, "eos_token_id": 1}))
    (folder / "model.safetensors").write_bytes(b"other weights")
    (folder / "README.md").write_text("about")
    server = StandIn(folder)
    for name, value in (
        ("HF_ENDPOINT", server.address),
        ("HF_HUB_CACHE", str(tmp_path / "hub-cache")),
        ("GENAI_PIPELINE_HOME", str(tmp_path / "home")),
        ("HF_TOKEN", TOKEN),
        ("NO_PROXY", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "GENAI_PIPELINE_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.close()


def test_a_model_is_pulled_imported_and_answers(stand_in: StandIn, tiny: TinyPackage) -> None:
    prompt = tiny.vocabulary.encode("hello")
    with gp.load("hf:me/tiny") as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == tiny.answer(prompt, 8)
    assert sorted(stand_in.asked) == ["config.json", "onnx/model.onnx", "tokenizer.json"]
    assert stand_in.tokens == {f"Bearer {TOKEN}"}


def test_a_second_pull_fetches_nothing(stand_in: StandIn) -> None:
    first = pull("hf:me/tiny")
    stand_in.asked.clear()
    assert pull("hf:me/tiny@main") == first == resolve(f"hf:me/tiny@{COMMIT}")
    assert metadata_of("hf:me/tiny") == first
    assert stand_in.asked == []


def test_weights_are_links_into_the_hubs_own_cache(stand_in: StandIn, tmp_path: Path) -> None:
    folder = pull("hf:me/tiny", precision="q4")
    cached = tmp_path / "hub-cache" / "models--me--tiny" / "snapshots" / COMMIT / "onnx" / "model_q4.onnx"
    assert cached.is_symlink()
    assert (folder / "onnx" / "model_q4.onnx").samefile(cached)
    assert stand_in.asked.count("onnx/model_q4.onnx") == 1
    assert "onnx/model.onnx" not in stand_in.asked


def test_a_package_on_the_hub_in_a_folder_of_its_repository(stand_in: StandIn, tiny: TinyPackage) -> None:
    inside = stand_in.folder / "packages" / "small"
    inside.mkdir(parents=True)
    for file in tiny.path.iterdir():
        (inside / file.name).write_bytes(file.read_bytes())
    folder = pull("hf:me/tiny:packages/small")
    assert {path.name for path in folder.iterdir()} >= {path.name for path in tiny.path.iterdir()}
    assert gp.validate(folder)[1] == ()


def test_a_package_with_errors_is_refused_where_it_is_loaded_and_does_not_get_into_the_cache(
    stand_in: StandIn, tiny: TinyPackage, tmp_path: Path
) -> None:
    for file in tiny.path.iterdir():
        (stand_in.folder / file.name).write_bytes(file.read_bytes())
    metadata = stand_in.folder / "inference_metadata.yaml"
    metadata.write_text(metadata.read_text() + "generation: {defaults: {temperature: -3}}\n")
    with pytest.raises(ImportRefusedError, match="must be at least 0, not -3"):
        gp.load("hf:me/tiny")
    assert list((tmp_path / "home" / "packages").rglob("*.yaml")) == []


def test_one_of_several_gguf_files(stand_in: StandIn, tiny_gguf: Path) -> None:
    (stand_in.folder / "onnx" / "model.onnx").unlink()
    (stand_in.folder / "onnx" / "model_q4.onnx").unlink()
    for name in ("a.gguf", "b.gguf"):
        (stand_in.folder / name).write_bytes(tiny_gguf.read_bytes())
    with pytest.raises(ImportModelError, match="2 GGUF files") as caught:
        pull("hf:me/tiny")
    assert "FILE.gguf" in caught.value.hint
    folder = pull("hf:me/tiny:b.gguf", precision="float32")
    assert (folder / "model.onnx").is_file()
    assert stand_in.asked == ["b.gguf"]


def test_offline_with_another_precision_does_not_stand_for_the_usual_one(stand_in: StandIn) -> None:
    pull("hf:me/tiny", precision="q4")
    offline = pull("hf:me/tiny", offline=True)
    assert (offline / "onnx" / "model_q4.onnx").is_file()
    usual = pull("hf:me/tiny")
    assert (usual / "onnx" / "model.onnx").is_file()
    assert not (usual / "onnx" / "model_q4.onnx").exists()


def test_offline_takes_what_was_fetched_before(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OfflineError, match="not in the hub's cache"):
        pull("hf:me/tiny", offline=True)
    folder = pull("hf:me/tiny")
    stand_in.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert pull("hf:me/tiny") == folder
    assert stand_in.asked == []


def test_a_hub_that_is_not_there_is_named(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(OfflineError, match="cannot be reached") as caught:
        pull("hf:me/tiny")
    assert "GENAI_PIPELINE_OFFLINE" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("hf:me/other", "no model 'me/other'", "HF_TOKEN"),
        ("hf:me/tiny@v9", "no revision 'v9'", "branch"),
        ("hf:tiny", "no name of a model", "hf:OWNER/NAME"),
        ("hf:me/tiny:../..", "no name of a model", "hf:OWNER/NAME"),
    ],
)
def test_names_that_mean_nothing(stand_in: StandIn, name: str, message: str, hint: str) -> None:
    with pytest.raises(PackageNotFoundError, match=message) as caught:
        pull(name)
    assert hint in caught.value.hint


def test_a_gated_model_says_what_to_do(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.gated = True
    with pytest.raises(PullError, match="gated") as caught:
        pull("hf:me/tiny")
    assert "HF_TOKEN" in caught.value.hint
    assert not list((tmp_path / "home").rglob("*.yaml"))


def test_what_is_no_model_and_what_is_refused_leave_nothing(stand_in: StandIn, tmp_path: Path) -> None:
    for file in (stand_in.folder / "onnx").iterdir():
        file.unlink()
    with pytest.raises(ImportModelError, match="no model that can be imported"):
        pull("hf:me/tiny")
    with pytest.raises(OptionError, match="comes from the hub"):
        pull("hf:me/tiny", source=tmp_path)
    assert not list((tmp_path / "home").rglob("*.yaml"))


def test_the_library_is_an_extra(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ExtraMissingError, match="huggingface_hub") as caught:
        hub.listing(HubName("me", "tiny"), offline=False)
    assert "genai-pipeline[hub]" in caught.value.hint


def test_parts_of_a_name() -> None:
    name = hub_name("hf:Me/A_Model.v2@refs/pr/1:onnx/q4")
    assert (name.repository, name.revision, name.inside) == ("Me/A_Model.v2", "refs/pr/1", "onnx/q4")
    assert name.text == "hf:Me/A_Model.v2@refs/pr/1:onnx/q4"
    assert name.package == "a_model.v2"
