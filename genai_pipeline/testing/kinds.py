"""The kinds of closed-form packages: which graphs, stages and vocabulary each consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.caches import AppendCache, Cache, Geometry, InPlaceCache, Positions, ScatterCache
from genai_pipeline.testing.graphs.cross import CrossRule
from genai_pipeline.testing.graphs.decoder import Decoder, embedding_graph
from genai_pipeline.testing.graphs.recurrent import RecurrentRule
from genai_pipeline.testing.graphs.rules import Rule, ScriptRule, SumRule
from genai_pipeline.testing.graphs.stateless import FlatRule, PositionRule, TableRule
from genai_pipeline.testing.vocabulary import GENERATION_PROMPT, Vocabulary, byte_level, words

Update = Literal["in_place", "append", "scatter"]
Scripts = Mapping[str, Sequence[str | int]]


class Twin(Protocol):
    """Knows the right tokens without any graph."""

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``."""


@dataclass(frozen=True)
class KindOptions:
    """Options of all kinds. ``KINDS`` says which kind takes which; one that a kind has no use for is refused."""

    update: Update = "in_place"
    positions: Positions | None = None  # None: what is usual for the update kind
    layers: int = 2
    heads: int = 2
    head_dim: int = 8
    dtype: str = "float32"  # of the cache
    value_dtype: str | None = None  # of its value part, if it differs
    logits: str = "float32"
    peak: float = 64.0  # the logit of the right token; others have at most half
    size: int | None = None  # vocabulary size
    end_at: int | None = None  # kv: the end token from this position on
    script: Sequence[str | int] = ("O", " P", " Q", " R")  # script: tokens, unknown texts join the vocabulary
    scripts: Scripts = field(default_factory=dict)  # script: further ones, by the token that starts them
    end: str | int | None = "</s>"  # appended to scripts; None: they end as written
    text: str = "caf\u00e9 \U0001f389!"  # bytes: what is emitted
    probabilities: Mapping[str | int, float] | None = None  # flat: of tokens; None: uniform over all but special ones
    table: Mapping[str | int, str | int] = field(default_factory=dict)  # table: next by last token; else the next id
    padded: bool = True  # recurrent: rows of one run may have different numbers of tokens
    captured: bool = False  # cross: the decoder computes the cross cache in its first run


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


def table(options: KindOptions) -> Content:
    """FX-table: the next token follows from the last one alone. No state, no positions, no mask."""
    vocabulary = words(size=options.size)
    count, first = len(vocabulary), vocabulary.specials
    following = [first + (token + 1 - first) % (count - first) for token in range(count)]
    for token, answer in options.table.items():
        following[vocabulary.id(token)] = vocabulary.id(answer)
    return _stateless_content(vocabulary, TableRule(tuple(following), options.peak, options.logits))


def pos(options: KindOptions) -> Content:
    """FX-pos: the next token depends on the last one, its position and the attention mask. No state."""
    vocabulary = words(size=options.size)
    rule = PositionRule(len(vocabulary), vocabulary.specials, options.peak, options.logits)
    return _stateless_content(vocabulary, rule)


def flat(options: KindOptions) -> Content:
    """FX-flat: one distribution, whatever comes in."""
    vocabulary = words(size=options.size)
    probabilities = [0.0] * vocabulary.specials + [1.0] * (len(vocabulary) - vocabulary.specials)
    if options.probabilities is not None:
        probabilities = [0.0] * len(vocabulary)
        for token, probability in options.probabilities.items():
            probabilities[vocabulary.id(token)] = probability
    total = sum(probabilities)
    return _stateless_content(vocabulary, FlatRule(tuple(p / total for p in probabilities), options.logits))


def recurrent(options: KindOptions) -> Content:
    """Running checksums as ``replace`` state: order and number of tokens matter, and nothing can be taken back."""
    vocabulary = words(size=options.size)
    rule = RecurrentRule(
        len(vocabulary),
        vocabulary.specials,
        options.layers,
        options.dtype,
        options.padded,
        options.peak,
        options.logits,
    )
    content = _stateless_content(vocabulary, rule)
    state = {"update": "replace", "past": "past_state.{layer}", "present": "present_state.{layer}"}
    content.components["decoder"]["kv"] = {**state, "shape": ["batch", 2]}
    return content


