"""One nxrt session as a loaded graph."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from genai_pipeline.backends.nxrt_binding import NxrtBinding
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Abilities, Memory
from genai_pipeline.backends.rewriting import Rewritten
from genai_pipeline.backends.session_graph import SessionGraph
from genai_pipeline.graph.signature import GraphSignature

ABILITIES = Abilities(in_place=frozenset(), alone_on_past=frozenset())  # outputs are always memory of its own


class NxrtGraph(SessionGraph[NxrtBinding]):
    """A session, and the files it was made from, which ``resources`` removes."""

    def __init__(
        self,
        session: Any,
        component: str,
        *,
        nodes: int,
        notes: tuple[str, ...],
        shortfall: Shortfall,
        source: GraphSignature,
        rewritten: Rewritten,
        resources: ExitStack,
    ) -> None:
        super().__init__(
            session,
            component,
            placement={"cpu": nodes},
            notes=notes,
            shortfall=shortfall,
            source=source,
            rewritten=rewritten,
        )
        self._resources = resources

    @property
    def backend(self) -> str:
        """The backend that loaded it."""
        return "nxrt"

    @property
    def abilities(self) -> Abilities:
        """No state in place."""
        return ABILITIES

    @property
    def memory(self) -> Memory | None:
        """The host's."""
        return None

    def binding(self) -> NxrtBinding:
        """A new, empty binding."""
        return self._kept(NxrtBinding(self))

    def close(self) -> None:
        """Free the session and its files."""
        super().close()
        self._resources.close()
