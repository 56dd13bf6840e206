"""Bodies of ``/v1/completions``: prompts as texts or token ids, one or several, and the form of the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.option_values import as_integer
from genai_pipeline.sampling.option_checks import MAX_CHOICES
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.openai.fields import note_fields, read_options, read_priority, read_stream, refuse_others

MAX_PROMPTS: Final = 128
_LIMIT: Final = "max_new_tokens"
_TEMPLATED: Final = ("tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs")
# What stands for options that this interface has no field for: what a chat template says is for chats.
_INSTEAD: Final = {
    **dict.fromkeys(_TEMPLATED, "/v1/chat/completions"),
    "system": "/v1/chat/completions, or say it in the prompt",
    "raw": "prompt, which is raw",
    "tokens": "prompt, which may be token ids",
    "prompt_logprobs": "echo and logprobs",
    "top_logprobs": "logprobs, the number of alternatives",
}


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """A request for what follows each prompt; ``prompts`` and ``options`` are arguments of ``Pipeline.aopen``."""

    model: str | None
    prompts: list[dict[str, Any]]
    options: dict[str, Any]
    names: dict[str, str]  # fields of options that have another name here
    priority: str
    stream: bool
    usage: bool  # whether a stream ends with usage
    echo: bool  # whether the text begins with the prompt
    logprobs: int | None  # how many alternatives; None: no log probabilities
    wanted: int | None  # choices that are shown, of those that are made; None: all

    def arguments(self, prompt: dict[str, Any]) -> dict[str, Any]:
        """What the model is asked for one prompt."""
        return {**prompt, "priority": self.priority, **self.options}


def read_completion(fields: Fields) -> CompletionBody:
    """The body by what it means. Raises ApiError 400; what only a package can tell is refused when it is asked."""
    note_fields(fields)
    stream, usage = read_stream(fields)
    echo = fields.boolean("echo") or False
    logprobs = fields.integer("logprobs", low=0)
    scoring = echo and fields.any("max_tokens") == 0
    options, names = read_options(fields, least=0 if scoring else 1)
    if logprobs is not None:
        options |= {"logprobs": True, "top_logprobs": logprobs}
        names["top_logprobs"] = "logprobs"
    if scoring or (echo and logprobs is not None):
        options["prompt_logprobs"] = logprobs or 0
        names["prompt_logprobs"] = "logprobs"
    if stream and echo and logprobs is not None:
        raise fields.wrong("echo", "with logprobs is not streamed: the prompt's are known at the end")
    body = CompletionBody(
        model=fields.text("model"),
        prompts=_prompts(fields, echo=echo),
        options=options,
        names=names,
        priority=read_priority(fields),
        stream=stream,
        usage=usage,
        echo=echo,
        logprobs=logprobs,
        wanted=_best_of(fields, options, stream=stream),
    )
    refuse_others(fields, _INSTEAD)
    return body


def _best_of(fields: Fields, options: dict[str, Any], *, stream: bool) -> int | None:
    """How many of the choices are shown: with ``best_of`` more are made, which is set among the options."""
    best_of = fields.integer("best_of", low=1, high=MAX_CHOICES)
    count = fields.integer("n", low=1, high=MAX_CHOICES) or 1
    if best_of is None or best_of == count:
        return None
    if best_of < count:
        raise fields.wrong("best_of", f"must be at least n, which is {count}, not {best_of}")
    if stream:
        raise fields.wrong("best_of", "above n is not streamed: the best are known at the end")
    options["n"] = best_of
    options.setdefault("logprobs", True)
    return count


def _prompts(fields: Fields, *, echo: bool) -> list[dict[str, Any]]:
    """Each prompt as arguments. Raises ApiError 400."""
    given = fields.must("prompt", fields.any("prompt"))
    if isinstance(given, str):
        prompts = [_one("prompt", given, fields)]
    elif not isinstance(given, list) or not given:
        raise fields.wrong(
            "prompt", "must be a string, a list of strings, a list of token ids, or a list of such lists"
        )
    elif as_integer(given[0]) is not None:
        prompts = [_one("prompt", given, fields)]
    else:
        if len(given) > MAX_PROMPTS:
            raise fields.wrong("prompt", f"has {len(given)} prompts; at most {MAX_PROMPTS}")
        prompts = [_one(f"prompt[{index}]", prompt, fields) for index, prompt in enumerate(given)]
    suffix = fields.text("suffix")
    if suffix is None:
        return prompts
    if echo:
        raise fields.wrong("echo", "and suffix exclude each other")
    if any("tokens" in prompt for prompt in prompts):
        raise fields.wrong("suffix", "goes with prompts that are texts")
    return [{"prompt": prompt["prompt"], "suffix": suffix} for prompt in prompts]


def _one(where: str, prompt: Any, fields: Fields) -> dict[str, Any]:
    """One prompt as arguments."""
    if isinstance(prompt, str):
        return {"prompt": prompt, "raw": True}
    if not isinstance(prompt, list) or not prompt:
        raise fields.wrong(where, "must be a string or a list of token ids, which is not empty")
    tokens = [as_integer(token) for token in prompt]
    if any(token is None or token < 0 for token in tokens):
        raise fields.wrong(where, "must have token ids only, which are not negative")
    return {"tokens": tokens}
