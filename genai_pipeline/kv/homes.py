"""Where the state of a component lives: on the host or in a device's memory, updated in place or gathered per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_pipeline.backends.protocol import Abilities, LoadedGraph, Memory
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.append import AppendStorage
from genai_pipeline.kv.arena import ArenaStorage
from genai_pipeline.kv.device_arena import DeviceArenaStorage
from genai_pipeline.kv.fixed import FixedStorage
from genai_pipeline.kv.gathered import GatheredStorage
from genai_pipeline.kv.geometry import ARENA_UPDATES, TensorLayout, aligned_capacity, bytes_per_token
from genai_pipeline.kv.replace import ReplaceStorage
from genai_pipeline.kv.storage import StateStorage


@dataclass(frozen=True, slots=True)
class StateHome:
    """What a loaded graph allows for its state."""

    in_place: frozenset[str] = Abilities().in_place
    memory: Memory | None = None

    @staticmethod
    def of(graph: LoadedGraph) -> StateHome:
        """The home that a graph offers."""
        return StateHome(graph.abilities.in_place, graph.memory)

    def has_arena(self, state: StatePlan) -> bool:
        """Whether rows of a state have fixed places side by side, so that a batch is a range of rows."""
        return state.update in ARENA_UPDATES and state.update in self.in_place


HOST = StateHome()
DEVICE_SHARE = 0.8  # of a device's free memory: what graphs compute needs the rest


def has_arenas(components: Mapping[str, Sequence[StatePlan]], homes: Mapping[str, StateHome]) -> bool:
    """Whether any component has an arena."""
    return any(homes.get(name, HOST).has_arena(state) for name, states in components.items() for state in states)


def pays_in_full(
    components: Mapping[str, Sequence[StatePlan]], homes: Mapping[str, StateHome], *, sparse: bool
) -> bool:
    """Whether rows of any component take their whole memory at once: a device's, or the host's unless ``sparse``."""
    return any(
        home.has_arena(state) and (home.memory is not None or not sparse)
        for name, states in components.items()
        for home in [homes.get(name, HOST)]
        for state in states
    )


def rows_that_fit(
    components: Mapping[str, Sequence[StatePlan]], homes: Mapping[str, StateHome], capacity: int
) -> int | None:
    """Rows of ``capacity`` tokens that the devices have memory for; None: nothing lies there, or they do not say."""
    wanted: dict[str, int] = {}  # bytes of a token by device
    free: dict[str, int] = {}
    for name, states in components.items():
        home = homes.get(name, HOST)
        taken = bytes_per_token(state for state in states if home.has_arena(state))
        if home.memory is not None and taken and home.memory.free is not None:
            wanted[home.memory.device] = wanted.get(home.memory.device, 0) + taken
            free[home.memory.device] = int(DEVICE_SHARE * home.memory.free)
    return min((free[device] // (taken * capacity) for device, taken in wanted.items()), default=None)


def create_storages(
    states: Sequence[StatePlan], max_rows: int, capacity: int, home: StateHome = HOST
) -> tuple[StateStorage, ...]:
    """One storage per state entry of a component."""
    layouts = [TensorLayout.of(tensor) for state in states if home.has_arena(state) for tensor in state.tensors]
    aligned = aligned_capacity(layouts, capacity)
    return tuple(_storage(state, max_rows, capacity, aligned, home) for state in states)


def _storage(state: StatePlan, max_rows: int, capacity: int, aligned: int, home: StateHome) -> StateStorage:
    if state.update in ARENA_UPDATES and not home.has_arena(state):
        return GatheredStorage(state, capacity=capacity)
    if home.memory is not None and home.has_arena(state):
        blank = state.update == "scatter"  # see below
        return DeviceArenaStorage(state, home.memory, max_rows=max_rows, capacity=capacity, blank=blank)
    if state.update == "in_place":
        return ArenaStorage(state, max_rows=max_rows, capacity=aligned)
    if state.update == "scatter":
        # Its graphs read the whole buffer and mask what is not in use; a row starts from zeros, as nothing that an
        # ended sequence left behind may be read, not even with a weight of 0.
        return ArenaStorage(state, max_rows=max_rows, capacity=aligned, warm_tokens=0)
    if state.update == "append":
        return AppendStorage(state, capacity=capacity)
    return ReplaceStorage(state) if state.update == "replace" else FixedStorage(state, max_rows)
