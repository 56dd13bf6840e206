"""How the parts of a model fit together: who gives what to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.importers.structure.findings import certain
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.port_families import Family, families, same_tensors


@dataclass(frozen=True, slots=True)
class ModelParts:
    """A model: a decoder with what feeds it, or encoders alone. ``leftover``: parts that nothing connects.

    ``media`` makes rows of pictures or sounds; where it makes them narrower or wider than the embeddings, ``projector``
    gives them their width. ``sources``: input of the decoder -> (encoder's output); ``given``: pattern of a past ->
    family of the encoder's outputs that it starts as.
    """

    decoder: Part | None = None
    embed: Part | None = None
    encoder: Part | None = None
    media: Part | None = None
    projector: Part | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Family] = field(default_factory=dict)
    leftover: tuple[Part, ...] = ()


def join_parts(parts: Sequence[Part]) -> ModelParts:
    """How parts fit together, as far as ports say so; what does not fit is left over, and nothing is made up."""
    decoders = [part for part in parts if part.kind == "decoder"]
    if len(decoders) != 1:
        encoders = [part for part in parts if part.kind in ("encoder", "embed")]
        alone = encoders[0] if len(parts) == 1 and encoders else None
        return ModelParts(encoder=alone, leftover=() if alone is not None else tuple(parts))
    decoder, others = decoders[0], [part for part in parts if part is not decoders[0]]
    embed = _embed_for(decoder, others)
    if embed is not None:
        decoder = _with_embeds(decoder)
    encoder, sources, given = _encoder_for(decoder, [part for part in others if part is not embed])
    media, projector = _media_for(embed, [part for part in others if part not in (embed, encoder)])
    used = (embed, encoder, media, projector)
    leftover = tuple(part for part in others if all(part is not one for one in used))
    return ModelParts(decoder, embed, encoder, media, projector, sources, given, leftover)


def _embed_for(decoder: Part, others: Iterable[Part]) -> Part | None:
    """The one graph that turns tokens into what the decoder takes in place of tokens."""
    if decoder.port_of("tokens") is not None:
        return None
    port = decoder.port_of("embeds") or decoder.port_of("rows")
    fits = [part for part in others if part.kind == "embed" and port and _feeds(part.rows[0], decoder, port)]
    return fits[0] if len(fits) == 1 else None


def _with_embeds(decoder: Part) -> Part:
    """The decoder, whose only matrix of rows is certainly the embeddings once a graph gives those."""
    port = decoder.port_of("embeds") or decoder.port_of("rows")
    assert port is not None
    return replace(decoder, inputs={**decoder.inputs, port: certain("embeds", "another graph turns tokens into it")})


def _encoder_for(decoder: Part, others: Sequence[Part]) -> tuple[Part | None, dict[str, str], dict[str, Family]]:
    """The one graph whose outputs the decoder reads, as rows or as the start of its state."""
    wanted = [name for name, finding in decoder.inputs.items() if finding.value in ("source", "rows")]
    waiting = [state.past for state in decoder.states if state.update.value == "fixed"]
    found = []
    for part in others:
        sources = {name: port.name for name in wanted if (port := _giver(part, decoder, name)) is not None}
        given = {past.pattern: family for past in waiting if (family := _start_of(past, part)) is not None}
        if sources or given:
            found.append((part, sources, given))
    return found[0] if len(found) == 1 else (None, {}, {})


def _giver(part: Part, decoder: Part, name: str) -> Port | None:
    """The output of a part that fits an input: that of its name, or the only one."""
    if name in part.facts.outputs:
        return part.facts.outputs[name]
    fits = [port for port in part.rows if _feeds(port, decoder, name)]
    return fits[0] if len(fits) == 1 else None


def _start_of(past: Family, part: Part) -> Family | None:
    """The outputs of a part that a state can start as: those that fit and share its words, or the only ones."""
    fits = [family for family in families(part.facts.outputs.values()) if same_tensors(past, family)]
    named = [family for family in fits if family.pattern == past.pattern or family.words == past.words]
    return named[0] if len(named) == 1 else fits[0] if len(fits) == 1 else None


def _media_for(embed: Part | None, others: Iterable[Part]) -> tuple[Part | None, Part | None]:
    """The graph that makes rows of something that is no text, and the one that makes them as wide as the embeddings.

    One graph may do both. What leaves a choice is left over.
    """
    if embed is None:
        return None, None
    width = (embed.rows[0].shape or ("",))[-1]
    readers = [part for part in others if part.kind == "encoder" and part.port_of("tokens") is None]
    pairs = [(one, two) for one in readers for two in readers if one is not two and projected(one, two) is not None]
    fitting = [(one, two) for one, two in pairs if row_output(two, width) is not None]
    if len(fitting) == 1:
        return fitting[0]
    fits = [part for part in readers if row_output(part, width) is not None]
    return (fits[0] if len(fits) == 1 else None), None


def row_output(part: Part, width: Dim) -> Port | None:
    """The first output with rows of that width."""
    shapes = ((port, port.shape or ()) for port in part.rows)
    return next((port for port, shape in shapes if len(shape) in (2, 3) and shape[-1] == width), None)


def projected(media: Part, projector: Part) -> Port | None:
    """The output of ``media`` that the only input of ``projector`` takes."""
    if len(projector.facts.inputs) != 1:
        return None
    (name,) = projector.facts.inputs
    return _giver(media, projector, name)


def _feeds(port: Port, decoder: Part, name: str) -> bool:
    """Whether an output fits an input: dtype, rank, width."""
    wanted = decoder.facts.inputs[name]
    if port.dtype != wanted.dtype or port.shape is None or wanted.shape is None:
        return False
    if len(port.shape) != len(wanted.shape):
        return False
    one, two = port.shape[-1], wanted.shape[-1]
    return one == two or not (isinstance(one, int) and isinstance(two, int))
