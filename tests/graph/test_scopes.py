"""Scopes, names and the networkx graphs made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.scopes import scope_graphs
from genai_pipeline.metadata.model import PackageSpec

EXAMPLES = Path(__file__).parent / "examples"
Linked = Callable[[str], Scope]
Spec = Callable[[str], PackageSpec]


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


def scope(root: Scope, scope_id: str) -> Scope:
    return next(found for found in root.subtree() if found.id == scope_id)


@pytest.mark.parametrize(
    ("name", "where", "written", "key"),
    [
        ("smollm2", "generate", "loop.tokens", "generate/loop.tokens"),
        ("smollm2", "generate", "generate.tokens", "generate/loop.tokens"),
        ("smollm2", "", "generate.tokens", "generate.tokens"),
        ("smollm2", "generate", "prompt.tokens", "prompt.tokens"),
        ("smollm2", "generate", "logits", "generate/logits"),
        ("speech_lm", "speak/codebooks", "loop.step", "speak/codebooks/loop.step"),
        ("speech_lm", "speak/codebooks", "loop.frame", "speak/loop.frame"),
        ("speech_lm", "speak/codebooks", "speak.step", "speak/loop.step"),
        ("speech_lm", "speak/codebooks", "loop.next_token", "speak/loop.next_token"),
        ("speech_lm", "speak", "codebooks.code", "speak/codebooks.code"),
        ("speech_lm", "speak", "hidden", "speak/hidden"),
        ("speech_lm", "sound", "speak.frames", "speak.frames"),
        ("speech_lm", "sound", "loop.item", "sound/loop.item"),
        ("embedder", "each", "prompt.tokens", "each/prompt.tokens"),
        ("embedder", "", "each.unit", "each.unit"),
        ("embedder", "", "prompt.tokens", "prompt.tokens"),
        ("whisper", "each/generate", "audio.windows.features", "each/audio.windows.features"),
        ("whisper", "", "each.generate.tokens", "each.generate.tokens"),
        ("whisper", "each", "listen.last_hidden_state", "each/listen.last_hidden_state"),
        ("vision", "see[]", "images.pixels", "see[]/images.pixels"),
        ("vision", "generate", "features", "features"),
        ("diffusion", "denoise", "loop.timestep", "denoise/loop.timestep"),
        ("diffusion", "", "denoise.latents", "denoise.latents"),
    ],
)
def test_a_name_means_the_innermost_value(linked: Linked, name: str, where: str, written: str, key: str) -> None:
    found = scope(linked(example(name)), where).resolve(written)
    assert found is not None
    assert found[1].key == key


@pytest.mark.parametrize(
    ("name", "where", "written"),
    [
        ("smollm2", "", "logits"),
        ("smollm2", "", "loop.tokens"),
        ("smollm2", "generate", "loop.item"),
        ("diffusion", "denoise", "loop.tokens"),
        ("embedder", "", "unit"),
    ],
)
def test_inner_names_are_not_seen_outside(linked: Linked, name: str, where: str, written: str) -> None:
    assert scope(linked(example(name)), where).resolve(written) is None


def test_the_longest_match_counts(linked: Linked) -> None:
    root = linked(example("smollm2"))
    lengths = [root.resolve("prompt.length"), root.resolve("generate.tokens.length")]
    assert [found and found[0] for found in lengths] == ["prompt.length", "generate.tokens"]


@pytest.mark.parametrize("name", ["diffusion", "embedder", "smollm2", "speech_lm", "vision", "whisper"])
def test_every_scope_is_an_acyclic_graph(linked: Linked, spec: Spec, name: str) -> None:
    text = example(name)
    graphs = scope_graphs(linked(text), spec(text))
    for graph in graphs.values():
        assert nx.is_directed_acyclic_graph(graph)
        kinds = nx.get_node_attributes(graph, "kind")
        assert set(kinds) == set(graph)
        for source, target, port in graph.edges(data="port"):
            assert port
            assert "value" in (kinds[source], kinds[target])


def test_nodes_and_edges_say_what_they_are(linked: Linked, spec: Spec) -> None:
    text = example("speech_lm")
    graphs = scope_graphs(linked(text), spec(text))
    body = graphs["speak"]
    assert body.graph["scope"] == "decode"
    assert body.graph["carry"] == (("speak/frame_next", "speak/loop.frame"),)
    talker = body.nodes["stage:talker"]
    assert (talker["kind"], talker["component"]) == ("run", "talker")
    assert body.nodes["stage:codebooks"]["body"] == "speak/codebooks"
    assert body.edges["value:speak/loop.frame", "stage:talker"]["port"] == "inputs_embeds"
    assert body.nodes["value:speak/hidden"]["produced_by"] == "talker"
    assert nx.has_path(body, "stage:talker", "stage:codebooks")
    assert nx.has_path(body, "choice", "stage:codebooks")
    assert graphs[""].nodes["output:audio"]["modality"] == "audio"
    assert graphs[""].nodes["value:prompt.tokens"]["dtype"] == "int64"


def test_state_taken_from_a_component_orders_its_stages(linked: Linked, spec: Spec) -> None:
    text = example("whisper")
    graph = scope_graphs(linked(text), spec(text))["each"]
    assert nx.has_path(graph, "stage:listen", "stage:generate")
