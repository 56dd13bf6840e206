"""Lines of a draft for its components: graphs, and each state with its pattern, its update and what is open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.port_families import Family
from genai_pipeline.importers.structure.states import State
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.metadata.drafts import FIELD, MARK

_CACHE_RANK = 4


def question(text: str, *choices: str) -> str:
    """A question with what the answer could be."""
    return f"{text}: {' | '.join(choices)}" if choices else text


def asked(text: str, *choices: str) -> str:
    """The text of a value that asks."""
    return f"{MARK} {question(text, *choices)}"


def todo(text: str, *choices: str) -> str:
    """A value that asks, as YAML."""
    return flow(asked(text, *choices))


def component_lines(name: str, part: Part, joined: ModelParts, texts: Texts) -> Iterator[str]:
    """One entry of ``components``."""
    padded = [port for port in part.facts.inputs if part.kind == "encoder" and _is_text(part, port)]
    fills = ", ".join(f"{flow(port)}: 0" for port in padded)
    pad = f", pad: {{{fills}}}" if len(padded) > 1 else ""
    if not part.states:
        yield f"  {name}: {{model: {flow(part.facts.file)}{pad}}}"
        return
    yield f"  {name}:"
    yield f"    model: {flow(_model(part))}"
    if part.span:
        yield f"    span: {{first: {part.span['first']}, later: {part.span['later']}}}  # tokens of a run"
    yield "    kv:"
    for state in part.states:
        others = [name for other in part.states if other is not state for name in other.ports]
        yield from _state_lines(state, others, joined, texts)


def _model(part: Part) -> str | dict[str, str]:
    """The graph of a component, or both."""
    if part.first is None or part.later is None:
        return part.facts.file
    return {"first": part.first.file, "later": part.later.file}


def _state_lines(state: State, others: Sequence[str], joined: ModelParts, texts: Texts) -> Iterator[str]:
    update = state.update.value if state.update.certain else ""
    comment = f"  # {' '.join(state.update.reason.split())}" if state.update.certain else ""
    yield f"      - update: {update or todo(state.update.question)}{comment}"
    yield f"        past: {flow(state.past.pattern)}"
    given = joined.given.get(state.past.pattern) if update == "fixed" else None
    if given is not None:
        yield f"        present: {flow(given.pattern)}"
        yield "        from: encoder"
    elif state.present is not None:
        yield f"        present: {flow(state.present.pattern)}"
    else:
        yield f"        from: {todo(f'{state.update.reason}; which graph gives it?')}"
    if _takes_in(state.past, others):
        yield f"        parts: [{', '.join(dict.fromkeys(part for _, part in state.past.ports))}]"
    yield from _geometry_lines(state, texts)
    if not state.pairing.certain:
        yield f"        {FIELD}: {flow(state.pairing.question)}"


def _takes_in(family: Family, others: Iterable[str]) -> bool:
    """Whether the pattern of a family fits ports of other states too, so that its parts must be named."""
    pieces = {"{layer}": r"\d+", "{part}": r"\w+"}
    texts = re.split(r"(\{layer\}|\{part\})", family.pattern)
    expression = re.compile("".join(pieces.get(text, re.escape(text)) for text in texts), re.ASCII)
    return any(expression.fullmatch(name) for name in others)


def _geometry_lines(state: State, texts: Texts) -> Iterator[str]:
    """Heads and their size where the graph leaves them open."""
    shape = state.past.shape
    if state.flat is not None:
        yield f"        shape: [batch, length, {state.flat}]  # the heads lie side by side"
    if shape is None or len(shape) != _CACHE_RANK or state.update.value == "replace":
        return
    fixed = isinstance(shape[1], int) or isinstance(shape[2], int)
    for key, known, is_open in (
        ("heads", texts.heads, not fixed),
        ("head_dim", texts.head_dim, not isinstance(shape[3], int)),
    ):
        if is_open:
            yield f"        {key}: {known if known else todo(f'the graph leaves the {key} open')}"


def _is_text(part: Part, port: str) -> bool:
    return part.inputs[port].value in ("tokens", "mask", "types") if port in part.inputs else False
