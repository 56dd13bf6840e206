"""The kinds of closed-form packages: which graphs, stages and vocabulary each consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.caches import AppendCache, Cache, Geometry, InPlaceCache, Positions, ScatterCache
from genai_pipeline.testing.graphs.decoder import Decoder, embedding_graph
from genai_pipeline.testing.graphs.rules import Rule, ScriptRule, SumRule
from genai_pipeline.testing.vocabulary import GENERATION_PROMPT, Vocabulary, byte_level, words

Update = Literal["in_place", "append", "scatter"]
Scripts = Mapping[str, Sequence[str | int]]


class Twin(Protocol):
    """Knows the right tokens without any graph."""

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``."""


@dataclass(frozen=True)
class KindOptions:
    """Options of all kinds; a kind ignores none that it is documented for, see the functions below."""

    update: Update = "in_place"
    positions: Positions | None = None  # None: what is usual for the update kind
    layers: int = 2
    heads: int = 2
    head_dim: int = 8
    dtype: str = "float32"  # of the cache
    value_dtype: str | None = None  # of its value part, if it differs
    logits: str = "float32"
    peak: float = 16.0  # the logit of the right token; others have at most half
    size: int | None = None  # vocabulary size
    end_at: int | None = None  # kv: the end token from this position on
    script: Sequence[str | int] = ("O", " P", " Q", " R")  # script: tokens, unknown texts join the vocabulary
    scripts: Scripts = field(default_factory=dict)  # script: further ones, by the token that starts them
    end: str | int | None = "</s>"  # appended to scripts; None: they end as written
    text: str = "caf\u00e9 \U0001f389!"  # bytes: what is emitted


@dataclass(frozen=True)
class Content:
    """What a package consists of."""

    vocabulary: Vocabulary
    twin: Twin
    graphs: Mapping[str, GraphBuilder]
    components: dict[str, Any]
    stages: list[dict[str, Any]]


def kv(options: KindOptions) -> Content:
    """FX-kv: the next token depends on the last token, its position and a sum over all cached keys and values."""
    vocabulary = words(size=options.size)
    return _decoder_content(options, vocabulary, sum_rule(options, vocabulary))


def embeds(options: KindOptions) -> Content:
    """FX-kv in two components: ``embed`` turns tokens into embeddings, ``decoder`` takes those. Same answers as kv."""
    vocabulary = words(size=options.size)
    content = _decoder_content(options, vocabulary, sum_rule(options, vocabulary), takes="inputs_embeds")
    body = content.stages[0]["body"]
    body.insert(0, {"run": "embed", "inputs": {"input_ids": "loop.tokens"}, "outputs": {"inputs_embeds": "embeds"}})
    graphs = {"embed.onnx": embedding_graph(len(vocabulary)), **content.graphs}
    components = {"embed": {"model": "embed.onnx"}, **content.components}
    return Content(vocabulary, content.twin, graphs, components, content.stages)


def script(options: KindOptions) -> Content:
    """FX-script: fixed tokens one after another, from ``<|go|>`` or the last assistant turn on."""
    lists = (options.script, *options.scripts.values())
    texts = [token for tokens in lists for token in tokens if isinstance(token, str)]
    vocabulary = words(*options.scripts, *texts, size=options.size)
    return _decoder_content(options, vocabulary, script_rule(options, vocabulary, options.script))


def bytes_(options: KindOptions) -> Content:
    """FX-bytes: a byte-level tokenizer and a script that emits ``text`` byte by byte."""
    vocabulary = byte_level()
    return _decoder_content(options, vocabulary, script_rule(options, vocabulary, vocabulary.encode(options.text)))


def sum_rule(options: KindOptions, vocabulary: Vocabulary) -> SumRule:
    """The arithmetic of FX-kv over a vocabulary; special tokens are never answered but at ``end_at``."""
    return SumRule(
        vocabulary=len(vocabulary),
        first=vocabulary.specials,
        layers=options.layers,
        cells=options.heads * options.head_dim,
        end=vocabulary.id("</s>"),
        end_at=options.end_at,
    )


def script_rule(options: KindOptions, vocabulary: Vocabulary, main: Sequence[str | int]) -> ScriptRule:
    """The main script after ``<|go|>`` or the template's generation prompt, and those of ``options.scripts``."""

    def finished(tokens: Sequence[str | int]) -> tuple[int, ...]:
        return tuple(vocabulary.id_list(tokens if options.end is None else (*tokens, options.end)))

    lead = len(vocabulary.encode(GENERATION_PROMPT))
    scripts = {vocabulary.id("<|go|>"): (0, finished(main)), vocabulary.id("<|im_start|>"): (lead, finished(main))}
    scripts |= {vocabulary.id(start): (0, finished(tokens)) for start, tokens in options.scripts.items()}
    return ScriptRule(len(vocabulary), scripts)


def make_cache(options: KindOptions) -> Cache:
    """The cache of the wanted update kind."""
    if options.update == "scatter":
        return ScatterCache()
    if options.update == "append":
        return AppendCache(options.positions or "input")
    return InPlaceCache(options.positions or "mask")


def decode_stage(body: list[dict[str, Any]]) -> dict[str, Any]:
    """The decode loop all these packages have."""
    return {"id": "generate", "loop": "decode", "prompt": "prompt.tokens", "body": body, "logits": "logits"}


def _decoder_content(
    options: KindOptions,
    vocabulary: Vocabulary,
    rule: Rule,
    takes: Literal["input_ids", "inputs_embeds"] = "input_ids",
) -> Content:
    """One decoder component with its cache, in one decode loop."""
    geometry = Geometry(options.heads, options.head_dim, options.dtype, options.value_dtype or options.dtype)
    cache = make_cache(options)
    decoder = Decoder(rule, cache, geometry, takes, options.logits, options.peak)
    tokens = {"input_ids": "loop.tokens"} if takes == "input_ids" else {"inputs_embeds": "embeds"}
    run = {"run": "decoder", "inputs": {**tokens, **cache.bindings()}, "outputs": {"logits": "logits"}}
    state = {
        "update": cache.update,
        "past": "past_key_values.{layer}.{part}",
        "present": "present.{layer}.{part}",
    }
    return Content(
        vocabulary,
        rule,
        {"model.onnx": decoder.build()},
        {"decoder": {"model": "model.onnx", "kv": state}},
        [decode_stage([run])],
    )


KINDS: Mapping[str, Callable[[KindOptions], Content]] = {
    "kv": kv,
    "embeds": embeds,
    "script": script,
    "bytes": bytes_,
}
