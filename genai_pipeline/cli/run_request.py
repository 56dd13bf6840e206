"""What a command line asks of ``run``, read and checked before a package is fetched or loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.cli.media_in import check_flags
from genai_pipeline.cli.run_options import FORM, LOADING, PROMPT, QUEUE, SAMPLING, TOOLS
from genai_pipeline.cli.written import biases, json_of, pairs, text_of
from genai_pipeline.errors import OptionError

_FORM_FLAGS = {
    "response_format": "--json-schema",
    "json_object": "--json-object",
    "regex": "--regex",
    "grammar": "--grammar",
    "choices": "--choice",
}
_CHOICE_WORDS = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Options of a request and of ``gp.load``, checked as far as that goes without the package; the prompt is apart."""

    options: Mapping[str, Any]
    loading: Mapping[str, Any]
    session: str | None = None

    @staticmethod
    def of(given: Mapping[str, Any], *, as_json: bool) -> RunRequest:
        """Read what was given, by the names of the API. Raises OptionError."""
        groups = {"prompt": _prompt(PROMPT.given(given)), "sampling": _sampling(given)}
        groups |= {"form": _form(FORM.given(given)), "tools": _tools(TOOLS.given(given)), "queue": QUEUE.given(given)}
        loading = LOADING.given(given)
        session = groups["prompt"].pop("session", None)
        _check(groups, loading)
        if not as_json:
            _check_shown(groups["sampling"])
        if session is not None:
            _check_session(session, groups)
        options = {name: value for group in groups.values() for name, value in group.items()}
        return RunRequest(options, loading, session)


def _prompt(given: dict[str, Any]) -> dict[str, Any]:
    check_flags(given)
    for name, flag in {"chat_template_kwargs": "--chat-template-kwargs", "parameters": "--param"}.items():
        if name in given:
            given[name] = pairs(flag, given[name])
    for name in ("raw", "suffix"):
        if name in given and "system" in given:
            message = f"--system needs the chat template, which --{name} leaves out"
            raise OptionError(message, param="system")
    return given


def _sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for group in SAMPLING for name, value in group.given(given).items()}
    if "logit_bias" in found:
        found["logit_bias"] = biases("--logit-bias", found["logit_bias"])
    ids = found.pop("dry_sequence_breaker_ids", [])
    if ids or "dry_sequence_breakers" in found:
        found["dry_sequence_breakers"] = [*found.get("dry_sequence_breakers", []), *ids]
    return found


def _form(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a constraint, of which one may be given."""
    if len(given) > 1:
        first, second, *_ = (_FORM_FLAGS[name] for name in given)
        message = f"{first} and {second} exclude each other"
        raise OptionError(message, param=list(given)[1], hint="one option says what to answer")
    if given.pop("json_object", False):
        return {"response_format": {"type": "json_object"}}
    if "response_format" in given:
        schema = {"schema": json_of("--json-schema", given["response_format"])}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if "grammar" in given:
        given["grammar"] = _grammar(given["grammar"])
    return given


def _grammar(written: str) -> str:
    text = text_of("--grammar", written)
    if text is written and ":" not in text and Path(text[:4096]).suffix:
        message = f"--grammar takes rules or @FILE; '{text}' has no rule"
        raise OptionError(message, param="grammar", hint=f"to read a file: --grammar @{text}")
    return text


def _tools(given: dict[str, Any]) -> dict[str, Any]:
    if "tools" in given:
        given["tools"] = json_of("--tools", given["tools"])
    elif "parallel_tool_calls" in given:
        message = "--no-parallel-tool-calls has no effect without --tools"
        raise OptionError(message, param="parallel_tool_calls", hint="give --tools too")
    choice = given.get("tool_choice")
    if choice is not None and choice not in _CHOICE_WORDS:
        given["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return given


def _check(groups: Mapping[str, Mapping[str, Any]], loading: Mapping[str, Any]) -> None:
    """Refuse what no package could do. Raises OptionError or ExtraMissingError."""
    from genai_pipeline.config import LoadOptions
    from genai_pipeline.constraints.spec import read_constraint
    from genai_pipeline.engine.request import Queueing
    from genai_pipeline.preprocess.answer_options import AnswerOptions
    from genai_pipeline.sampling.params import resolve_options

    prompt = groups["prompt"]
    sampling = groups["sampling"]
    resolve_options(sampling, {"num_beams": 1} if "num_beams" in sampling else {})  # a package may declare the search
    Queueing.of(**groups["queue"])
    LoadOptions.of(**{name: value for name, value in loading.items() if name != "precision"})
    kwargs = {name: prompt[name] for name in ("chat_template_kwargs",) if name in prompt}
    answer = AnswerOptions.of(**groups["tools"], **kwargs)
    if "raw" in prompt or "suffix" in prompt:
        answer.check_untemplated()
    constraint = read_constraint(groups["form"])
    if constraint is not None or (answer.tools is not None and answer.tools.constrained):
        from genai_pipeline.constraints.llg import require

        require()


def _check_shown(sampling: Mapping[str, Any]) -> None:
    """Log probabilities are numbers for programs: without --json they would be computed for nobody."""
    for name, hint in {"logprobs": "add --json", "prompt_logprobs": "add --json, or use the command 'score'"}.items():
        if name in sampling:
            flag = name.replace("_", "-")
            raise OptionError(f"--{flag} has no effect on streamed text", param=name, hint=hint)


def _check_session(path: str, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """A conversation goes on with one answer, through the chat template, into a file that can be."""
    for name in ("raw", "suffix"):
        if name in groups["prompt"]:
            raise OptionError(f"--session and --{name} exclude each other", param="session")
    if groups["sampling"].get("n", 1) != 1:
        raise OptionError("a session goes on with one answer: --n must be 1", param="n")
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder):
        what = "is a folder" if os.path.isdir(path) else f"cannot be made: there is no folder {folder}"
        raise OptionError(f"--session {path} {what}", param="session", hint="name a file")
