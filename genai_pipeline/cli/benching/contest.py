"""Contestants in processes of their own that take turns: several spinning thread pools in one process slow each other.

The parent speaks one line of JSON per question, the child answers with one. Run as a module, this is the child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any, Protocol

from genai_pipeline.cli.benching.load import Schedule
from genai_pipeline.cli.benching.measure import Record
from genai_pipeline.errors import BackendError, GenaiError


class Contestant(Protocol):
    """Something that runs loads."""

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""

    def close(self) -> None:
        """Free what it holds."""


def own(package: str, options: Mapping[str, Any]) -> Contestant:
    """This project's engine, the package loaded with these options of ``gp.load``."""
    import genai_pipeline as gp
    from genai_pipeline.cli.benching.ours import OwnContestant

    return OwnContestant(gp.load(package, **options))


def peer(package: str, options: Mapping[str, Any]) -> Contestant:
    """onnxruntime-genai on the package's ONNX file; ``options`` has ``max_length``."""
    from genai_pipeline.cli.benching.peer import PeerContestant
    from genai_pipeline.metadata.load import load_package
    from genai_pipeline.pipeline import compile

    spec, _ = load_package(package)
    assert spec is not None, "the parent has checked the package"
    return PeerContestant(compile(spec), options["max_length"])


CONTESTANTS = {"own": own, "peer": peer}


class Remote:
    """A contestant in a process of its own. Raises BackendError with the child's own words when it fails."""

    def __init__(self, kind: str, package: str, options: Mapping[str, Any]) -> None:
        self._kind = kind
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self._ask({"kind": kind, "package": package, "options": dict(options)})
        except BaseException:
            self.close()
            raise

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""
        return [Record.from_dict(fields) for fields in self._ask(schedule.to_dict())]

    def close(self) -> None:
        """End the process: it ends when nobody asks any more."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(question) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BackendError(f"the process of contestant '{self._kind}' ended early")
        answer = json.loads(line)
        if "error" in answer:
            raise BackendError(f"contestant '{self._kind}': {answer['error']}", hint=answer["hint"])
        return answer["result"]


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Set up the contestant that the first line asks for, then run one schedule per line."""
    contestant: Contestant | None = None
    for line in questions:
        question = json.loads(line)
        result: list[dict[str, Any]] = []
        try:
            if contestant is None:
                contestant = CONTESTANTS[question["kind"]](question["package"], question["options"])
            else:
                result = [record.to_dict() for record in contestant.run(Schedule.from_dict(question))]
            answer: dict[str, Any] = {"result": result}
        except GenaiError as error:
            answer = {"error": error.message, "hint": error.hint}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if contestant is not None:
        contestant.close()


def main() -> None:
    """The child. What a library prints to stdout must not end up among the answers: it goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, answers)
    except KeyboardInterrupt:
        os._exit(130)  # the parent got it too, and says what there is to say


if __name__ == "__main__":
    main()
