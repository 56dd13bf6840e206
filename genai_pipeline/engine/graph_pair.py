"""Two graphs of one component: one for the first run of a sequence, one for later runs, with one set of ports.

A port that only one of them has is bound for that one alone, so that callers need not know which of the two runs. The
state of first runs becomes the past of later ones as with any other graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Abilities, Binding, Buffer, LoadedGraph, Memory, NodeRun
from genai_pipeline.graph.signature import GraphSignature, joined


class GraphPair:
    """A loaded graph that is one of two, by run (``LoadedGraph``)."""

    def __init__(self, first: LoadedGraph, later: LoadedGraph) -> None:
        assert first.logit_rows == later.logit_rows, "both give their logits in one form"
        self.first, self.later = first, later
        self._signature = joined(first.signature, later.signature)

    @property
    def signature(self) -> GraphSignature:
        """The ports of both."""
        return self._signature

    @property
    def backend(self) -> str:
        """See LoadedGraph.backend."""
        return self.later.backend

    @property
    def abilities(self) -> Abilities:
        """What both can do."""
        one, two = self.first.abilities, self.later.abilities
        return Abilities(
            in_place=one.in_place & two.in_place,
            alone_on_past=one.alone_on_past | two.alone_on_past,
            cancels=one.cancels and two.cancels,
        )

    @property
    def memory(self) -> Memory | None:
        """That of later runs, where both have it."""
        return self.later.memory if self.first.memory is not None else None

    @property
    def placement(self) -> Mapping[str, int]:
        """The nodes of both."""
        return Counter(self.later.placement) + Counter(self.first.placement)

    @property
    def shortfall(self) -> Shortfall:
        """What either lacks."""
        one, two = self.first.shortfall, self.later.shortfall
        return Shortfall(
            missing={**one.missing, **two.missing},
            unused=tuple(name for name in two.unused if name in one.unused),
            fallen=dict((Counter(two.fallen) + Counter(one.fallen)).most_common()),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """See LoadedGraph.notes."""
        return tuple(dict.fromkeys((*self.first.notes, *self.later.notes)))

    @property
    def logit_rows(self) -> bool:
        """See LoadedGraph.logit_rows."""
        return self.later.logit_rows

    @property
    def graph_seconds(self) -> float:
        """Seconds in both."""
        return self.first.graph_seconds + self.later.graph_seconds

    def binding(self) -> PairBinding:
        """A binding of both."""
        return PairBinding(self.first, self.later)

    def end_profile(self) -> Iterable[NodeRun]:
        """What ran of both."""
        yield from self.first.end_profile()
        yield from self.later.end_profile()

    def close(self) -> None:
        """Free both."""
        self.first.close()
        self.later.close()


class PairBinding:
    """Ports of both graphs bound together (``Binding``); ``choose`` says which one runs next."""

    def __init__(self, first: LoadedGraph, later: LoadedGraph) -> None:
        self._bindings: tuple[Binding, Binding] = (first.binding(), later.binding())
        self._signatures = (first.signature, later.signature)
        self._current = 0

    def choose(self, *, first: bool) -> None:
        """Which graph ``run`` and ``output`` are of from now on."""
        self._current = 0 if first else 1

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """See Binding.bind_input."""
        for binding, signature in zip(self._bindings, self._signatures, strict=True):
            if port in signature.inputs:
                binding.bind_input(port, buffer)

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """See Binding.bind_output."""
        for binding, signature in zip(self._bindings, self._signatures, strict=True):
            if port in signature.outputs:
                binding.bind_output(port, buffer)

    def run(self) -> None:
        """See Binding.run."""
        self._bindings[self._current].run()

    def output(self, port: str) -> NDArray[Any]:
        """See Binding.output."""
        return self._bindings[self._current].output(port)

    def cancel(self) -> None:
        """See Binding.cancel."""
        for binding in self._bindings:
            binding.cancel()

    def resume(self) -> None:
        """See Binding.resume."""
        for binding in self._bindings:
            binding.resume()
