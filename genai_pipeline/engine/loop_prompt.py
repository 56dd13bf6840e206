"""The prompt of a decode loop: tokens of a text or of a stage, or a template with slots for parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.graph.plan import StagePlan, key_of
from genai_pipeline.kv.prefix_keys import Identity
from genai_pipeline.metadata.expressions import Name, evaluate, names
from genai_pipeline.metadata.model import Binding
from genai_pipeline.preprocess.token_template import TokenTemplate
from genai_pipeline.preprocess.tokenizer import Tokenizer


class LoopPrompt:
    """What a loop starts from; ``keys`` are those of the values that it reads.

    A prompt that is the tokens of a text input knows whose slots its placeholder tokens are: ``X.identities``, if the
    input publishes that, lists (start, stop, digest) of each item.
    """

    def __init__(self, stage: StagePlan, tokenizer: Tokenizer | None) -> None:
        assert stage.spec.decode is not None
        self._binding = stage.spec.decode.prompt
        self._template: TokenTemplate | None = None
        self._whens: list[Binding | None] = []  # of the template's pieces
        self._id, self._reads = stage.id, stage.reads
        pieces = stage.spec.decode.prompt_template
        if pieces is not None:
            if tokenizer is None:
                raise PackageError(f"the prompt of '{stage.id}' is a template of tokens, and there is no tokenizer")
            self._template = TokenTemplate([piece.text for piece in pieces], tokenizer)
            self._whens = [piece.when for piece in pieces]
            read = {name for when in self._whens if when is not None for name in names(when.expr)}
            self.keys = frozenset(key_of(stage.reads, name) for name in {*self._template.parameters, *read})
        else:
            assert self._binding is not None, "checked packages have a prompt"
            self.keys = frozenset(key_of(stage.reads, name) for name in names(self._binding.expr))
        expr = None if self._binding is None else self._binding.expr
        key = stage.reads[expr.text] if isinstance(expr, Name) else ""
        self._text = key.removesuffix(".tokens") if key.endswith(".tokens") else None  # the input that it is

    def tokens(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Its ids. Raises RequestError for none, or for a token that is not in the vocabulary."""
        if self._template is not None:
            wanted = [when is None or self._holds(when, values) for when in self._whens]
            prompt = self._template.ids(lambda slot: values[self._reads[f"parameters.{slot}"]], wanted)
        else:
            assert self._binding is not None
            found = evaluate(self._binding.expr, lambda name: values[self._reads[name]])
            prompt = self._ids(found)
        if not prompt:
            raise RequestError("the prompt has no tokens", param="prompt", hint="give at least one character or token")
        return prompt

    def _ids(self, found: Any) -> tuple[int, ...]:
        try:
            return tuple(int(token) for token in _flat(found))
        except (TypeError, ValueError) as error:
            message = f"the prompt of '{self._id}' is no list of tokens: {error}"
            raise RequestError(message, param="prompt", hint="bind prompt: to a text's tokens, or to a list") from error

    def _holds(self, when: Binding, values: Mapping[str, Any]) -> bool:
        return bool(evaluate(when.expr, lambda name: values[self._reads[name]]))

    def text(self, values: Mapping[str, Any]) -> str:
        """Its text, where it is the tokens of a text input."""
        text = values.get(f"{self._text}.text") if self._text is not None else None
        return text if isinstance(text, str) else ""

    def identities(self, values: Mapping[str, Any]) -> tuple[Identity, ...]:
        """Whose slots its tokens are, in order."""
        found = values.get(f"{self._text}.identities") if self._text is not None else None
        return tuple(found or ())


def _flat(tokens: Any) -> Any:
    """Tokens without the batch axis that a stage's output has."""
    return tokens[0] if getattr(tokens, "ndim", 1) == 2 and len(tokens) == 1 else tokens
