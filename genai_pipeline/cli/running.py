"""``genai-pipeline run PACKAGE PROMPT``: one text request, streamed to stdout or printed as one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from genai_pipeline.cli import run_options as given
from genai_pipeline.cli.output import Output, end_line, write, write_json
from genai_pipeline.cli.packages import default_prompt, loaded
from genai_pipeline.errors import GenaiError, OptionError, RequestError

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.types import Timings, Usage

    Counts = tuple[Usage | None, Timings | None]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    ctx: typer.Context,
    package: given.Package,
    prompt: given.Prompt = None,
    system: given.System = None,
    raw: given.Raw = False,
    as_json: given.AsJson = False,
    stats: given.Stats = False,
    max_new_tokens: given.MaxNewTokens = None,
    min_new_tokens: given.MinNewTokens = None,
    temperature: given.Temperature = None,
    top_k: given.TopK = None,
    top_p: given.TopP = None,
    min_p: given.MinP = None,
    seed: given.Seed = None,
    stop: given.Stop = None,
    stop_token_id: given.StopTokenId = None,
    ignore_eos: given.IgnoreEos = None,
    n: given.Choices = None,
    param: given.Parameter = None,
    timeout: given.Timeout = None,
    priority: given.Priority = None,
    precision: given.Precision = None,
    threads: given.Threads = None,
    context_length: given.ContextLength = None,
    prefill_chunk: given.PrefillChunk = None,
    memory: given.Memory = None,
    no_prefix_cache: given.NoPrefixCache = None,
    draft: given.Draft = None,
    provider: given.Provider = None,
    profile: given.Profile = None,
) -> None:
    """Run one request and stream the answer to stdout."""
    sampling: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "temperature": temperature,
    }
    sampling |= {"top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed, "ignore_eos": ignore_eos, "n": n}
    sampling |= {"stop": stop or None, "stop_token_ids": stop_token_id or None}
    queueing = {"timeout": timeout, "priority": priority}
    loading: dict[str, Any] = {"threads": threads, "context_length": context_length, "memory": memory}
    loading |= {"providers": provider or None, "prefill_chunk": prefill_chunk, "profile": profile}
    loading |= {"prefix_cache": None if no_prefix_cache is None else not no_prefix_cache, "draft": draft}
    options = _checked(_given(sampling), _given(queueing), _given(loading))
    declared = _given({"parameters": parameters(param or ()) or None})
    request = {**options, **declared, **_prompt(package, prompt, system, raw)}
    with loaded(ctx.obj, package, _given({"precision": precision} | loading)) as pipe:
        usage, timings = _printer(pipe, as_json, n)(ctx.obj, pipe, request)
    if stats:
        _print_stats(ctx.obj, usage, timings)


def _checked(sampling: Mapping[str, Any], queueing: Mapping[str, Any], loading: Mapping[str, Any]) -> dict[str, Any]:
    """The request's options, all checked before a package is fetched or loaded. Raises OptionError."""
    from genai_pipeline.config import LoadOptions
    from genai_pipeline.engine.request import Queueing
    from genai_pipeline.sampling.params import resolve_options

    resolve_options(sampling)
    Queueing.of(**queueing)
    LoadOptions.of(**loading)
    return {**sampling, **queueing}


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


def _printer(pipe: Pipeline, as_json: bool, n: int | None) -> Callable[[Output, Pipeline, Mapping[str, Any]], Counts]:
    """How to print: several choices would run into each other if they were streamed."""
    if as_json:
        return print_json
    return print_stream if pipe.options(**_given({"n": n})).n == 1 else print_choices


def print_json(output: Output, pipe: Pipeline, request: Mapping[str, Any]) -> Counts:
    """Write the whole result as one JSON object."""
    with output.waiting("working ..."):
        result = pipe.generate(**request)
    write_json(result.to_dict())
    return result.usage, result.timings


def print_choices(output: Output, pipe: Pipeline, request: Mapping[str, Any]) -> Counts:
    """Write the choices one after the other, each below a line that numbers it; raises the error of one that failed."""
    with output.waiting("working ..."):
        result = pipe.generate(**request)
    for choice in result.choices:
        text = choice.text if choice.text.endswith("\n") else choice.text + "\n"
        write(f"--- {choice.index + 1} of {len(result.choices)} ({choice.finish_reason})\n{text}")
    for choice in result.choices:
        if choice.error is not None:
            raise choice.error
    return result.usage, result.timings


def print_stream(output: Output, pipe: Pipeline, request: Mapping[str, Any]) -> Counts:
    """Write text as it comes; raises the error that ends a stream."""
    usage, timings, reason, last = None, None, None, ""
    try:
        with output.waiting("reading the prompt ...") as something_came, pipe.stream(**request) as events:
            for event in events:
                something_came()
                if event.text:
                    write(event.text)
                    last = event.text
                if event.error is not None:
                    raise event.error
                reason = event.finish_reason or reason
                usage, timings = event.usage or usage, event.timings or timings
    except (GenaiError, KeyboardInterrupt):
        if last and not last.endswith("\n"):
            end_line()
        raise
    if not last.endswith("\n"):
        write("\n")
    if reason == "length":
        output.note("note: the answer was cut at the token limit")
    return usage, timings


def _prompt(package: str, prompt: str | None, system: str | None, raw: bool) -> dict[str, Any]:
    if system is not None and raw:
        raise OptionError("--system needs the chat template, which --raw leaves out", param="system")
    if prompt is None and default_prompt(package) is None:
        raise RequestError("no prompt was given", param="prompt", hint="write it after the package, or '-' for stdin")
    text = _from_stdin() if prompt == "-" else prompt
    return {"prompt": text, "raw": raw, **_given({"system": system})}


def _from_stdin() -> str:
    """All of stdin as text, without the line end that shells add."""
    if sys.stdin is None:
        raise RequestError("no prompt was given: stdin is closed", param="prompt", hint="write it after the package")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RequestError(f"the prompt on stdin is not UTF-8: {error}", param="prompt") from error
    except OSError as error:  # a folder, or a terminal that has gone
        raise RequestError(f"the prompt on stdin cannot be read: {error.strerror}", param="prompt") from error


def _print_stats(output: Output, usage: Usage | None, timings: Timings | None) -> None:
    """Counts and rates, as far as they were measured."""
    parts = []
    if usage is not None:
        parts.append(f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)")
        parts.append(f"{usage.completion_tokens} completion tokens")
    if usage is not None and usage.drafted_tokens:
        parts.append(f"{usage.accepted_tokens} of {usage.drafted_tokens} drafted tokens accepted")
    if timings is not None and timings.first_token is not None:
        parts.append(f"first after {timings.first_token:.2f} s")
    if usage is not None and timings is not None and timings.decode and usage.completion_tokens > 1:
        parts.append(f"{(usage.completion_tokens - 1) / timings.decode:.1f} tokens/s")
    if timings is not None and timings.total is not None:
        parts.append(f"{timings.total:.2f} s in all")
    output.note(", ".join(parts))
