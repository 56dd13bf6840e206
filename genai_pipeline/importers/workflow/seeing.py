"""Vision and language: an eye, a graph that mixes its rows into the tokens' embeddings, a decoder of embeddings.

The mixer is given the prompt without the token of pictures (``mixers``), and ``splice`` puts the rows in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.mixers import WORDS, row_changes, stages_without_slots
from genai_pipeline.importers.picture_rows import said_rows
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.decode_stage import decode_stage
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.draft_bindings import loop_bindings
from genai_pipeline.importers.structure.draft_parts import component_lines
from genai_pipeline.importers.structure.findings import certain
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import Texts, token_texts
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.eyes import FEATURES, Eye, read_eye
from genai_pipeline.metadata.yaml_reader import read_text

COMMENT: Final = "Imported from an inference-metadata document: see each picture, then write the answer."
_MOST: Final = 8  # pictures of a request
_TOKEN_KEYS: Final = ("image_placeholder_token_id", "image_token_id", "image_token_index")
_HINT: Final = "write the package by hand: docs/metadata.md"


@dataclass(frozen=True, slots=True)
class Sight:
    """The three networks by component, and the ports between them: the eye's output, the mixer's two inputs."""

    eye: str
    mixer: str
    decoder: str
    rows: str
    tokens: str
    places: str


def find_sight(parts: Mapping[str, Part]) -> Sight | None:
    """The networks of a vision-language model, when that is what they are, each exactly once."""
    decoders = [name for name, part in parts.items() if part.kind == "decoder" and part.port_of("tokens") is None]
    mixers = [(name, *ports) for name, part in parts.items() if (ports := _mixes(part)) is not None]
    if len(parts) != 3 or len(decoders) != 1 or len(mixers) != 1:
        return None
    ((mixer, tokens, places),) = mixers
    eye = next(name for name in parts if name not in (decoders[0], mixer))
    rows = [port.name for port in parts[eye].rows if (port.shape or ("",))[-1] == _width(parts[mixer], places)]
    sees = any(port.dtype.startswith("float") for port in parts[eye].facts.inputs.values())
    if len(rows) != 1 or not sees or _embeds(parts[decoders[0]]) is None:
        return None
    return Sight(eye, mixer, decoders[0], rows[0], tokens, places)


def sight_edges(sight: Sight, parts: Mapping[str, Part]) -> Iterator[tuple[str, str]]:
    """The edges between the networks, as the document would write them."""
    yield f"{sight.eye}.{sight.rows}", f"{sight.mixer}.{sight.places}"
    (mixed,) = parts[sight.mixer].facts.outputs
    yield f"{sight.mixer}.{mixed}", f"{sight.decoder}.{_embeds(parts[sight.decoder])}"


def seeing_fields(
    folder: SourceFolder,
    document: Document,
    parts: Mapping[str, Part],
    sight: Sight,
    texts: Texts,
    report: ImportReport,
) -> dict[str, Any]:
    """The metadata of a vision-language model. What the answer depends on and nothing says is refused."""
    mixer = parts[sight.mixer]
    _check_mixer(folder, mixer, sight, report)
    eye = read_eye(folder, document, parts[sight.eye], sight.rows, report)
    token, text = _slot_token(folder, document, report)
    shifted = stages_without_slots({"images": token})
    (mixed,) = mixer.facts.outputs
    embed = {"run": sight.mixer, "inputs": {sight.tokens: WORDS, sight.places: "blank"}, "outputs": {mixed: "plain"}}
    spliced = {"into": "plain", "features": FEATURES, "at": "images.positions"}
    splice = {"op": "splice", "inputs": spliced, "outputs": {"result": "embeds"}}
    component, run = _decoder(parts[sight.decoder], sight, texts)
    blank = {"id": "blank", "op": "fill", "with": _blank(mixer, sight, report), "outputs": {"result": "blank"}}
    placeholder = {"token": text, "count": _count(folder, eye, report)}
    pictures = {"modality": "image", "program": "picture", "placeholder": placeholder, "max_items": _MOST}
    return {
        "inputs": {"prompt": {"modality": "text"}, "images": {**pictures, "required": False}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": _tokenizer(texts, report),
        "preprocess": {"picture": eye.steps},
        "components": {
            sight.eye: eye.component(),
            sight.mixer: {"model": mixer.facts.file},
            sight.decoder: component,
        },
        "stages": [
            eye.stage(sight.eye),
            blank,
            decode_stage([*shifted, embed, splice, run]),
        ],
        "limits": {"context_length": _context(texts, report)},
    }


def _mixes(part: Part) -> tuple[str, str] | None:
    """The inputs of a graph that takes tokens and rows and gives embeddings: for the tokens, and for the rows."""
    tokens = part.port_of("tokens")
    others = [port for name, port in part.facts.inputs.items() if name != tokens]
    if tokens is None or part.logits is not None or part.states or len(others) != 1 or len(part.facts.outputs) != 1:
        return None
    (output,) = part.facts.outputs.values()
    fits = others[0].dtype == output.dtype and len(output.shape or ()) == 3 and len(others[0].shape or ()) == 2
    return (tokens, others[0].name) if fits else None


def _width(part: Part, port: str) -> object:
    return (part.facts.inputs[port].shape or ("",))[-1]


def _embeds(decoder: Part) -> str | None:
    return decoder.port_of("embeds") or decoder.port_of("rows")


def _check_mixer(folder: SourceFolder, mixer: Part, sight: Sight, report: ImportReport) -> None:
    """Refuse a mixer that does more to the rows than to put them in places: ``splice`` does no more."""
    changes = row_changes(folder, mixer.facts.file, sight.places)
    if changes:
        why = f"changes the rows that it mixes in ({', '.join(changes)}); packages put them in places as they are"
        report.refused(DOCUMENT, f"components.{sight.mixer}", why, _HINT)


def _slot_token(folder: SourceFolder, document: Document, report: ImportReport) -> tuple[int, str]:
    """The token that stands for a row of a picture, by id and text."""
    configs = (document.root.mapping("pipeline").mapping("vision"), folder.optional_json("config.json"))
    for config in configs:
        key = next((key for key in _TOKEN_KEYS if key in config), None)
        if key is None:
            continue
        number = config.integer(key)
        text = token_texts(folder).get(number)
        if text is None:
            report.refused(config.file, config.at(key), f"{number} is none of the tokenizer's tokens", _HINT)
        report.mapped(config.file, config.at(key), "inputs.images.placeholder.token")
        return number, text or "<image>"
    why = "missing: which token stands for a picture is not said"
    report.refused(DOCUMENT, "pipeline.vision.image_token_id", why, "or image_token_id in config.json beside it")
    return 1, "<image>"


def _count(folder: SourceFolder, eye: Eye, report: ImportReport) -> int | str:
    """Rows of a picture: what the graph fixes, what the program counts, or what configs say."""
    if eye.fixed_rows is not None:
        return eye.fixed_rows
    if eye.is_patched:
        return "images.tokens"
    said = said_rows(folder.optional_json("config.json"), folder.optional_json("processor_config.json"), report)
    if said is None:
        report.refused(DOCUMENT, "pipeline.vision", "how many rows a picture becomes is not said", _HINT)
    return said or 1


def _decoder(part: Part, sight: Sight, texts: Texts) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component, its state as a draft has it, and its run in the loop."""
    embeds = _embeds(part)
    assert embeds is not None
    assert part.logits is not None
    known = Part(part.facts, part.kind, part.states, {**part.inputs, embeds: certain("embeds", "mixed")}, part.logits)
    text = "\n".join(["components:", *component_lines(sight.decoder, known, ModelParts(decoder=known), texts), ""])
    root, faults = read_text(text, DOCUMENT)
    assert root is not None, faults
    component: dict[str, Any] = ConfigNode(DOCUMENT, "", root.plain()).mapping("components").need(sight.decoder).value
    inputs = loop_bindings(known, {}, False)
    return component, {"run": sight.decoder, "inputs": inputs, "outputs": {part.logits.value: "logits"}}


