"""Lines of a draft for its components: graphs, and each state with its pattern, its update and what is open."""

from __future__ import annotations

from collections.abc import Iterator

from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.draft_bindings import key_text
from genai_pipeline.importers.structure.parts import Assembly, Part
from genai_pipeline.importers.structure.states import State
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.metadata.drafts import FIELD, MARK

_CACHE_RANK = 4


def todo(question: str) -> str:
    """A value that asks."""
    return flow(f"{MARK} {question}")


def component_lines(name: str, part: Part, assembly: Assembly, texts: Texts) -> Iterator[str]:
    """One entry of ``components``."""
    padded = [port for port in part.facts.inputs if part.kind == "encoder" and _is_text(part, port)]
    fills = ", ".join(f"{key_text(port)}: 0" for port in padded)
    pad = f", pad: {{{fills}}}" if len(padded) > 1 else ""
    if not part.states:
        yield f"  {name}: {{model: {flow(part.facts.file)}{pad}}}"
        return
    yield f"  {name}:"
    yield f"    model: {flow(part.facts.file)}"
    yield "    kv:"
    for state in part.states:
        yield from _state_lines(state, assembly, texts)


def _state_lines(state: State, assembly: Assembly, texts: Texts) -> Iterator[str]:
    update = state.update.value if state.update.certain else ""
    comment = f"  # {' '.join(state.update.reason.split())}" if state.update.certain else ""
    yield f"      - update: {update or todo(state.update.question)}{comment}"
    yield f"        past: {flow(state.past.pattern)}"
    given = assembly.given.get(state.past.pattern) if update == "fixed" else None
    if given is not None:
        yield f"        present: {flow(given.pattern)}"
        yield "        from: encoder"
    elif state.present is not None:
        yield f"        present: {flow(state.present.pattern)}"
    else:
        yield f"        from: {todo(f'{state.update.reason}; which graph gives it?')}"
    yield from _geometry_lines(state, texts)
    if not state.pairing.certain:
        yield f"        {FIELD}: {flow(state.pairing.question)}"


def _geometry_lines(state: State, texts: Texts) -> Iterator[str]:
    """Heads and their size where the graph leaves them open."""
    shape = state.past.shape
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
