"""From a folder with ``genai_config.json`` to a package: read all of it, decide about every key, then write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder_package import decoder_package
from genai_pipeline.importers.genai_config.keys import refuse_parts, report_other_keys
from genai_pipeline.importers.genai_config.package_parts import PackageParts, with_ends
from genai_pipeline.importers.genai_config.seeing_package import seeing_package, sees_or_hears
from genai_pipeline.importers.genai_config.speech_package import encoder_decoder_package
from genai_pipeline.importers.package_writer import check_free, new_package, package_name, write_text
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

CONFIG: Final = "genai_config.json"


def import_genai_config(
    source: Path,
    target: Path,
    *,
    name: str | None = None,
    eos: Sequence[str] = (),
    progress: Progress = silent,
    check: Check = unchecked,
) -> ImportReport:
    """Turns the folder ``source`` into the package folder ``target``; says what became of every key.

    ``eos``: tokens that end an answer, by text or id, in place of those that the folder's files say. ``check`` looks at
    the package before it gets its name.
    Files are linked, not copied, where the file system can. Raises ImportRefusedError listing every key that changes
    the answer and cannot be mapped, and ImportModelError for what is missing or damaged; nothing is written then.
    """
    title = package_name(name, target)
    check_free(target)
    folder = SourceFolder(source)
    folder.need(CONFIG, "it is what a folder made for onnxruntime-genai has")
    progress(f"reading {CONFIG}", 0, 0)
    config = folder.json(CONFIG)
    report = ImportReport()
    config = with_ends(folder, config, eos, report)
    refuse_parts(config, report)
    if "filename" not in config.need("model").mapping("decoder"):
        report.check(str(source))  # a decoder in pieces: there is nothing to look at
    package = _shape(config.need("model"))(folder, config, title, report)
    report_other_keys(config, report)
    report.check(str(source))
    files = [name for graph in package.graphs for name in (graph, *folder.weights(graph))]
    _report_other_files(folder, (CONFIG, *files), report)
    with new_package(target) as scratch:
        write_text(scratch / "inference_metadata.yaml", package.text)
        package.tokenizer.write(folder, scratch)
        for graph in package.graphs:
            progress(f"linking {graph}", 0, 0)
            folder.link_graph(graph, scratch)
        for name, content in package.files.items():
            (scratch / name).write_bytes(content)
        report.write(scratch)
        check(scratch, str(source), report.rows)
    return report


def _shape(model: ConfigNode) -> Callable[[SourceFolder, ConfigNode, str, ImportReport], PackageParts]:
    """What makes the package, by the parts that are there."""
    if "encoder" in model:
        return encoder_decoder_package
    return seeing_package if sees_or_hears(model) else decoder_package


def _report_other_files(folder: SourceFolder, used: Iterable[str], report: ImportReport) -> None:
    """Every file beside the config is linked, read (then it has rows), or left out."""
    known = {*used, *(row.file for row in report.rows)}
    for name in folder.top_files():
        if name not in known:
            report.dropped(name, "", "nothing in the package needs it")
