"""What a backend can run graphs on, and the refusal of what it cannot."""

from __future__ import annotations

import sys

import pytest

from genai_pipeline.backends.offer import Offer
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.errors import OptionError, ProviderUnavailableError, RuntimeMissingError
from genai_pipeline.metadata.provider_names import read_providers


@pytest.mark.parametrize(
    ("backend", "asked", "name", "said"),
    [
        ("auto", "cpu|use_arena=0", "cpu", "cpu is available here"),
        ("auto", "CPUExecutionProvider", "cpu", "cpu is available here"),
        ("auto", "plugin:nxrt-ep-cpu", "cpu_ep", "plugin:nxrt-ep-cpu is available here"),
        ("auto", "cpu_ep", None, "cpu_ep is not available here"),  # a plugin's own name says not where its library is
        ("ort", "cuda", None, "cuda is not available with the backend ort"),
        ("nxrt", "cpu", "cpu", "cpu is available with the backend nxrt"),
        ("nxrt", "cuda", None, "cuda is not available with the backend nxrt"),
        ("nxrt", "plugin:nxrt-ep-cpu", None, "the backend nxrt takes no plugin, and plugin:nxrt-ep-cpu is one"),
    ],
)
def test_providers_are_found_where_the_backend_has_them(backend: str, asked: str, name: str | None, said: str) -> None:
    found = Offer(backend).find(asked)
    assert (found.name, found.said) == (name, said)


def test_a_registered_plugin_is_none_of_the_runtimes_own_providers() -> None:
    offer = Offer()
    assert offer.find("plugin:nxrt-ep-cpu").name == "cpu_ep"
    assert "cpu" in offer.names
    assert "cpu_ep" not in Offer().names


def test_a_plugin_that_is_not_there_says_why() -> None:
    found = Offer().find("plugin:/nowhere/x.so")
    assert (found.name, found.said) == (
        None,
        "the provider plugin '/nowhere/x.so' is not available: there is no file /nowhere/x.so",
    )


def test_without_its_runtime_a_backend_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nxrt", None)
    offer = Offer("nxrt")
    assert (offer.names, offer.default) == ((), "cpu")
    assert offer.find("cuda").name is None
    with pytest.raises(RuntimeMissingError, match="nxrt is not installed") as caught:
        offer.require(None)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("asked", [None, "cpu", "cuda,cpu", "plugin:absent,cpu", "part=cuda,cpu", "plugin:nxrt-ep-cpu"])
def test_what_can_be_had_is_let_through(asked: str | None) -> None:
    Offer(OrtBackend()).require(None if asked is None else read_providers("providers", asked))


@pytest.mark.parametrize(
    ("backend", "asked", "says", "hint"),
    [
        ("ort", "cuda", "provider 'cuda' is not available; this runtime has .*cpu, plugin:nxrt-ep-cpu", "[gpu]"),
        ("ort", "cuda,tensorrt", "provider 'cuda' is not available", "[gpu]"),
        ("ort", "part=cuda,*=cpu", "provider 'cuda' is not available", "[gpu]"),
        ("ort", "cdua,cpu", "there is no provider 'cdua'; the backend ort has .*cpu", "did you mean 'cuda'?"),
        ("ort", "plugin:absent", "plugin 'absent' is not available: no such distribution", "pip install absent"),
        ("ort", "plugin:./x.so", "there is no file x.so", "installed plugins: nxrt-ep-cpu"),
        ("nxrt", "cuda", "provider 'cuda' is not available; the backend nxrt has cpu", "use the backend ort"),
        ("nxrt", "plugin:x", "the backend nxrt takes no plugin", "use the backend ort"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_there_is(backend: str, asked: str, says: str, hint: str) -> None:
    with pytest.raises(ProviderUnavailableError, match=says) as caught:
        Offer(backend).require(read_providers("providers", asked))
    assert hint in caught.value.hint
    assert caught.value.exit_code == 5


def test_a_backend_without_options_refuses_them() -> None:
    with pytest.raises(OptionError, match="the backend nxrt has no options of providers"):
        Offer("nxrt").require(read_providers("providers", "cpu|use_arena=0"))


def test_threads_that_a_backend_does_not_take_are_refused_with_the_rest() -> None:
    Offer("ort", 2).require(None)
    with pytest.raises(OptionError, match="threads"):
        Offer("nxrt", 2).require(None)


def test_a_backend_is_no_provider() -> None:
    with pytest.raises(ProviderUnavailableError) as found:
        Offer("ort").require(read_providers("providers", "nxrt"))
    assert found.value.hint == "it is a backend: --backend nxrt"