def cross(options: KindOptions) -> Content:
    """FX-kv with a source: the prompt goes through an encoder, decoding starts from ``<s>``, cross cache ``fixed``."""
    vocabulary = words(size=options.size)
    plain = sum_rule(options, vocabulary)
    geometry = _geometry(options)
    rule = CrossRule(**asdict(plain), start=(vocabulary.id("<s>"),), geometry=geometry, captured=options.captured)
    content = _decoder_content(options, vocabulary, rule)
    encode: dict[str, Any] = {"id": "listen", "run": "encoder", "inputs": {"input_ids": "prompt.tokens"}}
    state = {"update": "fixed", "past": "cross_key_values.{layer}.{part}", "present": "cross.{layer}.{part}"}
    loop = content.stages[0]
    if options.captured:
        encode["outputs"] = {"source_states": "source"}
        loop["body"][0]["inputs"]["source_states"] = "source"
    else:
        state["from"] = "encoder"
    loop["prompt"] = {"template": ["<s>"]}
    decoder = content.components["decoder"]
    return Content(
        vocabulary,
        rule,
        {"encoder.onnx": rule.encoder(), **content.graphs},
        {"encoder": {"model": "encoder.onnx"}, "decoder": {**decoder, "kv": [decoder["kv"], state]}},
        [encode, loop],
    )


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
    cache = make_cache(options)
    decoder = Decoder(rule, cache, _geometry(options), takes, options.logits, options.peak)
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


def _geometry(options: KindOptions) -> Geometry:
    """Shape and dtypes of the cache."""
    return Geometry(options.heads, options.head_dim, options.dtype, options.value_dtype or options.dtype)


def _stateless_content(vocabulary: Vocabulary, rule: TableRule | PositionRule | FlatRule | RecurrentRule) -> Content:
    """One decoder component, as its rule builds it, in one decode loop."""
    inputs = {"input_ids": "loop.tokens", **rule.bindings()}
    run = {"run": "decoder", "inputs": inputs, "outputs": {"logits": "logits"}}
    return Content(
        vocabulary, rule, {"model.onnx": rule.build()}, {"decoder": {"model": "model.onnx"}}, [decode_stage([run])]
    )


@dataclass(frozen=True)
class Kind:
    """A kind of package: how it is made, and the options that it has a use for."""

    make: Callable[[KindOptions], Content]
    uses: frozenset[str]

    def content(self, options: Mapping[str, Any]) -> Content:
        """Make it. Raises TypeError for an unknown option and ValueError for one without use here."""
        made = KindOptions(**options)
        if unused := sorted(set(options) - self.uses):
            raise ValueError(f"this kind has no use for {', '.join(unused)}; it takes {', '.join(sorted(self.uses))}")
        return self.make(made)


def _kind(make: Callable[[KindOptions], Content], *uses: str) -> Kind:
    return Kind(make, frozenset(uses))


_GRAPH = ("size", "peak", "logits")
_CACHE = ("update", "positions", "heads", "head_dim", "dtype", "value_dtype")
_SCRIPT = ("script", "scripts", "end")

KINDS: Mapping[str, Kind] = {
    "kv": _kind(kv, *_GRAPH, *_CACHE, "layers", "end_at"),
    "embeds": _kind(embeds, *_GRAPH, *_CACHE, "layers", "end_at"),
    "cross": _kind(cross, *_GRAPH, *_CACHE, "layers", "end_at", "captured"),
    "recurrent": _kind(recurrent, *_GRAPH, "layers", "dtype", "padded"),
    "script": _kind(script, *_GRAPH, *_CACHE, *_SCRIPT),
    "bytes": _kind(bytes_, "peak", "logits", *_CACHE, "text", "scripts", "end"),
    "table": _kind(table, *_GRAPH, "table"),
    "pos": _kind(pos, *_GRAPH),
    "flat": _kind(flat, "size", "logits", "probabilities"),
}
