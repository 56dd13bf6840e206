"""How a server starts and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.run import Running

LONG = {
    "messages": [{"role": "user", "content": "ab"}],
    "max_tokens": 15_000,
    "ignore_eos": True,
    "stream": True,
}


def body(tokens: int) -> dict[str, Any]:
    return {**LONG, "max_tokens": tokens}


def test_what_runs_may_finish_while_what_is_new_is_refused(serving: Any, tiny: Any, http: Any) -> None:
    server = serving(tiny(context_length=20_000), drain_seconds=60)
    url = server.url
    http.get(f"{url}/health")  # a connection that stays
    with httpx.Client(timeout=60) as other, other.stream("POST", f"{url}/v1/chat/completions", json=body(3000)) as run:
        lines = run.iter_lines()
        next(lines)
        ending = threading.Thread(target=server.close)
        ending.start()
        while http.get(f"{url}/health").json()["status"] != "draining":
            pass
        refused = http.post(f"{url}/v1/chat/completions", json=body(1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "10"
        assert http.get(f"{url}/ready").status_code == 503
        assert http.get(f"{url}/metrics").status_code == 200
        assert list(lines)[-2] == "data: [DONE]"
    ending.join()
    with pytest.raises(httpx.ConnectError):
        http.get(f"{url}/health")


def test_what_does_not_finish_in_time_is_told_so(serving: Any, tiny: Any, http: Any) -> None:
    server = serving(tiny(context_length=20_000), drain_seconds=0)
    with http.stream("POST", f"{server.url}/v1/chat/completions", json=LONG) as run:
        lines = run.iter_lines()
        next(lines)
        ending = threading.Thread(target=server.close)
        ending.start()
        rest = [line for line in lines if line]
    ending.join()
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "model_unloaded"


def test_a_port_that_is_taken_is_named(tiny: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError) as caught:
            Running(ServerConfig.of([tiny().path], port=port), lambda _: None)
    assert str(port) in caught.value.message
    assert caught.value.param == "port"


@contextlib.contextmanager
def command(*arguments: str, **environment: str) -> Any:
    """The command in a process of its own, and the address it announced."""
    with subprocess.Popen(
        [sys.executable, "-m", "genai_pipeline", "serve", *arguments, "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr
        finally:
            if process.poll() is None:
                process.kill()


def address(stderr: Any) -> str:
    for line in stderr:
        if line.startswith("listening on "):
            return str(line.removeprefix("listening on ").strip())
    raise AssertionError("it never listened")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_let_requests_finish(tiny: Any, sent: int, code: int) -> None:
    with command(str(tiny(context_length=20_000).path)) as (process, stderr):
        url = address(stderr)
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body(1000), timeout=60) as run:
            lines = run.iter_lines()
            next(lines)
            process.send_signal(sent)
            assert list(lines)[-2] == "data: [DONE]"
        log = [json.loads(line) for line in stderr]
        assert process.wait(60) == code
        assert process.stdout.read() == ""
    (request,) = (line for line in log if line.get("event") == "request")
    assert (request["route"], request["status"], request["caller"]) == ("/v1/chat/completions", 200, "anonymous")
    assert request["completion_tokens"] == 1000
    assert request["id"].startswith("req_")


def test_a_second_signal_ends_what_runs(tiny: Any) -> None:
    with command(str(tiny(context_length=20_000).path), "--drain-seconds", "600") as (process, stderr):
        url = address(stderr)
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=LONG, timeout=60) as run:
            lines = run.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            while httpx.get(f"{url}/health").json()["status"] != "draining":
                pass
            process.send_signal(signal.SIGTERM)
            assert "model_unloaded" in list(lines)[-2]
        assert "Traceback" not in stderr.read()
        assert process.wait(60) == 0


def test_the_command_takes_a_file_keys_and_options(tiny: Any, tmp_path: Any) -> None:
    package = tiny(name="it")
    (tmp_path / "secret").write_text("file-secret-1\n")
    (tmp_path / "server.yaml").write_text(
        f"packages:\n  - package: {package.path.name}\n    name: other\nport: 1\nlog_format: json\n"
        "keys:\n  - id: ops\n    secret_file: secret\n    admin: true\n"
    )
    given = ("--config", str(tmp_path / "server.yaml"), "--log-format", "text")
    with command(*given, GENAI_PIPELINE_API_KEYS="env-secret-1,env-secret-2") as (process, stderr):
        url = address(stderr)
        assert httpx.get(f"{url}/v1/models").status_code == 401
        for secret in ("file-secret-1", "env-secret-1", "env-secret-2"):
            answer = httpx.get(f"{url}/v1/models", headers={"x-api-key": secret})
            assert [model["id"] for model in answer.json()["data"]] == ["other"]
        assert httpx.get(f"{url}/metrics", headers={"x-api-key": "env-secret-1"}).status_code == 403
        assert httpx.get(f"{url}/metrics", headers={"x-api-key": "file-secret-1"}).status_code == 200
        process.send_signal(signal.SIGTERM)
        log = stderr.read()
        assert process.wait(60) == 0
    assert "status=401" in log
    assert "secret" not in log


def test_a_package_that_cannot_be_loaded_ends_the_command(tiny: Any) -> None:
    package = tiny()
    (package.path / "model.onnx").write_bytes(b"\0")
    for graph in package.path.glob("*.onnx"):
        graph.write_bytes(b"\0")
    with command(str(package.path)) as (process, stderr):
        said = stderr.read()
        assert process.wait(60) == 3
    assert "error:" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no package to serve"),
        (("{package}", "--host", "0.0.0.0"), "no API keys are configured"),
        (("{package}", "--max-requests", "0"), "above 0"),
        (("{package}", "--config", "missing.yaml"), "cannot be read"),
        (("{package}", "--max-batch", "0"), "max-batch"),
    ],
)
def test_wrong_usage_is_told(tiny: Any, arguments: tuple[str, ...], says: str) -> None:
    package = str(tiny().path)
    with command(*(argument.format(package=package) for argument in arguments)) as (process, stderr):
        said = stderr.read()
        assert process.wait(60) == 2
    assert says in said
    assert "Traceback" not in said
