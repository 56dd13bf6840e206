"""One nxrt session as a loaded graph."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from genai_pipeline.backends.nxrt_binding import NxrtBinding
from genai_pipeline.backends.protocol import Abilities, Memory
from genai_pipeline.backends.rewriting import Rewritten
from genai_pipeline.backends.session_ports import session_signature
from genai_pipeline.graph.signature import GraphSignature

ABILITIES = Abilities(in_place=frozenset(), alone_on_past=frozenset())  # outputs are always memory of its own


class NxrtGraph:
    """A session, and the files it was made from, which ``resources`` removes."""

    def __init__(
        self,
        session: Any,
        component: str,
        *,
        nodes: int,
        notes: tuple[str, ...],
        source: GraphSignature,
        rewritten: Rewritten,
        resources: ExitStack,
    ) -> None:
        self.component = component
        self.session = session
        self._signature = session_signature(session, source, rewritten.changed_ports)
        self._nodes = nodes
        self._notes = notes
        self._logit_rows = rewritten.logits is not None
        self._resources = resources
        self._seconds = 0.0
        self._bindings: weakref.WeakSet[NxrtBinding] = weakref.WeakSet()

    @property
    def signature(self) -> GraphSignature:
        """Ports as the session has them, after load-time rewrites."""
        return self._signature

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

    @property
    def providers(self) -> tuple[str, ...]:
        """What runs the graph."""
        return tuple(self.placement)

    @property
    def placement(self) -> Mapping[str, int]:
        """Nodes by provider: all of them on the one there is."""
        return {"cpu": self._nodes}

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

    def binding(self) -> NxrtBinding:
        """A new, empty binding."""
        made = NxrtBinding(self)
        self._bindings.add(made)
        return made

    def end_profile(self) -> Path | None:
        """Nothing: this runtime has no profile."""
        return None

    def close(self) -> None:
        """Free the session and what its bindings hold; none of them may run any more."""
        for binding in list(self._bindings):
            binding.close()
        self.session = None
        self._resources.close()
