"""ONNX Runtime's own profile of a session: which node ran when, on the clock of time.perf_counter.

The runtime writes one JSON event a line and counts microseconds from a start that it tells on its platform's clock. It
keeps a million events of a session and leaves out the rest.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genai_pipeline.backends.protocol import NodeRun
from genai_pipeline.backends.providers import short_name

_KERNEL: Final = "_kernel_time"  # ends the name of the event of a node's run
_READINGS: Final = 8
_CLOCKS: Final = (time.time_ns, time.perf_counter_ns, time.monotonic_ns)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrtProfile:
    """A profile that a session writes; ``started``: when it began, on the clock of time.perf_counter."""

    session: Any
    started: float

    @staticmethod
    def of(session: Any) -> OrtProfile:
        """That of a session that was just created with profiling on."""
        origin = int(session.get_profiling_start_time_ns())
        clock = min(_CLOCKS, key=lambda clock: abs(clock() - origin))  # that it was read from
        return OrtProfile(session, (origin - _ahead(clock)) / 1e9)

    def end(self) -> Iterator[NodeRun]:
        """Stop profiling, give what ran, and remove the runtime's file."""
        file = Path(self.session.end_profiling())
        try:
            yield from self._read(file)
        finally:
            file.unlink(missing_ok=True)

    def _read(self, file: Path) -> Iterator[NodeRun]:
        num_unread = 0
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.strip().rstrip(",")
                if text in ("[", "]", ""):
                    continue
                try:
                    event = json.loads(text)
                except ValueError:  # the runtime does not escape what is in names
                    num_unread += 1
                    continue
                if event["cat"] == "Node" and event["name"].endswith(_KERNEL):
                    yield self._run(event)
        if num_unread:
            _log.warning("%d events of ONNX Runtime's profile cannot be read and are left out of the trace", num_unread)

    def _run(self, event: dict[str, Any]) -> NodeRun:
        args = event["args"]
        return NodeRun(
            node=event["name"].removesuffix(_KERNEL),
            op=args.get("op_name", ""),
            provider=short_name(args.get("provider", "")),
            thread=event["tid"],
            started=self.started + event["ts"] / 1e6,
            seconds=event["dur"] / 1e6,
        )


def _ahead(clock: Callable[[], int]) -> int:
    """Nanoseconds that a clock is ahead of time.perf_counter, from the closest of some readings of both."""
    readings = []
    for _ in range(_READINGS):
        before, there, after = time.perf_counter_ns(), clock(), time.perf_counter_ns()
        readings.append((after - before, there - (before + after) // 2))
    return min(readings)[1]
