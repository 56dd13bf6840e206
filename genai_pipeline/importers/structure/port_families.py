"""Names of ports as families: past_key_values.0.key ... past_key_values.29.value are one pattern with two slots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from genai_pipeline.graph.signature import Dim, Port

PART = "state"  # the part of a family whose names have none
_PART_NAME = re.compile(r"(?<![A-Za-z])(keys?|values?|k|v)(?![A-Za-z])")
_BOTH, _REST = "key_", "_values"  # of "key_values", which names both parts and so none
_NUMBER = re.compile(r"(\d+)")
# Words that say which side of a pair a port is on, or that it is a state at all, but not which state.
_SIDES = frozenset({
    "past", "present", "cache", "caches", "in", "out", "input", "output", "new", "next", "prev", "previous", "old",
    "updated", "key", "values", "value", "kv", "init", "initial", "last", "cur", "current", "final", "n",
})  # fmt: skip
_STATE_WORDS = frozenset({
    "past", "cache", "state", "states", "hidden", "cell", "memory", "mem", "h", "c", "kv", "conv", "ssm", "recurrent",
    "rnn", "lstm", "gru",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """Ports that differ in layer and part only; ``pattern`` has ``{layer}`` and ``{part}`` where they have several."""

    pattern: str
    ports: Mapping[tuple[int, str], Port]

    @property
    def words(self) -> frozenset[str]:
        """The words of the pattern, without those that only say on which side of a pair it is."""
        return frozenset(_words(self.pattern)) - _SIDES

    @property
    def says_state(self) -> bool:
        """Whether the name has a word for state."""
        return not _STATE_WORDS.isdisjoint(_words(self.pattern))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of its ports."""
        return tuple(dict.fromkeys(port.dtype for port in self.ports.values()))

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape of its first port."""
        return next(iter(self.ports.values())).shape


def families(ports: Iterable[Port]) -> tuple[Family, ...]:
    """All ports by family, in the order of the first of each."""
    groups: dict[tuple[str, ...], list[tuple[Port, tuple[str, ...], str]]] = {}
    for port in ports:
        text, part = _without_part(port.name)
        pieces = _NUMBER.split(text)
        groups.setdefault(tuple(pieces[0::2]), []).append((port, tuple(pieces[1::2]), part))
    return tuple(family for texts, members in groups.items() for family in _split(texts, members))


def _split(texts: Sequence[str], members: list[tuple[Port, tuple[str, ...], str]]) -> Iterable[Family]:
    """The families of names with the same texts: the first number that differs is the layer, the others are fixed."""
    count = len(texts) - 1
    varies = next((i for i in range(count) if len({numbers[i] for _, numbers, _ in members}) > 1), 0)
    fixed: dict[tuple[str, ...], dict[tuple[int, str], Port]] = {}
    for port, numbers, part in members:
        layer = int(numbers[varies]) if count else 0
        rest = (*numbers[:varies], *numbers[varies + 1 :])
        fixed.setdefault(rest, {})[layer, part] = port
    for rest, ports in fixed.items():
        yield Family(_pattern(texts, rest, varies, count), ports)


def _pattern(texts: Sequence[str], rest: Sequence[str], varies: int, count: int) -> str:
    slots = [*rest[:varies], "{layer}", *rest[varies:]] if count else []
    return texts[0] + "".join(slot + text for slot, text in zip(slots, texts[1:], strict=True))


def _without_part(name: str) -> tuple[str, str]:
    """A name with a slot for its last part word, and the part."""
    found = [match for match in _PART_NAME.finditer(name) if not name[: match.start()].lower().endswith(_BOTH)]
    if not found or name[found[-1].end() :].lower().startswith(_REST):
        return name, PART
    return f"{name[: found[-1].start()]}{{part}}{name[found[-1].end() :]}", found[-1].group()


def _words(pattern: str) -> list[str]:
    """The words of a name, lower case; capitals inside begin one."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", pattern.replace("{layer}", " ").replace("{part}", " "))
    return [word for word in re.split(r"[^a-z]+", spaced.lower()) if word]


def same_tensors(one: Family, two: Family) -> bool:
    """Whether each port of one can be that of the other: the same layers and parts, dtypes, ranks and fixed sizes."""
    return one.ports.keys() == two.ports.keys() and all(_fits(one.ports[key], two.ports[key]) for key in one.ports)


def _fits(one: Port, two: Port) -> bool:
    if one.dtype != two.dtype or one.shape is None or two.shape is None or len(one.shape) != len(two.shape):
        return one.dtype == two.dtype and (one.shape is None or two.shape is None)
    pairs = list(zip(one.shape, two.shape, strict=True))
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def open_axes(family: Family) -> tuple[int, ...]:
    """The axes that the first port leaves open; () where the rank is not known."""
    return tuple(axis for axis, dim in enumerate(family.shape or ()) if not isinstance(dim, int))
