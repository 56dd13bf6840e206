"""What a decoder behind an encoder starts from: one start token, or the marks of a Whisper model.

Languages lie between the start mark and the tasks, and only models with so many tokens hear more than English.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

START, NO_TIMES = "<|startoftranscript|>", "<|notimestamps|>"
FIRST_TIME, LATEST_START = "<|0.00|>", "<|1.00|>"
TASKS: Final = ("<|transcribe|>", "<|translate|>")
_MULTILINGUAL = 51865  # tokens that multilingual models have at least


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """``tokens``: texts of added tokens by id, for sounds; ``start``: the one token before an answer, for texts."""

    tokens: dict[int, str]
    start: str | None

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that can be asked for, e.g. "en"."""
        known = set(self.tokens.values())
        if len(self.tokens) == 0 or max(self.tokens) + 1 < _MULTILINGUAL or not known >= {START, *TASKS}:
            return ()
        ids = {text: index for index, text in self.tokens.items()}
        between = range(ids[START] + 1, min(ids[task] for task in TASKS))
        return tuple(self.tokens[index].strip("<|>") for index in between if index in self.tokens)

    @property
    def has_times(self) -> bool:
        """Whether answers may hold marks of time."""
        return {NO_TIMES, FIRST_TIME, LATEST_START} <= set(self.tokens.values())

    def parameters(self) -> Iterator[str]:
        """Request parameters that fill the template."""
        if self.languages:
            tasks = [task.strip("<|>") for task in TASKS]
            for name, values in (("language", list(self.languages)), ("task", tasks)):
                listed = ", ".join(f'"{value}"' for value in values)  # "no" is a language
                yield f'    {name}: {{type: choice, values: [{listed}], default: "{values[0]}"}}'
        if self.has_times:
            yield "    timestamps: {type: boolean, default: false}"

    def template(self) -> list[str | dict[str, str]]:
        """The tokens before an answer."""
        if self.start is not None:
            return [self.start]
        marks = ["<|{language}|>", "<|{task}|>"] if self.languages else []
        silent = [{"text": NO_TIMES, "when": "not parameters.timestamps"}] if self.has_times else []
        return [START, *marks, *silent]

    def times(self) -> dict[str, Any]:
        """Marks of time in an answer; {} when the tokenizer has none."""
        if not self.has_times:
            return {}
        first = next(index for index, text in self.tokens.items() if text == FIRST_TIME)
        last = self.tokens[max(index for index in self.tokens if index >= first)]
        when = "parameters.timestamps"
        return {"first": FIRST_TIME, "last": last, "latest_start": LATEST_START, "when": when}
