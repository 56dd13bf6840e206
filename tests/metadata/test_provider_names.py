"""What users write for a provider, and for which components."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.provider_names import AskedProviders, ProviderSpec, parse_provider, read_providers


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
