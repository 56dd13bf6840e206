"""``genai-pipeline score PACKAGE TEXT``: how likely a model finds a text, token by token."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import write, write_json
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.prompt import prompt_text
from genai_pipeline.cli.reports import table
from genai_pipeline.cli.run_request import RunRequest

if TYPE_CHECKING:
    from genai_pipeline.types import Score, TokenLogprobs
Row = Sequence[str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score")(score)


@takes(groups.PROMPT.only("system", "raw", "chat_template_kwargs", "parameters"), groups.QUEUE, groups.SCORE_LOADING)
def score(
    ctx: typer.Context,
    package: groups.Package,
    text: groups.Prompt = None,
    prompt_logprobs: Annotated[
        int, typer.Option("--top", help="Show so many of the likeliest tokens at each place.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    **options: Any,
) -> None:
    """Print the log probability of each token of a text, and the perplexity.

    A table on a terminal, columns parted by tabs elsewhere. The chat template is applied as in 'run', unless --raw.
    """
    asked = RunRequest.of({**options, "prompt_logprobs": prompt_logprobs}, as_json=True)
    request = {name: value for name, value in asked.options.items() if name != "prompt_logprobs"}
    top = prompt_logprobs
    prompt = prompt_text(package, text)
    with loaded(ctx.obj, package, asked.loading) as pipe:
        with ctx.obj.waiting("scoring ..."):
            result = pipe.score(prompt, top=top, **request)
        tokens = {*result.tokens, *(other.token for scored in result.logprobs for other in scored.top)}
        spell = {token: pipe.detokenize([token]) for token in tokens}
    if as_json:
        write_json(_report(result, spell))
        return
    rows = [_row(position, scored, spell) for position, scored in enumerate(result.logprobs, 1)]
    write(table([("POSITION", "TOKEN", "TEXT", "LOGPROB", *(["LIKELIEST"] if top else [])), *rows]))
    ctx.obj.note(f"{len(rows)} tokens, log probability {result.logprob:.4f}, perplexity {result.perplexity:.4f}")


def _report(result: Score, spell: Mapping[int, str]) -> dict[str, Any]:
    """The score as JSON-ready fields; the first token is not predicted, so it has no log probability."""
    first = [{"token": token, "text": spell[token]} for token in result.tokens[:1]]
    rest = [{**scored.to_dict(), "text": spell[scored.token]} for scored in result.logprobs]
    for entry in rest:
        entry["top"] = [{**other, "text": spell[other["token"]]} for other in entry["top"]]
    return {
        "tokens": [*first, *rest],
        "logprob": _finite(result.logprob),
        "perplexity": _finite(result.perplexity),
        "usage": result.usage.to_dict(),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _row(position: int, scored: TokenLogprobs, spell: Mapping[int, str]) -> Row:
    """Texts are written as JSON strings, so that a row is one line."""
    others = [f"{_quoted(spell[other.token])} {other.logprob:.4f}" for other in scored.top]
    cells = (str(position), str(scored.token), _quoted(spell[scored.token]), f"{scored.logprob:.4f}")
    return (*cells, ", ".join(others)) if others else cells


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
