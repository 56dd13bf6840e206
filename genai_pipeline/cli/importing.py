"""``genai-pipeline import KIND SRC DST``: a model of another format becomes a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from genai_pipeline.cli.commands import HelpfulGroup
from genai_pipeline.cli.output import Output, write

if TYPE_CHECKING:
    from genai_pipeline.importers.report import ImportReport

Eos = Annotated[
    list[str] | None,
    typer.Option(help="A token that ends an answer, by text or id, repeatable (default: as files say)."),
]


def register(app: typer.Typer) -> None:
    """Add the group with one command per kind."""
    group = typer.Typer(cls=HelpfulGroup, help="Turn a model of another format into a package.")
    group.command("gguf")(import_gguf)
    group.command("ctranslate2")(import_ctranslate2)
    group.command("genai-config")(import_genai_config)
    group.command("optimum")(import_optimum)
    group.command("workflow")(import_workflow)
    app.add_typer(group, name="import")


def import_gguf(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The GGUF file.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The package folder to create.")],
    precision: Annotated[
        Literal["fast", "exact", "float32"],
        typer.Option(help="float32 repeats the reference; exact keeps the quantised values; fast is quickest."),
    ] = "fast",
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
    layers: Annotated[
        int | None, typer.Option(help="Keep only so many layers, the first ones: a rough model to draft with.")
    ] = None,
) -> None:
    """Make a package of a GGUF file: graph, weights, tokenizer, chat template and metadata."""
    from genai_pipeline import importing

    output: Output = ctx.obj
    with output.progress() as progress:
        importing.import_gguf(source, target, precision=precision, name=name, layers=layers, progress=progress)
    _made(output, target, precision)


def import_ctranslate2(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder with model.bin and its tokenizer.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The package folder to create.")],
    precision: Annotated[
        Literal["float32", "fast"], typer.Option(help="fast keeps the decoder's weights in 8 bits.")
    ] = "float32",
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
) -> None:
    """Make a package of a CTranslate2 Whisper model: graphs, weights, tokenizer and metadata."""
    from genai_pipeline import importing

    output: Output = ctx.obj
    with output.progress() as progress:
        importing.import_ctranslate2(source, target, precision=precision, name=name, progress=progress)
    _made(output, target, precision)


def import_genai_config(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder with genai_config.json.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The package folder to create.")],
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
    eos: Eos = None,
) -> None:
    """Make a package of a folder made for onnxruntime-genai: the same files, linked, with metadata."""
    from genai_pipeline import importing

    output: Output = ctx.obj
    with output.progress() as progress:
        report = importing.import_genai_config(source, target, name=name, eos=eos or (), progress=progress)
    _tell(output, report, target)


def import_optimum(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder with config.json and onnx/.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The package folder to create.")],
    precision: Annotated[
        str | None, typer.Option(help="Which of the graphs: fp32, fp16, quantized, int8, uint8, q4, q4f16 or bnb4.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
) -> None:
    """Make a package of a folder laid out by Optimum or transformers.js: its files, linked, with metadata."""
    from genai_pipeline import importing

    output: Output = ctx.obj
    with output.progress() as progress:
        report = importing.import_optimum(source, target, precision=precision, name=name, progress=progress)
    _tell(output, report, target)


def import_workflow(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder with an inference-metadata document.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The package folder to create.")],
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
    eos: Eos = None,
) -> None:
    """Make a package of a folder with a portable inference-metadata document (pipeline.workflow, or model.io)."""
    from genai_pipeline import importing

    output: Output = ctx.obj
    with output.progress() as progress:
        report = importing.import_workflow(source, target, name=name, eos=eos or (), progress=progress)
    _tell(output, report, target)


def _tell(output: Output, report: ImportReport, target: Path) -> None:
    """What became of every key as notes, then the folder."""
    output.note(report.text().rstrip())
    _made(output, target)


def _made(output: Output, folder: Path, precision: str = "") -> None:
    """A note with the precision where one was chosen, the folder as the product."""
    output.note(f"made {folder} ({precision})" if precision else f"made {folder}")
    write(f"{folder}\n")
