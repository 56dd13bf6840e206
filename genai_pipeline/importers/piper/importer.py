"""From a Piper voice to a package's files: acoustic and vocoder graphs, and the ids of its phonemes.

A voice is one graph, ``input [b, n]`` (phoneme ids), ``input_lengths [b]``, ``scales [3]`` (noise, length, noise of the
durations) -> ``output [b, 1, 1, samples]``. It is cut where the vocoder reads the latent frames, so that the vocoder
can run over a few frames at a time. Its JSON file says which ids a phoneme has; words come in ARPAbet here, so the ids
of each of its symbols are written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import GraphFileError, ImportModelError
from genai_pipeline.graph.external_data import load_model
from genai_pipeline.graph.onnx_file import save_model
from genai_pipeline.graph.surgery import Cut, extract_part, value_behind, value_read_with
from genai_pipeline.importers.package_writer import new_package, write_json
from genai_pipeline.importers.piper.arpabet import spellings
from genai_pipeline.importers.progress import Progress, silent

if TYPE_CHECKING:
    import onnx_ir as ir

IDS_FILE = "phoneme_ids.json"
_MARKS = (" ", "!", "'", ",", "-", ".", ":", ";", "?")
_FRAME = ("_", "^", "$")  # between ids, in front, behind
_INPUTS = ["input", "input_lengths", "scales"]
_FIRST_VOCODER_WEIGHT = "dec.conv_pre.weight"


def import_piper(voice: Path, config: Path, target: Path, *, progress: Progress = silent) -> None:
    """Write the graphs and the ids to the new folder ``target``.

    Raises ImportModelError for a voice that is not of this form: several speakers, other phonemes, another graph.
    """
    ids = phoneme_ids(_read_config(config))
    try:
        model = load_model(voice, voice.parent)
        acoustic, vocoder = split_voice(model)
    except GraphFileError as error:
        raise ImportModelError(f"{voice.name}: {error.message}", hint=error.hint) from error
    with new_package(target) as folder:
        for step, (name, part) in enumerate((("acoustic", acoustic), ("vocoder", vocoder))):
            progress(f"writing the {name} model", step, 2)
            save_model(part, folder, f"{name}.onnx", f"{name}.onnx.data")
        write_json(folder / IDS_FILE, ids)
        progress("writing the vocoder model", 2, 2)


def split_voice(model: ir.Model) -> tuple[ir.Model, ir.Model]:
    """The part up to the latent frames [b, channels, frames], and the one from there to the wave [b, 1, samples].

    Raises ImportModelError when the graph is no such voice.
    """
    frames = value_read_with(model, _FIRST_VOCODER_WEIGHT)
    wave = value_behind(model, "output", frozenset({"Unsqueeze"}))
    if frames is None or wave is None or [value.name for value in model.graph.inputs[:3]] != _INPUTS:
        raise ImportModelError("the graph is no voice of one speaker: it has other inputs, outputs or layers")
    weight = model.graph.initializers[_FIRST_VOCODER_WEIGHT].const_value
    assert weight is not None
    latent = Cut(frames, "latent", "float32", ("batch", weight.shape.numpy()[1], "frames"))
    acoustic_inputs = (
        Cut("input", "phonemes", "int64", ("batch", "phonemes")),
        Cut("input_lengths", "lengths", "int64", ("batch",)),
        Cut("scales", "scales", "float32", (3,)),
    )
    acoustic = extract_part(model, "acoustic", acoustic_inputs, (latent,))
    return acoustic, extract_part(model, "vocoder", (latent,), (Cut(wave, "wave", "float32", ("batch", 1, "samples")),))


def phoneme_ids(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """The ids of every ARPAbet symbol, mark, and symbol of the frame. Raises ImportModelError where one has none."""
    speakers, kind = config.get("num_speakers"), config.get("phoneme_type", "espeak")
    if speakers != 1 or kind != "espeak":
        raise ImportModelError(
            f"the voice has {speakers} speakers and phonemes of the kind '{kind}', not 1 and 'espeak'"
        )
    known = config["phoneme_id_map"]
    lacking = {part for _, text in spellings() for part in text if part not in known}
    if lacking or any(symbol not in known for symbol in _FRAME):
        raise ImportModelError(f"the voice has no ids for {', '.join(sorted(lacking)) or 'begin, end and padding'}")
    found = {name: [number for part in text for number in known[part]] for name, text in spellings()}
    return {**found, **{mark: known[mark] for mark in (*_MARKS, *_FRAME) if mark in known}}


def _read_config(config: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(config.read_bytes())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ImportModelError(f"{config.name} is not JSON: {error}") from error
    table = found.get("phoneme_id_map") if isinstance(found, dict) else None
    if not isinstance(table, dict) or not all(isinstance(ids, list) for ids in table.values()):
        raise ImportModelError(f"{config.name} has no 'phoneme_id_map' from phonemes to lists of ids")
    return dict(found)
