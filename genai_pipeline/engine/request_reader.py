"""Turns what a caller gives into a request: prompt, options, the form of the answer, and how it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genai_pipeline.constraints.spec import CONSTRAINT_OPTIONS, read_constraint
from genai_pipeline.engine.answer_form import AnswerForm
from genai_pipeline.engine.request import Queueing, Request
from genai_pipeline.errors import OptionError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.kv.prefix_keys import Identity
from genai_pipeline.metadata.model import StageSpec
from genai_pipeline.preprocess.answer_options import ANSWER_OPTIONS, AnswerOptions
from genai_pipeline.preprocess.package_texts import main_text
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.sampling.breakers import BreakerTexts
from genai_pipeline.sampling.params import (
    FORM_OPTIONS,
    GenerationOptions,
    check_form_override,
    check_vocabulary,
    resolve_options,
)
from genai_pipeline.sampling.random import fresh_seed
from genai_pipeline.types import PROMPT_OPTIONS, QUEUE_OPTIONS


class RequestReader:
    """Of one package; runs on the callers' threads, which may share it."""

    def __init__(self, plan: ExecutionPlan, tokenizers: Mapping[str, Tokenizer], prompts: PromptReader) -> None:
        self._generation = plan.package.generation
        self._prompts = prompts
        self._main = main_text(plan.package)
        self.makes_tokens = _has_loop(plan.package.stages)
        sizes = tuple(plan.facts["vocab_sizes"].values()) or [loaded.highest_id + 1 for loaded in tokenizers.values()]
        self._vocabulary: int | None = max(sizes, default=None)
        self._breakers = BreakerTexts(_token_texts(*tokenizers.values()) if len(tokenizers) == 1 else None)

    def options(self, given: Mapping[str, Any]) -> GenerationOptions:
        """The options of generation in effect for a request that sets ``given``. Raises OptionError."""
        if self._generation is None:
            return resolve_options(given)
        return resolve_options(given, self._generation.defaults, self._generation.overrides)

    def read(self, prompt: str | None, given: Mapping[str, Any], salt: bytes = b"") -> Request:
        """A request that gives its text as a prompt, as messages or as tokens. Raises RequestError or OptionError."""
        rest = dict(given)
        form = self._form(rest)
        values = self._prompts.prompt(prompt, answer=form.options, **_taken(rest, PROMPT_OPTIONS))
        return self._request(values, form, rest, salt)

    def read_inputs(self, inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Request:
        """A request that gives declared inputs and parameters by name. Raises RequestError or OptionError."""
        rest = dict(given)
        form = self._form(rest)
        values = self._prompts.inputs(inputs, rest.pop("parameters", None), form.options)
        return self._request(values, form, rest)

    @property
    def reasons(self) -> bool:
        """Whether answers may begin with reasoning."""
        return self._prompts.reasons

    def prompt_tokens(self, request: Request) -> tuple[int, ...]:
        """The tokens of a request's prompt, of a list of texts those of all; none where no text is the main one."""
        if self._main is None:
            return ()
        tokens: Any = request.values.get(f"{self._main.name}.tokens")
        if isinstance(tokens, list):
            return tuple(token for text in tokens for token in text)
        return tokens if isinstance(tokens, tuple) else ()

    def identities(self, request: Request) -> tuple[Identity, ...]:
        """Whose slots the tokens of a request's prompt are."""
        found: Any = None if self._main is None else request.values.get(f"{self._main.name}.identities")
        return tuple(found or ())

    def text(self, tokens: Sequence[int], *, skip_special: bool) -> str:
        """The text of tokens. Raises RequestError."""
        return self._prompts.text(tokens, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token writes, a control token its text. Raises RequestError."""
        return self._prompts.token_bytes(token)

    def _form(self, options: dict[str, Any]) -> AnswerForm:
        """The options about the form of the answer, taken out of all options."""
        overrides = None if self._generation is None else self._generation.overrides
        for name in FORM_OPTIONS & options.keys():
            if options[name] is not None:
                check_form_override(name, options[name], overrides)
        answer = AnswerOptions.of(**_taken(options, ANSWER_OPTIONS))
        return AnswerForm(answer, read_constraint(_taken(options, CONSTRAINT_OPTIONS)))

    def _request(
        self, values: Mapping[str, Any], form: AnswerForm, options: dict[str, Any], salt: bytes = b""
    ) -> Request:
        queueing = Queueing.of(**_taken(options, QUEUE_OPTIONS))
        effective = self.options(options)
        if not self.makes_tokens:
            _check_no_tokens(options)
        check_vocabulary(effective, self._vocabulary)
        effective = self._breakers.resolve(effective)
        seed = fresh_seed() if effective.seed is None else effective.seed
        return Request(values, effective, seed, queueing=queueing, form=form, salt=salt)


def _has_loop(stages: Sequence[StageSpec]) -> bool:
    """Whether tokens are made anywhere."""
    return any(stage.kind == "decode" or _has_loop(stage.body) for stage in stages)


def _check_no_tokens(options: Mapping[str, Any]) -> None:
    """Refuse options of generation where none are made; a seed is for all random numbers. Raises OptionError."""
    for name, value in options.items():
        if name != "seed" and value is not None:
            hint = "leave it out, or give inputs and parameters by their names"
            raise OptionError(f"{name} has no effect: this package makes no tokens", param=name, hint=hint)


def _taken(options: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _token_texts(tokenizer: Tokenizer) -> Callable[[], Sequence[str]]:
    """What reads the text of every token, control tokens too."""
    return lambda: [tokenizer.decode((id,), skip_special=False) for id in range(tokenizer.highest_id + 1)]
