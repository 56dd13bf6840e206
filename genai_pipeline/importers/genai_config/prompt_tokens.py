"""What a decoder behind an encoder starts from: one start token, or the marks of a Whisper model.

Those are recognised in tokenizer.json: languages lie between the start mark and the tasks, and only models with
so many tokens hear more than English.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import TOKENIZER

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


def read_prompt_tokens(source: SourceFolder, model: ConfigNode, sound: bool, report: ImportReport) -> PromptTokens:
    """What the tokenizer and the config say of it; refused in the report when no start is known."""
    definition = source.json(TOKENIZER)
    tokens = {item.integer("id"): item.text("content") for item in _added(definition)}
    key = "decoder_start_token_id"
    if sound:
        if key in model:
            report.dropped(model.file, model.at(key), f"an answer starts behind {START}, which the tokenizer has")
        if START not in tokens.values():
            report.refused(TOKENIZER, "added_tokens", f"has no {START}: what an answer starts with is not known")
        return PromptTokens(tokens, None)
    if key not in model:
        report.refused(model.file, model.at(key), "is missing: what an answer starts with is not known", f"give {key}")
        return PromptTokens({}, "")
    index = model.integer(key)
    vocabulary = definition.mapping("model").get("vocab")
    plain = vocabulary.value if vocabulary is not None and isinstance(vocabulary.value, dict) else {}
    found = tokens.get(index) or next((text for text, number in plain.items() if number == index), None)
    if found is None:
        report.refused(model.file, model.at(key), f"is {index}: {TOKENIZER} has no such token")
    else:
        report.mapped(model.file, model.at(key), "stages.generate.prompt.template")
    return PromptTokens({}, found or "")


def _added(definition: ConfigNode) -> Iterator[ConfigNode]:
    listed = definition.get("added_tokens")
    if listed is not None:
        yield from listed.items()
