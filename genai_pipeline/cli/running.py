"""``genai-pipeline run PACKAGE PROMPT``: one text request, streamed to stdout or printed as one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genai_pipeline.cli.output import Output, write, write_json
from genai_pipeline.cli.packages import loaded
from genai_pipeline.errors import OptionError, RequestError

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.types import Timings, Usage

    Counts = tuple[Usage | None, Timings | None]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    ctx: typer.Context,
    package: Annotated[str, typer.Argument(help="A folder, a metadata file, or a name from 'list'.")],
    prompt: Annotated[str | None, typer.Argument(help="The prompt; '-' reads it from stdin.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before the prompt.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Send the prompt as it is, without chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of streaming.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Token counts and timings on stderr at the end.")] = False,
    max_new_tokens: Annotated[int | None, typer.Option(help="At most this many (default: up to the context).")] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="No end token before this many.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among the likeliest that make up this share.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Drop tokens below this share of the likeliest.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answer.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text (repeatable); it is not printed.")] = None,
    stop_token_id: Annotated[list[int] | None, typer.Option(help="End at this token (repeatable).")] = None,
    ignore_eos: Annotated[bool | None, typer.Option("--ignore-eos", help="Go on after end tokens.")] = None,
    param: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A parameter the package declares.")] = None,
    precision: Annotated[str | None, typer.Option(help="Of a known package: the variant to use.")] = None,
    threads: Annotated[int | None, typer.Option(help="Of the runtime (default: what the machine gives).")] = None,
    context_length: Annotated[int | None, typer.Option(help="Lower the package's context to this.")] = None,
    prefill_chunk: Annotated[int | None, typer.Option(help="Prompt tokens per prefill run.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which the request is given up.")] = None,
    provider: Annotated[list[str] | None, typer.Option(help="cpu, cuda, ... (repeatable, first choice first).")] = None,
    profile: Annotated[str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto there.")] = None,
) -> None:
    """Run one request and stream the answer to stdout."""
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "stop": stop or None,
        "stop_token_ids": stop_token_id or None,
        "ignore_eos": ignore_eos,
        "parameters": parameters(param or ()) or None,
        "timeout": timeout,
    }
    request = _given(options) | _prompt(prompt, system, raw)
    loading = {"precision": precision, "threads": threads, "providers": provider or None}
    loading |= {"context_length": context_length, "prefill_chunk": prefill_chunk, "profile": profile}
    with loaded(ctx.obj, package, _given(loading)) as pipe:
        usage, timings = print_json(pipe, request) if as_json else print_stream(ctx.obj, pipe, request)
    if stats:
        _print_stats(ctx.obj, usage, timings)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: an option left out is not a value."""
    return {name: value for name, value in options.items() if value is not None}


def parameters(pairs: Iterable[str]) -> Mapping[str, Any]:
    """``K=V`` pairs as a mapping; V is a JSON value where it is one, else text. Raises OptionError."""
    import json

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise OptionError(f"--param takes NAME=VALUE, not '{pair}'", param="param")
        if name in found:
            raise OptionError(f"--param {name} is given twice", param=name)
        try:
            found[name] = json.loads(text)
        except json.JSONDecodeError:
            found[name] = text
    return found


def print_json(pipe: Pipeline, request: Mapping[str, Any]) -> Counts:
    """Write the whole result as one JSON object."""
    result = pipe.generate(**request)
    write_json(result.to_dict())
    return result.usage, result.timings


def print_stream(output: Output, pipe: Pipeline, request: Mapping[str, Any]) -> Counts:
    """Write text as it comes; raises the error that ends a stream."""
    usage, timings, reason, last = None, None, None, ""
    with pipe.stream(**request) as events:
        for event in events:
            if event.text:
                write(event.text)
                last = event.text
            if event.error is not None:
                raise event.error
            reason = event.finish_reason or reason
            usage, timings = event.usage or usage, event.timings or timings
    if not last.endswith("\n"):
        write("\n")
    if reason == "length":
        output.note("note: the answer was cut at the token limit")
    return usage, timings


def _prompt(prompt: str | None, system: str | None, raw: bool) -> dict[str, Any]:
    if prompt is None:
        raise RequestError("no prompt was given", param="prompt", hint="write it after the package, or '-' for stdin")
    text = _from_stdin() if prompt == "-" else prompt
    if system is None:
        return {"prompt": text, "raw": raw}
    if raw:
        raise OptionError("--system needs the chat template, which --raw leaves out", param="system")
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}


def _from_stdin() -> str:
    """All of stdin as text, without the line end that shells add."""
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RequestError(f"the prompt on stdin is not UTF-8: {error}", param="prompt") from error


def _print_stats(output: Output, usage: Usage | None, timings: Timings | None) -> None:
    """Counts and rates, as far as they were measured."""
    parts = []
    if usage is not None:
        parts.append(f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)")
        parts.append(f"{usage.completion_tokens} completion tokens")
    if timings is not None and timings.first_token is not None:
        parts.append(f"first after {timings.first_token:.2f} s")
    if usage is not None and timings is not None and timings.decode and usage.completion_tokens > 1:
        parts.append(f"{(usage.completion_tokens - 1) / timings.decode:.1f} tokens/s")
    if timings is not None and timings.total is not None:
        parts.append(f"{timings.total:.2f} s in all")
    output.note(", ".join(parts))