def _blank(mixer: Part, sight: Sight, report: ImportReport) -> dict[str, Any]:
    """One row of zeros for a mixer that is given no token to put rows at."""
    port = mixer.facts.inputs[sight.places]
    width = _width(mixer, sight.places)
    if not isinstance(width, int):
        report.refused(mixer.facts.file, sight.places, "the width of a row is left open", _HINT)
    dtype = {} if port.dtype == "float32" else {"dtype": port.dtype}
    return {"shape": [1, width if isinstance(width, int) else 1], **dtype}


def _tokenizer(texts: Texts, report: ImportReport) -> dict[str, Any]:
    if texts.tokenizer is None:
        report.refused(DOCUMENT, "tokenizer", "there is no tokenizer.json", "put the model's tokenizer into the folder")
    elif not texts.eos and not texts.ends_known:
        report.refused(DOCUMENT, "tokenizer.eos", "which tokens end an answer is not said", "give them with --eos")
    template = {} if texts.chat_template is None else {"chat_template": texts.chat_template}
    return {"file": texts.tokenizer or "", **template, **({"eos": list(texts.eos)} if texts.eos else {})}


def _context(texts: Texts, report: ImportReport) -> int:
    if texts.context is None:
        report.refused(DOCUMENT, "model.max_sequence_length", "missing: how many tokens fit is not said", _HINT)
    return texts.context or 1
