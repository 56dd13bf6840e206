"""What ``run`` prints: text as it comes, or all choices, or one JSON object; reasoning and notes go to stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.output import Output, end_line, write, write_json, write_json_line
from genai_pipeline.errors import GenaiError

if TYPE_CHECKING:
    from genai_pipeline.cli.asking import Question
    from genai_pipeline.types import Event, Timings, ToolCall, ToolCallDelta, Usage

    Counts = tuple[Usage | None, Timings | None]
    Others = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # of all outputs, those beside the answer, for JSON

_ENDINGS = {
    "length": "note: the answer was cut at the token limit",
    "tool_calls": "note: the answer ends with tool calls",
}


def print_json(output: Output, asked: Question, others: Others) -> Counts:
    """Write the whole result as one JSON object; ``outputs`` has what there is beside the answer."""
    with output.waiting("working ..."):
        result = asked.generate()
    beside = others(result.outputs)
    write_json({**result.to_dict(), **({"outputs": beside} if beside else {})})
    return result.usage, result.timings


def print_choices(output: Output, asked: Question, others: Others) -> Counts:
    """Write the choices one after the other, each below a line that numbers it; raises the error of one that failed."""
    with output.waiting("working ..."):
        result = asked.generate()
    _note(output, result.notes)
    for choice in result.choices:
        number = f"--- {choice.index + 1} of {len(result.choices)}"
        if choice.reasoning:
            output.aside(f"{number}, reasoning\n{_line(choice.reasoning)}")
        text = "" if choice.tool_calls and not choice.text else _line(choice.text)
        write(f"{number} ({choice.finish_reason})\n{text}")
        _write_calls(choice.tool_calls)
    _write_others(others(result.outputs))
    for choice in result.choices:
        if choice.error is not None:
            raise choice.error
    return result.usage, result.timings


def print_stream(output: Output, asked: Question, others: Others) -> Counts:
    """Write text as it comes, then tool calls and other outputs, one JSON line each; raises what ends a stream."""
    from genai_pipeline.parsing.parts import join_calls

    printed = _Printed(output)
    with output.waiting("reading the prompt ...") as something_came:
        try:
            with asked.stream() as events:
                for event in events:
                    something_came()
                    printed.add(event)
        except (GenaiError, KeyboardInterrupt):
            printed.break_off()
            raise
    printed.end_text()
    calls = join_calls(printed.calls)
    if printed.text or not calls:
        write("" if printed.text.endswith("\n") else "\n")
    _write_calls(calls)
    _write_others(others(printed.outputs))
    return printed.finish()


def print_stats(output: Output, usage: Usage | None, timings: Timings | None) -> None:
    """Counts and rates, as far as they were measured, and what ran each graph."""
    output.note(stats_text(usage, timings))
    for graph in () if usage is None else usage.graphs:
        output.note(str(graph))


def stats_text(usage: Usage | None, timings: Timings | None) -> str:
    """Counts and rates in one line, as far as they were measured; empty where nothing was."""
    parts = []
    if usage is not None and (usage.prompt_tokens or usage.completion_tokens):
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
    return ", ".join(parts)


class _Printed:
    """What of a stream is out."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._aside = ""  # the last piece of reasoning, while no text followed
        self.text = ""  # the last piece of text
        self.calls: list[ToolCallDelta] = []
        self._end: Event | None = None

    def add(self, event: Event) -> None:
        """One more event; raises its error."""
        if event.reasoning:
            self._output.aside(event.reasoning)
            self._aside = event.reasoning
        if event.text:
            self.end_text()
            write(event.text)
            self.text = event.text
        self.calls += event.tool_calls
        if event.error is not None:
            raise event.error
        if event.finish_reason is not None:
            self._end = event

    def end_text(self) -> None:
        """Reasoning is over: what comes next on stderr begins a line."""
        if self._aside and not self._aside.endswith("\n"):
            self._output.aside("\n")
        self._aside = ""

    def break_off(self) -> None:
        """Nothing more comes: an error, perhaps, begins a line."""
        self.end_text()
        if self.text and not self.text.endswith("\n"):
            end_line()

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Every declared output, once it has ended."""
        return (self._end.outputs if self._end is not None else None) or {}

    def finish(self) -> Counts:
        """Say how it ended; gives usage and timings."""
        if self._end is None:
            return None, None
        _note(self._output, self._end.notes)
        if ending := _ENDINGS.get(self._end.finish_reason or ""):
            self._output.note(ending)
        return self._end.usage, self._end.timings


def _note(output: Output, notes: Sequence[str]) -> None:
    for note in notes:
        output.note(f"note: {note}")


def _write_calls(calls: Sequence[ToolCall]) -> None:
    for call in calls:
        write_json_line(call.to_dict())


def _write_others(outputs: Mapping[str, Any]) -> None:
    if outputs:
        write_json_line(dict(outputs))


def _line(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
