"""One ONNX Runtime session as a loaded graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genai_pipeline.backends.ort_binding import OrtBinding
from genai_pipeline.backends.ort_memory import OrtMemory
from genai_pipeline.backends.ort_profile import OrtProfile
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Abilities, Memory, NodeRun
from genai_pipeline.backends.rewriting import Rewritten
from genai_pipeline.backends.session_graph import SessionGraph
from genai_pipeline.graph.signature import GraphSignature


class OrtGraph(SessionGraph[OrtBinding]):
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
        shortfall: Shortfall,
        source: GraphSignature,
        rewritten: Rewritten,
        memory: OrtMemory | None = None,
        profile: OrtProfile | None = None,
    ) -> None:
        super().__init__(
            session,
            component,
            placement=placement,
            notes=notes,
            shortfall=shortfall,
            source=source,
            rewritten=rewritten,
        )
        self.native = session._sess
        self.place = runtime.OrtDevice.make("cpu", 0)._get_c_device()
        self._memory = memory
        self._profile = profile
        self._places = {"cpu": self.place} if memory is None else {"cpu": self.place, memory.device: memory.native}
        # The runtime copies an input to the device when it is bound, not when it runs.
        self.copies_inputs = memory is not None or any(name != "cpu" for name in placement)
        self.new_run_options = runtime.RunOptions

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

    def end_profile(self) -> Iterable[NodeRun]:
        """The nodes that ran."""
        if self._profile is not None:
            profile, self._profile = self._profile, None
            yield from profile.end()

    def place_of(self, device: str) -> Any:
        """The runtime's name for where the buffers of a device live."""
        return self._places[device]

    def binding(self) -> OrtBinding:
        """A new, empty binding."""
        return self._kept(OrtBinding(self))

    def close(self) -> None:
        """Free the session at once."""
        super().close()
        self.native = None
