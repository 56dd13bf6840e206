"""What graphs run on is one value per graph, and what was asked for and not met is said."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.backends.placement import GraphPlacement, Shortfall
from genai_pipeline.errors import GraphLoadError, OptionError, ProviderUnavailableError
from genai_pipeline.testing import TinyPackage, write_package

PLUGIN = "plugin:nxrt-ep-cpu"


@pytest.fixture
def cross(tmp_path: Path) -> TinyPackage:
    """Two components, encoder and decoder."""
    return write_package(tmp_path / "cross", "cross")


def test_a_shortfall_in_words() -> None:
    unmet = Shortfall({"cuda": "it is not here"}, ("npu",), {"Shape": 3, "Add": 2, "Mul": 1, "Sub": 1, "Div": 1})
    assert list(unmet.texts("part", {"npu2": 2, "cpu": 8})) == [
        "component 'part' goes without cuda, using npu2, cpu: it is not here",
        "provider 'npu' was loaded but runs no node of 'part'",
        "8 of the 10 nodes of 'part' run on the cpu: 3 Shape, 2 Add, 1 Mul, 1 Sub, ...",
    ]
    assert not list(Shortfall().texts("part", {"cpu": 8}))


def test_every_graph_has_one(cross: TinyPackage) -> None:
    with gp.load(cross.path) as pipe:
        encoder, decoder = pipe.placement
        result = pipe.generate(tokens=cross.vocabulary.encode("abc"), max_new_tokens=2, temperature=0)
    assert result.usage.graphs == (encoder, decoder)
    assert (encoder.component, encoder.model, encoder.package) == ("encoder", "encoder.onnx", "tiny-cross")
    assert (encoder.backend, encoder.providers, encoder.fell_to_cpu) == ("ort", ("cpu",), 0)
    assert (encoder.shortfall, decoder.shortfall) == (Shortfall(), Shortfall())
    assert str(decoder) == f"decoder (model.onnx): ort {decoder.version}, {decoder.nodes['cpu']} nodes on cpu"
    assert result.to_dict()["usage"]["graphs"][1] == decoder.to_dict()


def test_another_backend_says_its_own_name_and_version(cross: TinyPackage) -> None:
    with gp.load(cross.path, backend="nxrt") as pipe:
        encoder, _ = pipe.placement
    assert (encoder.backend, encoder.providers, encoder.shortfall) == ("nxrt", ("cpu",), Shortfall())
    assert encoder.version.startswith("0.")


@pytest.mark.parametrize(
    "asked", [f"encoder={PLUGIN},cpu", {"encoder": [PLUGIN, "cpu"]}, [f"encoder={PLUGIN},cpu,*=cpu"]]
)
def test_providers_of_one_component(cross: TinyPackage, asked: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "genai_pipeline.placement"), gp.load(cross.path, providers=asked) as pipe:
        encoder, decoder = pipe.placement
    assert encoder.shortfall.unused == ("cpu_ep",)  # its integer operators are none that the plugin takes
    assert encoder.fell_to_cpu == encoder.nodes["cpu"] == sum(encoder.shortfall.fallen.values())
    assert "Cast" in encoder.shortfall.fallen
    assert decoder.shortfall == Shortfall()
    assert [record.getMessage() for record in caplog.records] == list(encoder.shortfall.texts("encoder", encoder.nodes))


def test_what_fell_is_said_in_one_line(cross: TinyPackage) -> None:
    with gp.load(cross.path, providers=["cuda", PLUGIN, "cpu"]) as pipe:
        encoder, _ = pipe.placement
    assert "; fell to the cpu: " in str(encoder)
    assert str(encoder).endswith("; without a node: cpu_ep; not available: cuda")
    shown = encoder.to_dict()
    assert shown["fell_to_cpu"] == encoder.fell_to_cpu > 0
    assert shown["unused_providers"] == ["cpu_ep"]
    assert list(shown["missing_providers"]) == ["cuda"]


def test_a_single_provider_must_run_all_of_its_component(cross: TinyPackage) -> None:
    with pytest.raises(GraphLoadError, match=r"component 'encoder'.*fallback to CPU"):
        gp.load(cross.path, providers={"encoder": PLUGIN})
    with pytest.raises(ProviderUnavailableError, match="'cuda'"):
        gp.load(cross.path, providers={"encoder": "cuda", "*": "cpu"})


def test_an_unknown_component_is_named(cross: TinyPackage) -> None:
    with pytest.raises(OptionError, match="'encodr', which is no component of 'tiny-cross'") as caught:
        gp.load(cross.path, providers="encodr=cpu")
    assert (caught.value.hint, caught.value.param) == ("did you mean 'encoder'?", "providers")


def test_what_is_asked_wins_over_the_package_which_counts_where_nothing_is(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        for component in metadata["components"].values():
            component["session"] = {"providers": ["cuda", PLUGIN, "cpu"]}

    package = write_package(tmp_path, "cross", edit=edit)
    assert gp.validate(package.path)[1] == ()

    def unmet(**options: Any) -> list[tuple[str, ...]]:
        with gp.load(package.path, **options) as pipe:
            return [(*graph.shortfall.missing, *graph.shortfall.unused) for graph in pipe.placement]

    declared = ("cuda", "cpu_ep")
    assert unmet() == [declared, declared]
    assert unmet(providers="cpu") == [(), ()]
    assert unmet(providers="encoder=cpu") == [(), declared]
    assert unmet(providers="encoder=dml,cpu,*=cpu") == [("dml",), ()]
    assert unmet(backend="nxrt") == [("cuda", PLUGIN), ("cuda", PLUGIN)]


def test_the_environment_gives_way_to_an_option_as_a_whole(cross: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "encoder=cuda,cpu,*=dml,cpu")

    def missing(**options: Any) -> list[tuple[str, ...]]:
        with gp.load(cross.path, **options) as pipe:
            return [tuple(graph.shortfall.missing) for graph in pipe.placement]

    assert missing() == [("cuda",), ("dml",)]
    assert missing(providers="decoder=qnn,cpu") == [(), ("qnn",)]
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "cuda")
    with pytest.raises(ProviderUnavailableError, match="'cuda'"):
        gp.load(cross.path)


def test_options_of_providers_reach_components_with_variants(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        model = decoder.pop("model")
        decoder["variants"] = [{"provider": PLUGIN, "model": "other.onnx"}, {"provider": "cpu", "model": model}]

    package = write_package(tmp_path, "kv", edit=edit)
    shutil.copyfile(package.path / "model.onnx", package.path / "other.onnx")

    def placed(providers: Any, **options: Any) -> GraphPlacement:
        with gp.load(package.path, providers=providers, **options) as pipe:
            (graph,) = pipe.placement
            return graph

    assert placed(None).model == "other.onnx"  # the plugin is installed
    assert placed("cpu|use_arena=0").model == "model.onnx"
    assert placed(["cuda", "cpu"]).passed_over == ("cuda is not available here",)
    assert placed(None, backend="nxrt").model == "model.onnx"
    with pytest.raises(OptionError, match="the provider cpu has no option 'arena'"):
        placed("cpu|arena=0")


def test_graphs_of_a_draft_package_have_one_too(tmp_path: Path) -> None:
    package, draft = write_package(tmp_path / "a", "kv", name="big"), write_package(tmp_path / "b", "kv", name="small")
    asked = {"decoder": ["dml", "cpu"], "*": ["cuda", "cpu"]}
    with gp.load(package.path, draft=draft.path, providers=asked) as pipe:
        own, other = pipe.placement
    assert (own.package, tuple(own.shortfall.missing)) == ("big", ("dml",))
    assert (other.package, tuple(other.shortfall.missing)) == ("small", ("cuda",))


def test_checks_choose_variants_by_the_same_options(tmp_path: Path, cross: TinyPackage) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        decoder["variants"] = [{"provider": PLUGIN, "model": decoder.pop("model")}]

    package = write_package(tmp_path / "varied", "kv", edit=edit)
    assert gp.validate(package.path)[1] == gp.validate(package.path, backend="ort", providers=PLUGIN)[1] == ()
    for selection in ({"backend": "nxrt"}, {"providers": "cpu"}):
        (problem,) = gp.validate(package.path, **selection)[1]  # type: ignore[arg-type]
        assert (problem.code, problem.severity) == ("variant.none_runs", "warning")
    with pytest.raises(OptionError, match="'encodr'"):
        gp.validate(cross.path, providers={"encodr": "cpu"})
