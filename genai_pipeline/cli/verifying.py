"""``genai-pipeline verify PACKAGE``: does it answer as a reference does?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import Output, write, write_json
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.reports import table
from genai_pipeline.cli.run_request import RunRequest
from genai_pipeline.cli.verifying_backends import BACKENDS, only_for_backends, verify_backends
from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.cli.parity.answers import Reference
    from genai_pipeline.cli.parity.compare import Parity, Tolerance

FAILED: Final = 1
_PROMPTS: Final = (
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "List three prime numbers and explain why they are prime.",
    "Translate to French: the weather is nice today.",
)
_SHOWN: Final = 40  # characters of a prompt


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


@takes(BACKENDS, groups.SCORE_LOADING)
def verify(
    ctx: typer.Context,
    package: groups.Package,
    reference: Annotated[
        Literal["auto", "recorded", "onnxruntime-genai", "transformers", "self"],
        typer.Option(help="What to compare with; auto takes the first that can be had."),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option(help="For transformers: the original model, a folder or its name on the hub.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="A text file with one prompt a line.")] = None,
    tokens: Annotated[int, typer.Option(min=1, max=4096, help="Tokens to compare for each prompt.")] = 32,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the reference's answers in the package, as reference.json.")
    ] = False,
    margin: Annotated[
        float, typer.Option(min=0, help="Tokens may differ where the reference's two likeliest are this close (nats).")
    ] = 1e-3,
    max_kl: Annotated[float, typer.Option(min=0, help="Largest mean KL of a prompt (nats).")] = 5e-2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    **options: Any,
) -> None:
    """Compare greedy tokens and probabilities with a reference; exit code 1 where they differ beyond tolerance.

    The KL at each place is taken over the 20 likeliest tokens and the rest as one, given the reference's own tokens.
    With --backends the reference is the first backend named, and any package can be compared, graph run by graph run.
    """
    if options.get("backends"):
        _refuse_given(ctx, ("reference", "model", "record", "max_kl"))
        texts: Sequence[str] = () if prompts is None else _lines(prompts)
        if not verify_backends(ctx.obj, package, options, texts, tokens=tokens, margin=margin, as_json=as_json):
            raise typer.Exit(FAILED)
        return
    only_for_backends(options)
    from genai_pipeline.cli.parity.answers import fitting_prompts
    from genai_pipeline.cli.parity.compare import Tolerance, compare
    from genai_pipeline.cli.parity.recorded import write_recorded
    from genai_pipeline.cli.parity.references import Asked, find_reference

    output: Output = ctx.obj
    loading = RunRequest.of(options, as_json=as_json).loading
    texts = _PROMPTS if prompts is None else _lines(prompts)
    tolerance = Tolerance(margin, max_kl)
    with loaded(output, package, loading) as pipe:
        with output.waiting("comparing ..."):
            asked = Asked(reference, model, tokens)
            found = find_reference(pipe, asked, lambda: fitting_prompts(pipe, texts, tokens), record=record)
            results = compare(pipe, found)
        identity = dict(pipe.identity)
        root = pipe.plan.package.root
    failed = any(result.faults(tolerance) for result in results)
    if as_json:
        write_json(_report(identity, found, results, tolerance))
    else:
        write(table([("PROMPT", "TOKENS", "EQUAL", "DIVERGES", "MARGIN", "MEAN KL", "MAX KL"), *map(_row, results)]))
    _notes(output, identity, found, results, tolerance)
    if record:
        output.note(f"recorded in {write_recorded(root, found)}")
    if failed:
        raise typer.Exit(FAILED)


def _refuse_given(ctx: typer.Context, names: Sequence[str]) -> None:
    """Options that have no effect beside --backends. Raises OptionError."""
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            message = f"{name} has no effect with --backends: the first of them is the reference"
            raise OptionError(message, param=name, hint="leave it out")


def _lines(path: Path) -> Sequence[str]:
    """The prompts of a file. Raises OptionError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise OptionError(f"prompts cannot be read from {path}: {reason}", param="prompts") from error
    found = [line for line in lines if line.strip()]
    if not found:
        raise OptionError(f"prompts: {path} has none", param="prompts", hint="write one prompt a line")
    return found


def _report(
    identity: Mapping[str, str], reference: Reference, results: Sequence[Parity], tolerance: Tolerance
) -> dict[str, Any]:
    return {
        "package": identity,
        "reference": {
            "name": reference.source,
            "versions": dict(reference.versions),
            "package": dict(reference.package),
        },
        "tolerance": {"margin": tolerance.margin, "mean_kl": tolerance.kl},
        "passed": not any(result.faults(tolerance) for result in results),
        "prompts": [result.to_dict(tolerance) for result in results],
    }


def _row(result: Parity) -> Sequence[str]:
    apart = result.divergence
    return (
        result.text if len(result.text) <= _SHOWN else f"{result.text[: _SHOWN - 3]}...",
        str(result.count),
        str(result.equal),
        "-" if apart is None else f"at {apart.index}",
        _number(None if apart is None else apart.margin),
        _number(result.mean_kl),
        _number(max(result.kl, default=None)),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _notes(
    output: Output, identity: Mapping[str, str], reference: Reference, results: Sequence[Parity], tolerance: Tolerance
) -> None:
    """What the table does not say."""
    versions = ", ".join(f"{name} {version}" for name, version in reference.versions.items())
    output.note(f"reference: {reference.source}{f' ({versions})' if versions else ''}")
    if reference.package.get("digest", identity["digest"]) != identity["digest"]:
        output.note("it was recorded of other files of this package")
    for result in results:
        for fault in result.faults(tolerance):
            output.note(f"{result.text!r}: {fault}")
    equal, count = sum(result.equal for result in results), sum(result.count for result in results)
    output.note(f"{equal} of {count} tokens are equal up to the first difference of each prompt")
