"""Plugin providers: how they are written, registered once, and refused by name when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from genai_pipeline.backends.ort_plugins import load_plugin
from genai_pipeline.backends.provider_names import ProviderSpec, parse_provider, split_providers
from genai_pipeline.backends.runtime import onnxruntime
from genai_pipeline.errors import OptionError, ProviderUnavailableError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("cuda", ProviderSpec("cuda")),
        ("cuda|device_id=1", ProviderSpec("cuda", options=(("device_id", "1"),))),
        ("plugin:/a/b.so|k=v|k2=a=b", ProviderSpec("/a/b.so", True, (("k", "v"), ("k2", "a=b")))),
        ("plugin:some-dist", ProviderSpec("some-dist", True)),
    ],
)
def test_the_forms(text: str, spec: ProviderSpec) -> None:
    assert parse_provider(text) == spec


@pytest.mark.parametrize(
    ("text", "part"), [("", "no name"), ("plugin:", "library"), ("cuda|x", "'x'"), ("cuda|a=1|a=2", "'a' twice")]
)
def test_a_malformed_part_is_named(text: str, part: str) -> None:
    with pytest.raises(OptionError, match=part):
        parse_provider(text)


def test_lists_have_commas() -> None:
    assert split_providers(["cuda|device_id=1,cpu", "dml"]) == ("cuda|device_id=1", "cpu", "dml")
    with pytest.raises(OptionError, match="empty entry"):
        split_providers(["cuda,"])


def test_a_distribution_and_its_path_are_one_registration() -> None:
    first = load_plugin(onnxruntime(), "nxrt-ep-cpu")
    again = load_plugin(onnxruntime(), str(first.library))
    assert first.name == again.name == "cpu_ep"
    assert len(first.devices) == len(again.devices) == 1


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad.so"
    bad.write_bytes(b"no library")
    for asked, why in (("/nowhere/x.so", "no file"), ("no-such-dist", "no such"), (str(bad), "does not load")):
        with pytest.raises(ProviderUnavailableError, match=why) as caught:
            load_plugin(onnxruntime(), asked)
        assert caught.value.exit_code == 5
        assert "pip install" in caught.value.hint
