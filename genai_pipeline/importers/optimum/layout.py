"""Which ONNX files of a folder play which role, and which of their precisions is taken.

File names are those that Optimum and transformers.js write: a role, and a suffix for the precision of the weights.
Only names are read here, so that the same choice can be made from the listing of a hub before anything is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from genai_pipeline.errors import ImportModelError
from genai_pipeline.problems import nearest, one_of

ONNX_FOLDERS = ("onnx/", "")  # the first that has a graph with a role is taken
FULL = "fp32"
# Suffix of a file name -> what it is called as a precision. The order is the order of preference.
_KINDS = ("fp16", "quantized", "int8", "uint8", "q4", "bnb4", "q4f16", "O1", "O2", "O3", "O4")
_SUFFIXES: Mapping[str, str] = {"": FULL, **{f"_{kind}": kind for kind in _KINDS}}

MERGED, MODEL, PLAIN, WITH_PAST = "decoder_model_merged", "model", "decoder_model", "decoder_with_past_model"
EMBED, ENCODER, VISION = "embed_tokens", "encoder_model", "vision_encoder"
_USED = (MERGED, PLAIN, WITH_PAST, MODEL, EMBED, ENCODER, VISION)
# Names of the format whose graphs make no model of a known shape: they are known so that they can be named.
_OTHERS = ("audio_encoder", "text_encoder", "text_model", "vision_model", "prepare_inputs_embeds", "speech_encoder",
           "unet", "vae_decoder", "vae_encoder")  # fmt: skip
ROLES: tuple[str, ...] = (*_USED, *_OTHERS)
_REPLACED: Mapping[str, tuple[str, ...]] = {MERGED: (PLAIN, WITH_PAST)}  # by one graph that can do both


@dataclass(frozen=True, slots=True)
class Layout:
    """The graph of each role, in one precision; ``unused`` are the other ONNX files with the reason for each."""

    graphs: Mapping[str, str]
    precision: str
    unused: Mapping[str, str]

    def has(self, *roles: str) -> bool:
        """Whether all of the roles have a graph."""
        return all(role in self.graphs for role in roles)


def role_of(name: str) -> tuple[str, str] | None:
    """Role and precision of an ONNX file, or None when its name is none of the format."""
    stem = PurePosixPath(name).name.removesuffix(".onnx")
    found = [
        (role, precision) for role in ROLES for suffix, precision in _SUFFIXES.items() if stem == f"{role}{suffix}"
    ]
    return found[0] if found else None


def find_layout(names: Iterable[str], precision: str | None = None) -> Layout | None:
    """The graphs to take from the ONNX files ``names``; None when there is none with a role.

    ``precision`` None takes the first of fp32, fp16, quantized, ... that every role has. Raises ImportModelError when
    the roles have none in common, or not the wanted one.
    """
    given = sorted(name for name in names if name.endswith(".onnx"))
    for folder in ONNX_FOLDERS:
        inside = [name for name in given if name.startswith(folder) and "/" not in name[len(folder) :]]
        known = {name: found for name in inside if (found := role_of(name)) is not None}
        if known:
            return _layout(given, known, precision)
    return None


def _layout(given: Sequence[str], known: Mapping[str, tuple[str, str]], precision: str | None) -> Layout:
    by_role: dict[str, dict[str, str]] = {}
    for name, (role, kind) in known.items():
        by_role.setdefault(role, {})[kind] = name
    replaced = {other for role in by_role for other in _REPLACED.get(role, ())} & by_role.keys()
    wanted = {role: files for role, files in by_role.items() if role not in replaced}
    chosen = _precision(wanted, precision)
    graphs = {role: files[chosen] for role, files in wanted.items()}
    unused = {name: _why_unused(known.get(name), replaced, chosen) for name in given if name not in graphs.values()}
    return Layout(graphs, chosen, unused)


def _precision(files: Mapping[str, Mapping[str, str]], precision: str | None) -> str:
    kinds = tuple(dict.fromkeys(_SUFFIXES.values()))
    common = [kind for kind in kinds if all(kind in found for found in files.values())]
    if precision is None and common:
        return common[0]
    if precision in common:
        return str(precision)
    table = "; ".join(f"{role}: {one_of(found)}" for role, found in files.items())
    if precision is None:
        raise ImportModelError(f"the graphs have no precision in common: {table}", hint="remove those of another one")
    hint = nearest(precision, common) or (f"all graphs have {one_of(common)}" if common else "")
    raise ImportModelError(f"not every graph is there in precision '{precision}': {table}", hint=hint)


def _why_unused(known: tuple[str, str] | None, replaced: set[str], chosen: str) -> str:
    if known is None:
        return "its name has no role in this format, or it lies in another folder"
    role, kind = known
    if role in replaced:
        return "the merged decoder does its work"
    return f"precision {kind}; {chosen} is taken (--precision chooses)"
