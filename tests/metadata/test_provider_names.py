"""What users write for a provider, and for which components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.provider_names import AskedProviders, ProviderSpec, parse_provider, read_providers
from genai_pipeline.testing import write_package


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


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("plugin:/a/b.so", True),
        ("plugin:b.so", True),
        ("plugin:b.so.1.2", True),
        ("plugin:./b", True),
        ("plugin:C:\\b.dll", True),
        ("plugin:some-dist", False),
        ("plugin:some.dist", False),
        ("cuda", False),
    ],
)
def test_a_path_and_a_distribution_are_told_apart_by_how_they_are_written(text: str, library: bool) -> None:
    assert parse_provider(text).is_library is library


@pytest.mark.parametrize(
    ("given", "lists"),
    [
        ("cuda,cpu", {"*": ("cuda", "cpu")}),
        (["cuda|device_id=1,cpu", "dml", "cpu"], {"*": ("cuda|device_id=1", "cpu", "dml")}),
        ("encoder=cuda|device_id=1,cpu", {"encoder": ("cuda|device_id=1", "cpu")}),
        (["encoder=cuda,cpu", "dml"], {"encoder": ("cuda", "cpu"), "*": ("dml",)}),
        (
            "cpu,encoder=cuda,cpu,decoder=plugin:a=b",
            {"*": ("cpu",), "encoder": ("cuda", "cpu"), "decoder": ("plugin:a=b",)},
        ),
        ("encoder=cuda,*=cpu", {"encoder": ("cuda",), "*": ("cpu",)}),
        (["encoder=cuda", "encoder=cpu"], {"encoder": ("cuda", "cpu")}),
        ({"encoder": ["cuda", "cpu"], "*": "cpu"}, {"encoder": ("cuda", "cpu"), "*": ("cpu",)}),
    ],
)
def test_lists_by_component(given: Any, lists: dict[str, tuple[str, ...]]) -> None:
    asked = read_providers("providers", given)
    assert asked.lists == lists
    assert read_providers("providers", asked) is asked
    assert read_providers("providers", str(asked)) == asked


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cuda,", "empty entry"),
        ("encoder=", "empty entry"),
        ([], "empty list"),
        ({}, "names no component"),
        ({"encoder": []}, "empty list"),
        ({1: "cpu"}, "1 in place of a component's name"),
        (3, "must be a name or a list"),
        ({"encoder": ["cuda", 3]}, "must be a name or a list"),
        ("encoder=cuda|x", "'x' is not of the form"),
    ],
)
def test_what_cannot_be_is_named(given: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        read_providers("providers", given)
    assert caught.value.param == "providers"


def test_a_component_that_is_not_named_has_what_is_for_all() -> None:
    asked = read_providers("providers", "encoder=cuda,*=cpu")
    assert (asked.of("encoder"), asked.of("decoder"), asked.components) == (("cuda",), ("cpu",), ("encoder",))
    assert asked.everywhere() == AskedProviders({"*": ("cpu",)})
    only = read_providers("providers", "encoder=cuda")
    assert (only.of("decoder"), only.everywhere()) == ((), None)


@pytest.mark.parametrize(
    ("provider", "severity", "hint"),
    [
        ("plugin:some-ep", None, ""),
        ("cdua", "warning", "did you mean 'cuda'?"),
        ("plugin:./evil.so", "error", "plugin:DISTRIBUTION"),
        ("plugin:evil.so", "error", "plugin:DISTRIBUTION"),
        ("cuda|device_id=1", "error", "put options below provider_options"),
        ("plugin:", "error", "plugin:DISTRIBUTION"),
    ],
)
@pytest.mark.parametrize("place", ["session", "variants"])
def test_a_package_names_plugins_by_their_distribution(
    tmp_path: Path, place: str, provider: str, severity: str | None, hint: str
) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        if place == "session":
            decoder["session"] = {"providers": [provider, "cpu"]}
        else:
            model = decoder.pop("model")
            decoder["variants"] = [{"provider": provider, "model": model}, {"provider": "cpu", "model": model}]

    problems = gp.validate(write_package(tmp_path, "kv", edit=edit).path)[1]
    assert [(one.code, one.severity) for one in problems] == ([("runtime.provider", severity)] if severity else [])
    assert all(hint in one.hint for one in problems)


def test_options_of_a_plugin_are_listed_below_its_name(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        options = {"plugin:some-ep": {"level": 3}, "plugin:other-ep": {"level": 3}}
        decoder["session"] = {"providers": ["plugin:some-ep", "cpu"], "provider_options": options}

    (problem,) = gp.validate(write_package(tmp_path, "kv", edit=edit).path)[1]
    assert problem.code == "runtime.provider_options"
    assert "'plugin:other-ep'" in problem.message
