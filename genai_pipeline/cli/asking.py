"""How a request of ``run`` is put to the pipeline: by itself, by the names of inputs, or as a turn of a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.media_in import attachments, content, naming
from genai_pipeline.errors import RequestError

if TYPE_CHECKING:
    from genai_pipeline.engine.session import Session
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.types import Event, Result

    Events = AbstractContextManager[Iterator[Event]]


@dataclass(frozen=True, slots=True)
class Question:
    """A request that waits to be asked, in one of two ways."""

    generate: Callable[[], Result]
    stream: Callable[[], Events]


@contextmanager
def question(pipe: Pipeline, prompt: str | None, options: Mapping[str, Any], path: str | None) -> Iterator[Question]:
    """The question; ``path``: of the conversation it belongs to, which is saved there when it was answered."""
    if path is None:
        yield Question(
            lambda: pipe.generate(prompt, **options),
            lambda: pipe.stream(prompt, **options),
        )
        return
    with pipe.session(path if os.path.lexists(path) else None) as session:
        turn = dict(options)
        _begin(session, turn.pop("system", None))
        files = attachments(turn)
        said = content(prompt or "", files)
        place = f"messages[{len(session.messages)}].content"
        with naming({f"{place}[{index}]": file.path for index, file in enumerate(files)}):
            yield Question(
                lambda: session.chat(said, **turn),
                lambda: closing(session.stream(said, **turn)),  # type: ignore[type-var]
            )
        session.save(path)


def named_question(pipe: Pipeline, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Question:
    """The question to a package that answers in text, but takes something else."""
    from genai_pipeline.engine.collect import collect_result

    def whole() -> Result:
        with pipe.stream_run(inputs, **options) as events:
            return collect_result(events)

    return Question(whole, lambda: pipe.stream_run(inputs, **options))


def _begin(session: Session, system: str | None) -> None:
    """Put a system message first, which only a new conversation can have."""
    from genai_pipeline.engine.session import Mark

    if system is None:
        return
    if session.messages:
        raise RequestError("--system is for the first turn of a session", param="system", hint="leave it out")
    session.rewind(Mark(({"role": "system", "content": system},), ()))
