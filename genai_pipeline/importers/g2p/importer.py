"""From a checkpoint of arrays to two graphs: an encoder of a word's letters, and one step of a decoder.

A checkpoint has for each side (``enc``, ``dec``) an embedding ``SIDE_emb [symbols, e]`` and a gated recurrent unit
``SIDE_w_ih [3h, e]``, ``SIDE_w_hh [3h, h]``, ``SIDE_b_ih [3h]``, ``SIDE_b_hh [3h]`` whose gates come in the order
reset, update, new; and a head ``fc_w [symbols, h]``, ``fc_b [symbols]`` over the decoder's state.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.g2p.recurrent import Unit, write_decoder, write_encoder
from genai_pipeline.importers.graphs.matrices import Array
from genai_pipeline.importers.package_writer import new_package
from genai_pipeline.importers.progress import Progress, silent

ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"
_RANKS: Mapping[str, int] = {"emb": 2, "w_ih": 2, "w_hh": 2, "b_ih": 1, "b_hh": 1}


def import_g2p(checkpoint: Path, target: Path, *, progress: Progress = silent) -> None:
    """Write both graphs to the new folder ``target``.

    Raises ImportModelError for a checkpoint that lacks an array, has one of another shape, or no numbers in it.
    """
    arrays = _read(checkpoint)
    encoder, decoder = _unit(arrays, "enc"), _unit(arrays, "dec")
    head, bias = _array(arrays, "fc_w", 2), _array(arrays, "fc_b", 1)
    if encoder.hidden != decoder.hidden:
        raise ImportModelError(f"the encoder's state has {encoder.hidden} numbers, the decoder's {decoder.hidden}")
    _check("fc_w", head, (len(bias), decoder.hidden))
    with new_package(target) as folder:
        progress("writing the encoder", 0, 2)
        write_encoder(folder / ENCODER_FILE, encoder)
        progress("writing the decoder", 1, 2)
        write_decoder(folder / DECODER_FILE, decoder, head, bias)
        progress("writing the decoder", 2, 2)


def _read(checkpoint: Path) -> dict[str, Array]:
    try:
        with np.load(checkpoint, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ImportModelError(f"{checkpoint}: is no archive of numpy arrays: {error}") from error


def _unit(arrays: Mapping[str, Array], side: str) -> Unit:
    found = {name: _array(arrays, f"{side}_{name}", rank) for name, rank in _RANKS.items()}
    width, hidden = found["emb"].shape[1], found["w_hh"].shape[1]
    shapes = {"w_ih": (3 * hidden, width), "w_hh": (3 * hidden, hidden), "b_ih": (3 * hidden,), "b_hh": (3 * hidden,)}
    for name, shape in shapes.items():
        _check(f"{side}_{name}", found[name], shape)
    return Unit(found["emb"], found["w_ih"], found["w_hh"], found["b_ih"], found["b_hh"])


def _array(arrays: Mapping[str, Array], name: str, rank: int) -> Array:
    array = arrays.get(name)
    if array is None:
        raise ImportModelError(f"the checkpoint has no array '{name}'", hint=f"it has {', '.join(sorted(arrays))}")
    if array.dtype.kind != "f" or array.ndim != rank:
        raise ImportModelError(f"'{name}' is {array.dtype} with {array.ndim} axes; it must be floats with {rank}")
    return array.astype(np.float32)


def _check(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ImportModelError(f"'{name}' has the shape {list(array.shape)} where {list(shape)} fits the others")
