"""What loaded graphs of every runtime with sessions have in common: ports, placement, notes, time and bindings."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from genai_pipeline.backends.dtypes import runtime_dtype_name
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Binding, NodeRun
from genai_pipeline.backends.rewriting import Rewritten
from genai_pipeline.graph.signature import GraphSignature, Port


class ClosableBinding(Binding, Protocol):
    """A binding that lets go of what it holds."""

    def close(self) -> None:
        """Let go of session and buffers."""


B = TypeVar("B", bound=ClosableBinding)


class SessionGraph(Generic[B]):
    """A session and what is known of it; ``source`` are the ports of the file, ``rewritten`` what was changed in it."""

    def __init__(
        self,
        session: Any,
        component: str,
        *,
        placement: Mapping[str, int],
        notes: tuple[str, ...],
        shortfall: Shortfall,
        source: GraphSignature,
        rewritten: Rewritten,
    ) -> None:
        self.component = component
        self.session = session
        self._signature = session_signature(session, source, rewritten.changed_ports)
        self._placement = placement
        self._shortfall = shortfall
        self._notes = (*shortfall.texts(component, placement), *notes)
        self._logit_rows = rewritten.logits is not None
        self._seconds = 0.0
        self._bindings: weakref.WeakSet[B] = weakref.WeakSet()

    @property
    def signature(self) -> GraphSignature:
        """Ports as the session has them, after load-time rewrites."""
        return self._signature

    @property
    def placement(self) -> Mapping[str, int]:
        """Nodes by provider."""
        return self._placement

    @property
    def shortfall(self) -> Shortfall:
        """What of the providers that were asked for was not met."""
        return self._shortfall

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

    def end_profile(self) -> Iterable[NodeRun]:
        """Nothing, where the runtime has no profile."""
        return ()

    def close(self) -> None:
        """Free the session at once, and what its bindings hold; none of them may run any more."""
        for binding in list(self._bindings):
            binding.close()
        self.session = None

    def _kept(self, made: B) -> B:
        """A new binding, which ends with the graph."""
        self._bindings.add(made)
        return made


def session_signature(session: Any, source: GraphSignature, rewritten: frozenset[str]) -> GraphSignature:
    """Ports of a session: as the file has them, except for those that a rewrite added or changed."""

    def port(arg: Any, known: Mapping[str, Port]) -> Port:
        return known[arg.name] if arg.name in known and arg.name not in rewritten else _port(arg)

    return GraphSignature(
        inputs={arg.name: port(arg, source.inputs) for arg in session.get_inputs()},
        outputs={arg.name: port(arg, source.outputs) for arg in session.get_outputs()},
        opset=source.opset,
        metadata=source.metadata,
        windows=source.windows,
    )


def _port(arg: Any) -> Port:
    shape = tuple(dim if isinstance(dim, int) else dim or "" for dim in arg.shape)
    return Port(arg.name, runtime_dtype_name(arg.type), shape)
