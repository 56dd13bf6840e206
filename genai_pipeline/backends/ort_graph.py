"""One ONNX Runtime session as a loaded graph."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genai_pipeline.backends.ort_binding import OrtBinding
from genai_pipeline.backends.ort_memory import OrtMemory
from genai_pipeline.backends.protocol import Abilities, Memory
from genai_pipeline.backends.rewriting import Rewritten
from genai_pipeline.backends.session_ports import session_signature
from genai_pipeline.graph.signature import GraphSignature


class OrtGraph:
    """A session with what bindings need at hand; ``place`` is the runtime's name for the host's memory.

    ``source`` are the ports of the file, ``rewritten`` what was changed in it.
    """

    def __init__(
        self,
        runtime: Any,
        session: Any,
        component: str,
        *,
        placement: Mapping[str, int],
        notes: tuple[str, ...],
        source: GraphSignature,
        rewritten: Rewritten,
        memory: OrtMemory | None = None,
    ) -> None:
        self.component = component
        self.session = session
        self.native = session._sess
        self.place = runtime.OrtDevice.make("cpu", 0)._get_c_device()
        self._memory = memory
        self._places = {"cpu": self.place} if memory is None else {"cpu": self.place, memory.device: memory.native}
        # The runtime copies an input to the device when it is bound, not when it runs.
        self.copies_inputs = memory is not None or any(name != "cpu" for name in placement)
        self.new_run_options = runtime.RunOptions
        self._signature = session_signature(session, source, rewritten.changed_ports)
        self._placement = placement
        self._notes = notes
        self._logit_rows = rewritten.logits is not None
        self._seconds = 0.0
        self._bindings: weakref.WeakSet[OrtBinding] = weakref.WeakSet()

    @property
    def signature(self) -> GraphSignature:
        """Ports as the session has them, after load-time rewrites."""
        return self._signature

    @property
    def backend(self) -> str:
        """The backend that loaded it."""
        return "ort"

    @property
    def abilities(self) -> Abilities:
        """State in place; several tokens on a past that is updated in place are for one row."""
        return Abilities(cancels=True)

    @property
    def memory(self) -> Memory | None:
        """Where state lives best."""
        return self._memory

    def place_of(self, device: str) -> Any:
        """The runtime's name for where the buffers of a device live."""
        return self._places[device]

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that really run nodes of the graph, most preferred first."""
        return tuple(self._placement)

    @property
    def placement(self) -> Mapping[str, int]:
        """Nodes by provider."""
        return self._placement

    @property
    def notes(self) -> tuple[str, ...]:
        """What the load could not honour as asked."""
        return self._notes

    @property
    def logit_rows(self) -> bool:
        """Whether the graph takes ``logit_rows``."""
        return self._logit_rows

    @property
    def graph_seconds(self) -> float:
        """Seconds spent inside runs since loading."""
        return self._seconds

    def add_seconds(self, seconds: float) -> None:
        """Count the time of one run."""
        self._seconds += seconds

    def binding(self) -> OrtBinding:
        """A new, empty binding."""
        made = OrtBinding(self)
        self._bindings.add(made)
        return made

    def end_profile(self) -> Path | None:
        """The file of the runtime's events, where profiling was asked for."""
        return None

    def close(self) -> None:
        """Free the session at once, and what its bindings hold; none of them may run any more."""
        for binding in list(self._bindings):
            binding.close()
        self.session = self.native = None
