"""From a folder with a CTranslate2 Whisper model to a package folder: read, check everything, then write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.ctranslate2.config import read_config
from genai_pipeline.importers.ctranslate2.decoder import write_decoder
from genai_pipeline.importers.ctranslate2.encoder import write_encoder
from genai_pipeline.importers.ctranslate2.layers import PRECISIONS
from genai_pipeline.importers.ctranslate2.metadata_text import metadata_text
from genai_pipeline.importers.ctranslate2.reader import open_model
from genai_pipeline.importers.ctranslate2.tokenizer_export import find_file, read_tokenizer
from genai_pipeline.importers.package_writer import check_free, new_package, package_name, write_json, write_text
from genai_pipeline.importers.progress import Progress, silent

MODEL_FILE = "model.bin"


def import_ctranslate2(
    source: Path,
    target: Path,
    *,
    precision: str = "float32",
    name: str | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """Turns the model in the folder ``source`` into the package folder ``target`` and returns it.

    See ``import_files``. ``name``: the package's, if not that of the folder ``target``.
    """
    if not source.is_dir():
        raise ImportModelError(f"{source}: is no folder", hint=f"give the folder with {MODEL_FILE}")
    files = {path.name: path for path in sorted(source.iterdir()) if path.is_file()}
    title = package_name(name, target)
    return import_files(files, target, precision=precision, name=title, progress=progress, check=check)


def import_files(
    files: Mapping[str, Path],
    target: Path,
    *,
    precision: str,
    name: str,
    progress: Progress,
    check: Check = unchecked,
) -> Path:
    """Turns a model's files, by their usual names, into the package folder ``target`` and returns it.

    They are model.bin, config.json, tokenizer.json and vocabulary.txt or .json. ``precision``: ``float32``, or ``fast``
    (the decoder in 8-bit codes and integer products; the encoder, whose runs are long, would gain nothing by it).
    ``check`` looks at the package before it gets its name.
    Raises ImportModelError before anything is written when a file is missing, damaged or not supported, or when
    ``target`` is taken.
    """
    if precision not in PRECISIONS:
        raise ImportModelError(f"unknown precision {precision!r}", hint=f"one of: {', '.join(PRECISIONS)}")
    check_free(target)
    progress(f"reading {MODEL_FILE}", 0, 0)
    model = find_file(files, MODEL_FILE)
    file = open_model(model)
    config = read_config(file)
    tokenizer = read_tokenizer(files, config)
    graphs = ((write_encoder, "encoder", PRECISIONS["float32"]), (write_decoder, "decoder", PRECISIONS[precision]))
    with new_package(target) as folder:
        summary = f"Whisper speech recognition, {precision} weights"
        write_text(folder / "inference_metadata.yaml", metadata_text(name, config, tokenizer, summary))
        write_json(folder / "tokenizer.json", tokenizer.definition)
        for index, (write, part, chosen) in enumerate(graphs):
            progress(f"writing {part}", index, len(graphs))
            write(file, config, chosen, folder / f"{part}.onnx")
        progress("writing done", len(graphs), len(graphs))
        check(folder, str(model.parent), ())
    return target
