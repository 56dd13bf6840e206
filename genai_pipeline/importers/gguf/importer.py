"""From a GGUF file to a package folder: read, check everything, then write."""

from __future__ import annotations

from pathlib import Path

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.gguf.architecture import read_config, truncated
from genai_pipeline.importers.gguf.graph_builder import write_decoder
from genai_pipeline.importers.gguf.layout import check_tensors
from genai_pipeline.importers.gguf.linear import PRECISIONS, Precision
from genai_pipeline.importers.gguf.metadata_text import metadata_text
from genai_pipeline.importers.gguf.reader import check_file, open_gguf
from genai_pipeline.importers.gguf.tokenizer_export import export_tokenizer
from genai_pipeline.importers.package_writer import check_free, new_package, package_name, write_json, write_text
from genai_pipeline.importers.progress import Progress, silent


def import_gguf(
    source: Path,
    target: Path,
    *,
    precision: str = "fast",
    name: str | None = None,
    layers: int | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """Turns the GGUF file ``source`` into the package folder ``target`` and returns it.

    ``precision``: ``float32`` (dequantised), ``exact`` (stored codes, computed in float32) or ``fast`` (8-bit codes
    and integer products). ``name``: the package's, if not that of its folder. ``layers``: keep only so many, the first
    ones: a rough model that can draft for the whole one. ``progress`` gets the source bytes that are done.
    ``check`` looks at the package before it gets its name. Raises
    ``ImportModelError`` before anything is written when the file is damaged or not supported, when ``target`` is taken,
    when the name is none for a package, or when there are not so many layers.
    """
    chosen = _precision(precision)
    title = package_name(name, target)
    check_free(target)
    check_file(source)
    progress(f"reading {source.name}", 0, 0)
    file = open_gguf(source)
    config = read_config(file)
    check_tensors(file, config)
    if layers is not None:
        config = truncated(config, layers)
    tokenizer = export_tokenizer(file)
    summary = f"{file.metadata.get('general.name', title)} ({config.architecture}), {chosen.name} weights"
    if layers is not None:
        summary += f", the first {layers} layers"
    total = sum(tensor.nbytes for tensor in file.tensors.values())
    with new_package(target) as folder:
        write_text(folder / "inference_metadata.yaml", metadata_text(title, config, tokenizer, file.metadata, summary))
        write_json(folder / "tokenizer.json", tokenizer.definition)
        if tokenizer.chat_template is not None:
            write_text(folder / "chat_template.jinja", tokenizer.chat_template)
        write_decoder(
            file, config, chosen, folder / "model.onnx", lambda done, what: progress(f"writing {what}", done, total)
        )
        check(folder, str(source), ())
    return target


def _precision(name: str) -> Precision:
    if name not in PRECISIONS:
        raise ImportModelError(f"unknown precision {name!r}", hint=f"one of: {', '.join(PRECISIONS)}")
    return PRECISIONS[name]
