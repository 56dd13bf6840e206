"""The form that a request wants of its answer: tools, bounds of reasoning, and a constraint."""

from __future__ import annotations

from dataclasses import dataclass, field

from genai_pipeline.constraints.spec import ConstraintSpec
from genai_pipeline.preprocess.answer_options import AnswerOptions


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What was asked for, checked as far as that goes without a package."""

    options: AnswerOptions = field(default_factory=AnswerOptions)
    constraint: ConstraintSpec | None = None

    @property
    def plain(self) -> bool:
        """Whether any text will do, and nothing in it means more than text."""
        return self.constraint is None and self.options == AnswerOptions()
