"""Configuration from files, options and the environment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import ConfigInvalidError, OptionError
from genai_pipeline.metadata.schema import load_schema
from genai_pipeline.server.callers import Callers
from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.config_file import SCHEMA_FILE
from genai_pipeline.server.keys import KEYS_VARIABLE, environment_keys, read_keys
from genai_pipeline.server.limits import KeyLimits, Limits
from genai_pipeline.server.media_urls import MediaRules
from genai_pipeline.server.settings import from_command


@pytest.fixture
def written(tmp_path: Path, tiny: Any) -> Callable[..., Path]:
    """``written(yaml)``: a configuration file beside a package called ``package1``."""
    tiny(name="it")

    def write(text: str) -> Path:
        path = tmp_path / "server.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def config_of(path: Path, packages: tuple[str, ...] = (), load: Any = None, **given: Any) -> ServerConfig:
    return from_command(packages, load or {}, {"config": path, **given})


def test_a_file_sets_everything(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_KEY", "ops-secret-1")
    config = config_of(
        written(
            "packages:\n"
            "  - {package: package1, name: first, load: {max_batch: 2}}\n"
            "  - {package: ./package1, name: second}\n"
            "load: {max_batch: 4, memory: 32MiB}\n"
            "host: 0.0.0.0\nport: 1234\nadmin_port: 1235\nmetrics: false\n"
            "cors: [https://app.test]\nhosts: [models.test]\n"
            "keys:\n"
            "  - {id: ops, secret_env: OPS_KEY, admin: true}\n"
            f"  - {{id: app, sha256: {hashlib.sha256(b'app-secret').hexdigest()}, limits: {{concurrent: 3}}}}\n"
            "limits: {body_bytes: 2048, requests: 7}\n"
            "memory: 1GiB\npreload: all\nwarm_up: false\ndrain_seconds: 5\nlog_format: text\n"
            "media: {hosts: [cdn.test], seconds: 3}\n"
        )
    )
    assert [(served.name, served.load) for served in config.packages] == [
        ("first", {"max_batch": 2, "memory": "32MiB"}),
        ("second", {"max_batch": 4, "memory": "32MiB"}),
    ]
    assert (config.host, config.port, config.admin_port, config.metrics, config.admin) == (
        "0.0.0.0",
        1234,
        1235,
        False,
        True,
    )
    assert (config.cors, config.hosts) == (("https://app.test",), ("models.test",))
    assert config.limits == Limits(body_bytes=2048, requests=7)
    assert config.memory_bytes == 1 << 30
    assert (config.preload, config.warm_up, config.drain_seconds, config.log_format) == ("all", False, 5, "text")
    assert config.media == MediaRules(hosts=("cdn.test",), seconds=3)
    callers = Callers(config.keys, config.anonymous)
    assert callers.identify({"x-api-key": "ops-secret-1"}).admin
    app = callers.identify({"x-api-key": "app-secret"})
    assert (app.id, app.admin, app.limits) == ("app", False, KeyLimits(concurrent=3))


def test_options_of_the_command_win(written: Any) -> None:
    path = written("packages: [{package: package1}]\nport: 1\nload: {max_batch: 4}\nlimits: {requests: 7}\ncors: [a]\n")
    config = config_of(path, load={"max_batch": 8}, port=2, max_requests=9, cors=["b"], models_memory="1GiB")
    assert config.port == 2
    assert config.limits.requests == 9
    assert config.cors == ("a", "b")
    assert config.packages[0].load == {"max_batch": 8}
    assert config.memory_bytes == 1 << 30


def test_every_problem_of_a_file_is_told_with_its_place(written: Any) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        config_of(written("pakages: []\nport: 70000\nkeys:\n  - {id: a b, sha256: xyz}\n  - {id: c}\n"))
    found = {(problem.code, problem.at.line) for problem in caught.value.problems}
    assert found == {
        ("schema.unknown_field", 1),
        ("schema.empty", 1),
        ("schema.range", 2),
        ("schema.name", 4),
        ("schema.choice", 5),
    }
    assert any("packages" in problem.hint for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "port: 1\nport: 2\n"])
def test_a_file_that_is_no_mapping_is_refused(written: Any, text: str) -> None:
    with pytest.raises(ConfigInvalidError):
        config_of(written(text))


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("packages: [{package: package1}]\nhost: 0.0.0.0", "host"),
        ("packages: [{package: package1}]\nport: 5\nadmin_port: 5", "admin_port"),
        ("packages: [{package: package1}, {package: package1}]", "packages"),
        ("port: 5", "packages"),
    ],
)
def test_what_cannot_be_is_named(written: Any, text: str, param: str) -> None:
    with pytest.raises(OptionError) as caught:
        config_of(written(text))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ("memory: lots", "memory cannot be 'lots'", "2GiB"),
        ("memory: 1", "", ""),
        (f"memory: {2**62}", "memory 4611686018427387904 is", "lower it"),
        ("load: {max_batch: x}", "max_batch must be an integer", ""),
        ("load: {max_batch: 0}", "max_batch must be ", ""),
        ("load: {max_bach: 2}", "unknown load option 'max_bach'", "did you mean 'max_batch'?"),
        ("load: {zork: 2}", "unknown load option 'zork'", "precision"),
        ("load: {precision: fast}", "precision is no option of loading", "beside 'load'"),
        ("load: {memory: lots}", "memory cannot be 'lots'", "2GiB"),
        ("load: {cache_disk: much}", "cache_disk cannot be 'much'", "10GiB"),
        ("load: {encoder_cache: -1}", "encoder_cache cannot be -1", "10GiB"),
        ("load: {encoder_cache: 0}", "", ""),
        ("load: {policy: nice}", "unknown policy 'nice'", "fair_share"),
        ("keys: [{id: a, secret_env: NOT_SET_ANYWHERE}]", "the key 'a' is to come from NOT_SET_ANYWHERE", "set it"),
        ("keys: [{id: a, secret_file: missing}]", "the secret of the key 'a' cannot be read", ""),
        ("load: 5", "must be a mapping", ""),
        ("memory: []", "must be ", ""),
    ],
)
def test_values_are_problems_with_their_lines_beside_others(written: Any, entry: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        config_of(written(f"packages: [{{package: package1}}]\nprot: 80\n{entry}\nlimits: {{zork: 5}}\n"))
    lines = [problem.at.line for problem in caught.value.problems]
    assert lines == ([2, 3, 4] if message else [2, 4])
    if message:
        said = caught.value.problems[1]
        assert (said.message.startswith(message), hint in said.hint) == (True, True), said
    alone = written(f"packages: [{{package: package1}}]\n{entry}\n")
    if message:
        with pytest.raises(ConfigInvalidError, match=r"server\.yaml has 1 problem; first: "):
            config_of(alone)


def test_options_of_single_packages_have_their_lines(written: Any) -> None:
    text = (
        "packages:\n"
        "  - package: package1\n    load: {max_batch: x, memory: lots}\n"
        "  - package: package1\n    name: two\n    load:\n      cache_folder: /tmp\n"
        "keys:\n"
        f"  - {{id: a, sha256: '{'0' * 64}'}}\n  - {{id: a, sha256: '{'1' * 64}'}}\n"
    )
    with pytest.raises(ConfigInvalidError) as caught:
        config_of(written(text))
    assert [(problem.code, problem.at.line) for problem in caught.value.problems] == [
        ("server.value", line) for line in (3, 3, 6, 10)
    ]
    assert caught.value.problems[2].message == "cache_folder without cache_disk"
    given = {"cache_disk": "1GiB", "max_batch": 2, "memory": "32MiB"}
    with pytest.raises(ConfigInvalidError) as caught:
        config_of(written(text), load=given)
    assert [problem.at.line for problem in caught.value.problems] == [3, 3, 10]


def test_the_schema_and_the_code_know_the_same_fields() -> None:
    properties = load_schema(SCHEMA_FILE)["properties"]
    assert set(properties) - {"load"} == set(ServerConfig.__dataclass_fields__)
    assert set(properties["limits"]["properties"]) == set(Limits.__dataclass_fields__)
    assert set(properties["media"]["properties"]) == set(MediaRules.__dataclass_fields__)
    assert set(load_schema(SCHEMA_FILE)["$defs"]["keyLimits"]["properties"]) == set(KeyLimits.__dataclass_fields__)


def test_keys_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# comment\n\nfirst-secret\nalice alice-secret # hers\n")
    assert [key.id for key in read_keys(path)] == ["line3", "alice"]
    assert [key.id for key in environment_keys({KEYS_VARIABLE: "secret-1, secret-2\nsecret-3"})] == [
        "env1",
        "env2",
        "env3",
    ]
    assert environment_keys({}) == []


@pytest.mark.parametrize("line", ["short", "a b c", "nämé long-secret", "x" * 600])
def test_keys_that_cannot_be_are_refused_without_being_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(line)
    with pytest.raises(OptionError) as caught:
        read_keys(path)
    assert line not in caught.value.message
