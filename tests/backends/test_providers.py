"""Providers: asked for by name they must be there; in a list the missing ones are passed over, and it is said."""

from __future__ import annotations

import pytest

from genai_pipeline.backends.providers import choose, default_provider, find_built_in, long_name, short_name
from genai_pipeline.errors import ProviderUnavailableError

HERE = ("cuda", "cpu")


def here(asked: str) -> str:
    return find_built_in(asked, HERE)


def only_cpu(asked: str) -> str:
    return find_built_in(asked, ("cpu",))


def test_order_and_names_are_kept() -> None:
    choice = choose(("cuda|device_id=1", "CPUExecutionProvider", "cpu"), here, required=True)
    assert choice.names == HERE
    assert choice.found["cuda|device_id=1"] == "cuda"
    assert not choice.missing


def test_nothing_asked_means_cpu_where_there_is_one() -> None:
    assert default_provider(HERE) == default_provider(()) == "cpu"
    assert default_provider(("npu", "dsp")) == "npu"


def test_a_list_falls_back_and_says_so() -> None:
    choice = choose(("tensorrt", "cpu"), here, required=False)
    assert choice.names == ("cpu",)
    assert choice.missing == {"tensorrt": "provider 'tensorrt' is not available; this runtime has cpu, cuda"}


@pytest.mark.parametrize(("asked", "required"), [(("cuda", "cpu"), True), (("cuda",), False), (("cuda",), True)])
def test_a_required_or_only_provider_that_is_missing_is_an_error(asked: tuple[str, ...], required: bool) -> None:
    with pytest.raises(ProviderUnavailableError) as caught:
        choose(asked, only_cpu, required=required)
    assert caught.value.message == "provider 'cuda' is not available; this runtime has cpu"
    assert "genai-pipeline[gpu]" in caught.value.hint
    assert caught.value.exit_code == 5


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ProviderUnavailableError) as caught:
        choose(("cudda",), here, required=True)
    assert caught.value.hint == "did you mean 'cuda'?"


def test_names_go_both_ways() -> None:
    assert long_name("cuda") == "CUDAExecutionProvider"
    assert short_name("CUDAExecutionProvider") == "cuda"
    assert long_name("NewExecutionProvider") == "NewExecutionProvider"
    assert short_name("NewExecutionProvider") == "new"
