"""Processes that take turns: one line of JSON asks, one answers.

Contestants of a benchmark live in processes of their own: several spinning thread pools in one slow each other down.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from genai_pipeline.errors import BackendError, GenaiError


class Child:
    """A process that was started with ``command`` and serves ``answer``."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, question: Any) -> Any:
        """The child's answer. Raises BackendError with its own words when it fails or has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BackendError(f"the process of '{self.name}' ended early")
        answer = json.loads(line)
        if "error" in answer:
            raise BackendError(f"{self.name}: {answer['error']}", hint=answer["hint"])
        return answer["result"]

    def close(self) -> None:
        """End the process: it ends when nobody asks any more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def answer(reply: Callable[[Any], Any]) -> None:
    """Be a child: answer each question on stdin with ``reply``, until nobody asks any more.

    What a library prints to stdout must not end up among the answers: it goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            message = {"result": reply(json.loads(line))}
        except GenaiError as error:
            message = {"error": error.message, "hint": error.hint}
        except KeyboardInterrupt:
            os._exit(130)  # the parent was interrupted too, and says what there is to say
        answers.write(json.dumps(message) + "\n")
        answers.flush()
