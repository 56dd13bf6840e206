"""The validation layer "tokenizer and template": every declared tokenizer loads, every token and template is there.

Files that are missing or outside the package are reported by the layer that checks paths, and kinds of tokenizer that
cannot be loaded yet by the one that checks capabilities, so nothing is reported twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from genai_pipeline.errors import PackagePathError
from genai_pipeline.graph.uses import below, stage_uses
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.expressions import TokensLiteral, walk
from genai_pipeline.metadata.model import DecodeSpec, GenerationSpec, PackageSpec, StageSpec, TokenizerSpec
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.preprocess.chat import read_chat_template
from genai_pipeline.preprocess.input_checks import check_inputs
from genai_pipeline.preprocess.package_texts import placeholder_tokens
from genai_pipeline.preprocess.token_template import check_template
from genai_pipeline.preprocess.tokenizer import LOADABLE, Tokenizer, read_tokenizer
from genai_pipeline.problems import Problems


def check_text(spec: PackageSpec, vocab_sizes: Mapping[str, int], problems: Problems) -> dict[str, Tokenizer]:
    """Check tokenizers and templates; ``vocab_sizes``: size of the logits' last axis by id of the decode stage.

    Gives the tokenizers that loaded, by name, so that they need not be loaded again.
    """
    tokenizers = {name: _check_tokenizer(spec, declared, problems) for name, declared in spec.tokenizers.items()}
    for stage in _decode_stages(spec.stages):
        assert stage.decode is not None
        tokenizer = tokenizers.get(stage.decode.tokenizer or DEFAULT_TOKENIZER)
        if tokenizer is not None:
            _check_loop_tokens(stage, tokenizer, problems)
            place = below(stage.decode.at, "prompt")
            pieces = [piece.text for piece in stage.decode.prompt_template or ()]
            check_template(pieces, tokenizer, spec.parameters, place, problems)
            _check_default_stops(stage.decode.generation, tokenizer, problems)
            _check_default_stops(spec.generation, tokenizer, problems)
            _check_vocabulary(stage, tokenizer, vocab_sizes.get(stage.id), problems)
    _check_written_tokens(spec.stages, tokenizers, None, problems)
    loaded = {name: tokenizer for name, tokenizer in tokenizers.items() if tokenizer is not None}
    _check_reasoning_end(spec, loaded, problems)
    check_inputs(spec, loaded, problems)
    return loaded


def _check_tokenizer(spec: PackageSpec, declared: TokenizerSpec, problems: Problems) -> Tokenizer | None:
    if declared.kind not in LOADABLE or not _is_there(spec, declared.file):
        return None
    placeholders = placeholder_tokens(spec, declared.name)
    tokenizer = read_tokenizer(spec.root, declared, problems, placeholders.values())
    if tokenizer is not None and (declared.chat_template is None or _is_there(spec, declared.chat_template)):
        read_chat_template(spec.root, declared, tokenizer, problems, placeholders)
    if tokenizer is not None:
        _check_infill(declared, tokenizer, problems)
    return tokenizer


def _check_infill(declared: TokenizerSpec, tokenizer: Tokenizer, problems: Problems) -> None:
    """Tokens of infill prompts: each must come out as one token where its text is written into a prompt."""
    infill = declared.infill
    if infill is None:
        return
    for field, token in (("prefix", infill.prefix), ("suffix", infill.suffix), ("middle", infill.middle)):
        at = replace(infill.at, path=f"{infill.at.path}.{field}")
        found = tokenizer.vocabulary.resolve(f"infill.{field}", token, at, problems)
        if found is not None and tokenizer.encode_text(tokenizer.id_to_token(found) or "", True) != (found,):
            message = f"infill.{field}: the text of {token!r} in a prompt does not become this token"
            problems.error(at, "tokenizer.infill", message, "name one of the tokenizer's added tokens")


def _check_reasoning_end(spec: PackageSpec, tokenizers: Mapping[str, Tokenizer], problems: Problems) -> None:
    """A token that ends the whole generation cannot end its reasoning."""
    close = (spec.reasoning or {}).get("close", "")
    if any(tokenizer.token_to_id(close) in tokenizer.end_ids for tokenizer in tokenizers.values()):
        at = replace(spec.at, path="reasoning.close")
        message = f"reasoning ends with {close!r}, which is a token that ends the whole generation"
        problems.error(at, "reasoning.close", message, "name the text between reasoning and answer")


def _is_there(spec: PackageSpec, file: str) -> bool:
    try:
        resolve_inside(spec.root, file)
    except PackagePathError:
        return False
    return True


def _decode_stages(stages: Sequence[StageSpec]) -> Iterator[StageSpec]:
    """Decode loops at any depth."""
    for stage in stages:
        if stage.decode is not None:
            yield stage
        yield from _decode_stages(stage.body)


def _check_loop_tokens(stage: StageSpec, tokenizer: Tokenizer, problems: Problems) -> None:
    """Tokens that a loop suppresses or stops at."""
    decode = stage.decode
    assert decode is not None
    stops = decode.stop.tokens if decode.stop is not None else ()
    named = (("suppress", decode.suppress), ("begin_suppress", decode.begin_suppress), ("stop.tokens", stops))
    for field, tokens in named:
        for index, token in enumerate(tokens):
            at = replace(stage.at, path=f"{stage.at.path}.{field}[{index}]")
            tokenizer.vocabulary.resolve(field, token, at, problems)
    _check_times(decode, tokenizer, problems)


def _check_times(decode: DecodeSpec, tokenizer: Tokenizer, problems: Problems) -> None:
    """Tokens that mark times: the first, the latest that may begin an answer, the last, in this order."""
    times = decode.times
    if times is None:
        return
    fields = {"first": times.first, "latest_start": times.latest_start, "last": times.last}
    found = {
        field: tokenizer.vocabulary.resolve(f"times.{field}", token, below(times.at, field), problems)
        for field, token in fields.items()
        if token is not None
    }
    for (field, token), (later, other) in pairwise(found.items()):
        if token is not None and other is not None and token > other:
            message = f"times.{later} is token {other}, before {field}, which is token {token}"
            problems.error(below(times.at, later), "tokenizer.times", message, "marks are in the order of their ids")


def _check_written_tokens(
    stages: Sequence[StageSpec], tokenizers: Mapping[str, Tokenizer | None], name: str | None, problems: Problems
) -> None:
    """Tokens written out where a value is read, with the tokenizer of the loop around them."""
    for stage in stages:
        own = (stage.decode.tokenizer if stage.decode is not None else None) or name
        tokenizer = tokenizers.get(own or DEFAULT_TOKENIZER) or next(iter(tokenizers.values()), None)
        for use in stage_uses(stage):
            for part in walk(use.expr):
                for token in part.tokens if isinstance(part, TokensLiteral) else ():
                    if tokenizer is not None:
                        tokenizer.vocabulary.resolve(use.port, token, use.at, problems)
                    elif not tokenizers and isinstance(token, str):
                        message = f"{token!r} is a token by its text, and the package has no tokenizer"
                        problems.error(use.at, "tokenizer.token_unknown", message, "declare tokenizer:")
        _check_written_tokens(stage.body, tokenizers, own, problems)


def _check_default_stops(generation: GenerationSpec | None, tokenizer: Tokenizer, problems: Problems) -> None:
    """Tokens at which answers end when the request is silent."""
    field = "stop_token_ids"
    for index, token in enumerate(generation.defaults.get(field, ()) if generation is not None else ()):
        assert generation is not None
        at = replace(generation.at, path=f"{generation.at.path}.defaults.{field}[{index}]")
        tokenizer.vocabulary.resolve(field, token, at, problems)


def _check_vocabulary(stage: StageSpec, tokenizer: Tokenizer, size: int | None, problems: Problems) -> None:
    if size is not None and size <= tokenizer.highest_id:
        problems.error(
            replace(stage.at, path=f"{stage.at.path}.logits"),
            "tokenizer.vocabulary",
            f"the logits of '{stage.id}' have {size} columns, but the tokenizer's ids go up to {tokenizer.highest_id}",
            "is this the tokenizer of this model?",
        )
