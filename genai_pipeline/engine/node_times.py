"""Brings what runtimes tell of single nodes into a trace: a track per component, and thread of it, under the runs."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.trace import TraceFile

_log = logging.getLogger(__name__)
_FIRST_TRACK: Final = 10  # those of the engine come before


class NodeTimes:
    """A temporary folder in which runtimes write, until what they wrote is in the trace."""

    def __init__(self, trace: TraceFile, resources: ExitStack) -> None:
        """``resources`` removes the folder, and closes the trace where nobody else does."""
        self._trace = trace
        resources.callback(trace.close)
        folder = tempfile.mkdtemp(prefix="genai-profile-")
        resources.callback(shutil.rmtree, folder, ignore_errors=True)
        self._folder = Path(folder)
        self._tracks: dict[tuple[str, int], int] = {}

    def beginning(self, component: str) -> str:
        """The beginning of the name of a file that the profile of a component's graph goes to."""
        return str(self._folder / component)

    def take_in(self, graphs: Mapping[str, LoadedGraph]) -> None:
        """End the profiles of graphs, which run no more, and write each node's run as an event."""
        for component, graph in graphs.items():
            try:
                for run in graph.end_profile():
                    args = {"component": component, "op": run.op, "provider": run.provider}
                    track = self._track(component, run.thread)
                    self._trace.slice(run.node, track, run.started, run.started + run.seconds, args)
            except OSError as error:  # e.g. a disk that is full
                _log.warning("nodes of '%s' are missing from the trace: %s", component, error)

    def _track(self, component: str, thread: int) -> int:
        key = (component, thread)
        if key not in self._tracks:
            number = sum(name == component for name, _ in self._tracks) + 1
            self._tracks[key] = _FIRST_TRACK + len(self._tracks)
            self._trace.track(self._tracks[key], f"nodes of {component}" + (f" ({number})" if number > 1 else ""))
        return self._tracks[key]
