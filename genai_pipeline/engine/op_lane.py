"""Worker threads for operations that take their time: decoding boxes, cropping, writing pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from genai_pipeline.engine.op_stage import OpCall, OpStage
from genai_pipeline.errors import GenaiError

NUM_THREADS = 2
Outcome = Mapping[str, Any] | GenaiError
Post = Callable[[Callable[[], None]], None]  # hands a command to the engine thread


class OpLane:
    """Runs calls of operations in the order they come; what they give goes to ``done`` on the engine thread."""

    def __init__(self, stages: Mapping[str, OpStage], post: Post, done: Callable[[OpCall, Outcome], None]) -> None:
        self._stages = stages
        self._post = post
        self._done = done
        slow = any(stage.offload for stage in stages.values())
        self._workers = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="genai-op") if slow else None

    def start(self, prepared: OpCall) -> None:
        """Run a call."""
        assert self._workers is not None, "only stages that offload come here"
        self._workers.submit(self._run, prepared)

    def close(self) -> None:
        """Wait for the calls in progress, and stop."""
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)

    def _run(self, prepared: OpCall) -> None:
        if prepared.call.request.done:
            return
        try:
            outcome: Outcome = self._stages[prepared.path].run(prepared)
        except GenaiError as error:
            outcome = error
        except BaseException as cause:  # noqa: BLE001 - a defect of ours: the engine thread stops with it
            self._post(lambda cause=cause: _fail(cause))  # type: ignore[misc]
            return
        self._post(lambda: self._done(prepared, outcome))


def _fail(cause: BaseException) -> None:
    raise cause
