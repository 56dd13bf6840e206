"""Alternatives of a component: which is used where, why, and what is said where none can run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import genai_pipeline as gp
from genai_pipeline.checking import check_package
from genai_pipeline.errors import PackageNotFoundError, ProviderUnavailableError
from genai_pipeline.graph import render
from genai_pipeline.graph.variants import Found, choose_variant
from genai_pipeline.metadata.load import load_package
from genai_pipeline.metadata.model import ComponentSpec, SessionSpec, VariantSpec
from genai_pipeline.metadata.provider_names import label_of
from genai_pipeline.problems import Location
from genai_pipeline.testing import TinyPackage, write_package

HERE = Location("p")
CUDA16 = VariantSpec(HERE, "cuda16.onnx", "cuda", "float16")
CUDA32 = VariantSpec(HERE, "cuda32.onnx", "CUDAExecutionProvider", "float32")
CPU = VariantSpec(HERE, "cpu.onnx", "cpu", "int4")
ANY = VariantSpec(HERE, "any.onnx", None, "float32")


@dataclass(frozen=True)
class Here:
    """What a backend offers; ``plugins``: by what names them, their own names."""

    names: tuple[str, ...]
    plugins: Mapping[str, str] = field(default_factory=dict)
    default: str = "cpu"

    def find(self, asked: str) -> Found:
        label = label_of(asked)
        name = self.plugins.get(label, label if label in self.names else None)
        return Found(name, f"{label} is {'' if name else 'not '}available here")


def component(*variants: VariantSpec, listed: tuple[str, ...] = ()) -> ComponentSpec:
    return ComponentSpec(HERE, "decoder", variants=variants, session=SessionSpec(HERE, listed) if listed else None)


@pytest.mark.parametrize(
    ("variants", "there", "asked", "precision", "model", "providers"),
    [
        ((CUDA16, CPU), ["cuda", "cpu"], None, None, "cuda16.onnx", ("cuda", "cpu")),
        ((CPU, CUDA16), ["cuda", "cpu"], None, None, "cpu.onnx", ("cpu",)),
        ((CUDA16, CPU), ["cpu"], None, None, "cpu.onnx", ("cpu",)),
        ((CUDA16, CPU), ["cuda", "cpu"], ("cpu",), None, "cpu.onnx", ("cpu",)),
        ((CPU, CUDA16), ["cuda", "cpu"], ("cuda", "cpu"), None, "cuda16.onnx", ("cuda", "cpu")),
        ((CUDA16, CUDA32, CPU), ["cuda", "cpu"], None, None, "cuda16.onnx", ("cuda", "cpu")),
        ((CUDA16, CUDA32, CPU), ["cuda", "cpu"], None, "float32", "cuda32.onnx", ("cuda", "cpu")),
        ((CUDA16, CUDA32, CPU), ["cpu"], None, "bfloat16", "cpu.onnx", ("cpu",)),
        ((CUDA16, ANY), ["dml", "cpu"], ("dml",), None, "any.onnx", ("dml",)),
        ((ANY, CUDA16), ["cuda", "cpu"], ("cuda",), None, "cuda16.onnx", ("cuda",)),
        ((ANY,), ["cpu"], None, None, "any.onnx", ("cpu",)),
        ((CPU, ANY), ["dml", "cpu"], ("dml", "cpu"), None, "any.onnx", ("dml", "cpu")),
    ],
)
def test_what_runs_decides_then_the_order_of_the_file(
    variants: tuple[VariantSpec, ...],
    there: list[str],
    asked: tuple[str, ...] | None,
    precision: str | None,
    model: str,
    providers: tuple[str, ...],
) -> None:
    chosen = choose_variant(component(*variants), Here(tuple(there)), asked or (), precision)
    assert (chosen.variant.model, chosen.providers, chosen.runs) == (model, providers, True)


def test_a_components_own_list_counts_before_its_variants() -> None:
    chosen = choose_variant(component(CUDA16, CPU, listed=("cpu", "cuda")), Here(("cuda", "cpu")), (), None)
    assert chosen.variant is CPU
    assert chosen.reason == "cpu is available here and listed by the component"


def test_the_reason_tells_what_was_passed_over() -> None:
    chosen = choose_variant(component(CUDA16, CUDA32, CPU), Here(("cpu",)), ("dml", "cuda", "cpu"), "int8")
    assert chosen.reason == (
        "no variant has the precision int8; dml is not available here; cuda is not available here; "
        "cpu is available here and asked for"
    )
    assert chosen.passed_over == ("dml is not available here", "cuda is not available here")


PLUGIN = VariantSpec(HERE, "plugin.onnx", "plugin:npu-ep")
OWN_NAME = VariantSpec(HERE, "own.onnx", "npu_ep")
WITH_PLUGIN = Here(("cpu",), {"plugin:npu-ep": "npu_ep", "plugin:/lib/npu.so": "npu_ep"})


@pytest.mark.parametrize(
    ("variants", "asked", "model", "providers"),
    [
        ((CPU, PLUGIN), ("plugin:npu-ep|level=3", "cpu"), "plugin.onnx", ("plugin:npu-ep|level=3", "cpu")),
        ((CPU, OWN_NAME), ("plugin:/lib/npu.so", "cpu"), "own.onnx", ("plugin:/lib/npu.so", "cpu")),
        ((PLUGIN, CPU), (), "plugin.onnx", ("plugin:npu-ep", "cpu")),
        ((PLUGIN, CPU), ("cpu|use_arena=0",), "cpu.onnx", ("cpu|use_arena=0",)),
        ((PLUGIN, CPU), ("plugin:other", "cpu"), "cpu.onnx", ("cpu",)),
    ],
)
def test_plugins_are_providers_and_options_are_kept(
    variants: tuple[VariantSpec, ...], asked: tuple[str, ...], model: str, providers: tuple[str, ...]
) -> None:
    chosen = choose_variant(component(*variants), WITH_PLUGIN, asked, None)
    assert (chosen.variant.model, chosen.providers) == (model, providers)


PROVIDERS = st.sampled_from(["cpu", "cuda", "dml", "qnn"])
VARIANTS = st.builds(
    VariantSpec, st.just(HERE), st.sampled_from("abc"), st.none() | PROVIDERS, st.none() | st.sampled_from("xy")
)


@given(
    variants=st.lists(VARIANTS, min_size=1, max_size=5),
    there=st.lists(PROVIDERS, unique=True),
    asked=st.none() | st.lists(PROVIDERS, min_size=1, unique=True),
    precision=st.none() | st.sampled_from("xyz"),
)
def test_a_choice_runs_on_what_is_there_and_was_asked_for(
    variants: list[VariantSpec], there: list[str], asked: Sequence[str] | None, precision: str | None
) -> None:
    made = component(*variants)
    chosen = choose_variant(made, Here(tuple(there)), asked or (), precision)
    assert chosen == choose_variant(made, Here(tuple(reversed(there))), asked or (), precision)
    assert chosen.variant in variants
    if chosen.runs:
        assert chosen.providers[0] in there
        assert chosen.variant.provider in (None, chosen.providers[0])
        assert asked is None or chosen.providers[0] in asked
        if any(one.precision == precision for one in variants) and precision is not None:
            assert chosen.variant.precision == precision


# --- whole packages ---------------------------------------------------------------------------------------------------


def with_variants(folder: Path, *variants: dict[str, Any], copies: Sequence[str] = ("other.onnx",)) -> TinyPackage:
    def edit(metadata: dict[str, Any]) -> None:
        decoder = metadata["components"]["decoder"]
        model = decoder.pop("model")
        metadata["components"]["decoder"] = {"variants": [{"model": model, **one} for one in variants], **decoder}

    made = write_package(folder, "kv", edit=edit)
    (model,) = folder.glob("*.onnx")
    for name in copies:
        shutil.copyfile(model, folder / name)
    return made


def test_a_package_runs_on_the_variant_that_fits(tmp_path: Path) -> None:
    cuda = {"provider": "cuda", "precision": "float16", "model": "other.onnx"}
    made = with_variants(tmp_path, cuda, {"provider": "cpu", "precision": "float32"})
    assert not gp.validate(tmp_path)[1]
    prompt = made.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(tmp_path) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == made.answer(prompt, 8)
        assert pipe.providers == ("cpu",)
        text, facts = render.to_text(pipe.plan), render.to_json(pipe.plan)
    assert "variant cpu float32, of 2: cuda is not available here; cpu is available here" in text
    assert facts["components"]["decoder"]["variant"]["of"] == 2


def test_a_precision_may_be_asked_for(tmp_path: Path) -> None:
    with_variants(tmp_path, {"precision": "int4"}, {"precision": "float32", "model": "other.onnx"})
    with gp.load(tmp_path, precision="float32") as pipe:
        assert pipe.plan.components["decoder"].model == "other.onnx"
    with pytest.raises(PackageNotFoundError, match="precision 'float23'") as raised:
        gp.load(tmp_path, precision="float23")
    assert "float32" in raised.value.hint


def test_a_package_for_another_machine_is_valid_here_and_does_not_load(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cuda"})
    (problem,) = gp.validate(tmp_path)[1]
    assert (problem.code, problem.severity) == ("variant.none_runs", "warning")
    with pytest.raises(ProviderUnavailableError, match="cuda is not available here"):
        gp.load(tmp_path)


def test_a_variant_is_not_run_on_a_provider_that_it_is_not_for(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cpu"})
    with pytest.raises(ProviderUnavailableError, match="provider 'cuda' is not available"):
        gp.load(tmp_path, providers=["cuda"])


def test_all_variants_have_the_same_ports(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cpu"}, {"provider": "cuda", "model": "other.onnx"})
    shutil.copyfile(write_package(tmp_path / "else", "pos").path / "model.onnx", tmp_path / "other.onnx")
    problems = gp.validate(tmp_path)[1]
    assert {problem.code for problem in problems} == {"variant.ports"}
    assert {problem.at.path for problem in problems} == {"components.decoder.variants[1].model"}


def test_missing_files_of_variants_that_do_not_run_here_are_found(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cpu"}, {"provider": "cuda", "model": "absent.onnx"}, copies=())
    assert [problem.code for problem in gp.validate(tmp_path)[1]] == ["path.missing"]


def test_unknown_providers_of_variants_are_told(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cdua", "model": "other.onnx"}, {})
    (problem,) = gp.validate(tmp_path)[1]
    assert (problem.code, problem.hint) == ("runtime.provider", "did you mean 'cuda'?")


def test_borrowed_components_have_variants_too(tmp_path: Path) -> None:
    lender = with_variants(tmp_path / "lender", {"provider": "cuda", "model": "other.onnx"}, {"provider": "cpu"})

    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"] = {"package": "tiny-kv", "component": "decoder"}

    made = write_package(tmp_path / "borrower", "kv", name="borrower", edit=edit)
    checked = check_package(made.path, lambda name: lender.path)
    assert checked.plan is not None
    assert checked.plan.components["decoder"].spec.chosen is not None


def test_metadata_that_was_only_read_compiles_too(tmp_path: Path) -> None:
    with_variants(tmp_path, {"provider": "cuda", "model": "other.onnx"}, {"provider": "cpu"})
    spec, _ = load_package(tmp_path)
    assert spec is not None
    assert gp.compile(spec).components["decoder"].model == "model.onnx"
