"""Providers: asked for by name they must be there; in a list the missing ones are passed over, and it is said."""

from __future__ import annotations

import pytest

from genai_pipeline.backends.providers import choose, long_name, short_name
from genai_pipeline.errors import ProviderUnavailableError

HERE = ("CUDAExecutionProvider", "CPUExecutionProvider")


def test_order_and_names_are_kept() -> None:
    choice = choose(("cuda", "CPUExecutionProvider", "cpu"), HERE, required=True)
    assert choice.names == HERE
    assert choice.notes == ()


def test_nothing_asked_means_cpu() -> None:
    assert choose((), HERE, required=False).names == ("CPUExecutionProvider",)


def test_a_list_falls_back_and_says_so() -> None:
    choice = choose(("tensorrt", "cpu"), HERE, required=False)
    assert choice.names == ("CPUExecutionProvider",)
    assert choice.notes == ("provider 'tensorrt' is not available here; using cpu",)


@pytest.mark.parametrize(("asked", "required"), [(("cuda", "cpu"), True), (("cuda",), False), (("cuda",), True)])
def test_a_required_or_only_provider_that_is_missing_is_an_error(asked: tuple[str, ...], required: bool) -> None:
    with pytest.raises(ProviderUnavailableError) as caught:
        choose(asked, HERE[1:], required=required)
    assert caught.value.message == "provider 'cuda' is not available; this runtime has cpu"
    assert "genai-pipeline[gpu]" in caught.value.hint
    assert caught.value.exit_code == 5


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ProviderUnavailableError) as caught:
        choose(("cudda",), HERE, required=True)
    assert caught.value.hint == "did you mean 'cuda'?"


def test_names_go_both_ways() -> None:
    assert long_name("cuda") == "CUDAExecutionProvider"
    assert short_name("CUDAExecutionProvider") == "cuda"
    assert long_name("NewExecutionProvider") == "NewExecutionProvider"
    assert short_name("NewExecutionProvider") == "new"
