"""The operations there are, by name: those built in, and those that packages on the system add.

A Python package adds operations through entry points of the group ``genai_pipeline.operations``: the entry point's name
is the operation's, and it loads an ``ops.registry.Operation``. Names that the
grammar has settled are never looked up there, so that a package means the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from genai_pipeline.errors import OperationUnusableError
from genai_pipeline.metadata.operation_spec import (
    RESULT,
    OperationInput,
    OperationOutput,
    OperationSpec,
)
from genai_pipeline.metadata.operation_tables import (
    arrays,
    numbers,
    prompt_rows,
    sounds,
    speech,
    speech_text,
    text,
    vectors,
    vision,
    writers,
)

GROUP: Final = "genai_pipeline.operations"
# in the order of docs/operations.md
TABLES: Final = (arrays, vectors, numbers, prompt_rows, text, speech_text, speech, sounds, vision, writers)
BUILT_IN: Final[Mapping[str, OperationSpec]] = {name: spec for table in TABLES for name, spec in table.SPECS.items()}
_SETTLED: Final = (
    # image, audio, tensor and text programs
    "decode resize crop pad tile patchify rescale normalize layout mono resample window log_mel standardize clip "
    "split_text phonemes map_ids",
    # shape
    "concat stack split slice take reshape transpose pad sum affine fill repeat_rows last_rows coalesce",
    # vectors
    "argmax top_k softmax sigmoid pool normalize similarity truncate",
    # masks, positions and prompt rows
    "mask attention_mask grid_positions position_mask splice placed arrange_tiles",
    # text, and choices in a body
    "tokenize detokenize render join words spans pick_spans parse_regions extract",
    "sample choose_among unmask last_tokens delay undelay",
    # speech and vision
    "ctc_decode speech_segments align_words stitch transcript_times",
    "boxes_from_map crop_quads rotate_if detections restore_size",
    # diffusion: steps and schedules
    "noise schedule_start schedule_scale schedule_step gaussian unpatchify",
    "euler euler_ancestral ddim dpmpp_2m lcm flow_euler",
    # writers
    "png jpeg wav srt vtt json npy",
)
SETTLED: Final = frozenset(" ".join(_SETTLED).split()) | frozenset(BUILT_IN)  # also what nothing runs yet


class _Operations(Mapping[str, OperationSpec]):
    """Every operation that can be described. A name that is only settled has no spec, but is ``in`` it."""

    def __getitem__(self, name: str) -> OperationSpec:
        """The declaration of an operation; KeyError without one, OperationUnusableError for a broken entry point."""
        if name in SETTLED:
            return BUILT_IN[name]
        spec: OperationSpec = load_added(name).spec
        return spec

    def __contains__(self, name: object) -> bool:
        return name in SETTLED or name in _added()

    def __iter__(self) -> Iterator[str]:
        yield from sorted(SETTLED)
        yield from _added()

    def __len__(self) -> int:
        return len(SETTLED) + len(_added())


OPERATIONS: Final[Mapping[str, OperationSpec]] = _Operations()


def known_operation(name: str) -> OperationSpec | None:
    """The declaration of an operation; None where there is none, or none that can be used."""
    try:
        return OPERATIONS.get(name)
    except OperationUnusableError:
        return None


def load_added(name: str) -> Any:
    """The object behind an operation's entry point. Raises KeyError without one, OperationUnusableError for a fault."""
    points = _added()[name]
    makers = sorted({point.dist.name if point.dist else "?" for point in points})
    if len(makers) > 1:
        hint = "uninstall all but one of them"
        raise OperationUnusableError(f"the operation '{name}' is added by {' and '.join(makers)}", hint=hint)
    hint = f"reinstall or remove '{makers[0]}'"
    try:
        found = points[0].load()
    except Exception as error:  # anything can happen in somebody else's module
        text = f"the operation '{name}' of '{makers[0]}' cannot be loaded: {type(error).__name__}: {error}"
        raise OperationUnusableError(text, hint=hint) from error
    spec = getattr(found, "spec", None)
    if not isinstance(spec, OperationSpec) or spec.name != name or not callable(getattr(found, "run", None)):
        text = f"the operation '{name}' of '{makers[0]}' is no operation of that name: {points[0].value}"
        raise OperationUnusableError(text, hint="the entry point names an Operation(spec, function)")
    return found


@cache
def _added() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Entry points by name, those of settled names left out; read once."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in SETTLED:
            found[point.name] = (*found.get(point.name, ()), point)
    return dict(sorted(found.items()))


__all__ = [
    "BUILT_IN",
    "GROUP",
    "OPERATIONS",
    "RESULT",
    "SETTLED",
    "TABLES",
    "OperationInput",
    "OperationOutput",
    "OperationSpec",
    "known_operation",
    "load_added",
]
