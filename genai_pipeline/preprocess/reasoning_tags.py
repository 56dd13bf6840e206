"""Texts that a model puts around its reasoning, and reasoning of earlier turns left out of a conversation.

A package declares them (``reasoning: {open, close}``); of one that does not, they are looked for in the chat template,
among the pairs that templates of today use. A template that only writes one of a pair still names both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Pairs of texts in use; an earlier one wins where a template has several.
_KNOWN: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The text that begins reasoning and the one that ends it."""

    open: str
    close: str

    def opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends inside reasoning, so that the answer begins with it."""
        return prompt.rstrip().endswith(self.open)

    def answer_of(self, content: str, *, opened: bool) -> str:
        """A past answer without its reasoning; ``opened``: prompts of this package begin the reasoning."""
        start = content.lstrip()
        if not start.startswith(self.open) and not opened:
            return content
        reasoning, closed, answer = start.partition(self.close)
        if closed:
            return answer.lstrip()
        return "" if reasoning.startswith(self.open) else content


def find_reasoning(declared: Mapping[str, Any] | None, templates: Sequence[str]) -> ReasoningTags | None:
    """The tags of a package: declared ones, or the ones its chat template writes; None when there are none."""
    if declared is not None:
        return ReasoningTags(declared["open"], declared["close"])
    for opening, closing in _KNOWN:
        if any(closing in template for template in templates):
            return ReasoningTags(opening, closing)
    return None


def without_earlier_reasoning(
    messages: Sequence[Mapping[str, Any]], tags: ReasoningTags | None, *, opened: bool = False
) -> list[Mapping[str, Any]]:
    """The conversation without the reasoning of assistant turns before the last user turn.

    What came after it belongs to the answer that is going on (calls of tools and their results); the chat template
    decides about it.
    """
    last = max((i for i, message in enumerate(messages) if _role(message) == "user"), default=0)
    return [_stripped(m, tags, opened) if i < last and _role(m) == "assistant" else m for i, m in enumerate(messages)]


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _stripped(message: Mapping[str, Any], tags: ReasoningTags | None, opened: bool) -> Mapping[str, Any]:
    kept = {key: value for key, value in message.items() if key not in _FIELDS}
    content = kept.get("content")
    if tags is None or content is None:
        return kept
    if isinstance(content, str):
        kept["content"] = tags.answer_of(content, opened=opened)
    elif isinstance(content, list) and content and isinstance(content[0], Mapping):
        first = content[0]
        if isinstance(first.get("text"), str):
            kept["content"] = [{**first, "text": tags.answer_of(first["text"], opened=opened)}, *content[1:]]
    return kept
