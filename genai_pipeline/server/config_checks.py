"""Values of a configuration file that no schema can judge: sizes, options of loading, secrets. All are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from genai_pipeline.config import LoadOptions, check_load_option
from genai_pipeline.errors import OptionError
from genai_pipeline.kv.budget import machine_memory, parse_memory, parse_size
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problem
from genai_pipeline.server.callers import ApiKey

CODE: Final = "server.value"

Fits = Callable[[Node], bool]
MakeKey = Callable[[Mapping[str, Any]], ApiKey]


def _memory(name: str, value: Any) -> Any:
    return parse_memory(value, machine_memory())


def _size(name: str, value: Any) -> Any:
    return None if value is None or (value == 0 and name == "encoder_cache") else parse_size(name, value)


# Options whose value is looked at closely only where a package is loaded.
_LATER: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "memory": _memory,
    "cache_disk": _size,
    "encoder_cache": _size,
}


def check_values(root: Node, given: Mapping[str, Any], fits: Fits, make_key: MakeKey) -> Iterator[Problem]:
    """What is wrong with the values of a file; ``given`` are load options of the command, which win over its own.

    ``fits``: whether the schema finds nothing wrong with a value; ``make_key`` makes a key of such an entry.
    """
    memory, common = root.get("memory"), root.get("load")
    if memory is not None and fits(memory):
        yield from _tried(memory, partial(_memory, "memory", memory.plain()))
    if common is not None:
        yield from _load(common)
    packages = root.get("packages")
    for entry in () if packages is None else packages.items:
        yield from _package(entry, common, given)
    keys = root.get("keys")
    yield from _keys([] if keys is None else [entry for entry in keys.items if fits(entry)], make_key)


def _package(entry: Node, common: Node | None, given: Mapping[str, Any]) -> Iterator[Problem]:
    own = entry.get("load")
    found = [] if own is None else list(_load(own))
    yield from found
    if not found and (common is None or not list(_load(common))):
        load = {**_mapping(common), **_mapping(own), **given}
        yield from _tried(entry if own is None else own, partial(LoadOptions.of, **load))


def _load(load: Node) -> Iterator[Problem]:
    """Options one by one; how they go together is seen where all of a package are known."""
    for name, node in load.mapping.items():
        if name == "precision":
            hint = "it stands beside 'load', in the entry of a package"
            yield Problem(node.named_at, CODE, "precision is no option of loading", hint)
        else:
            yield from _tried(node, partial(_option, name, node.plain()))


def _option(name: str, value: Any) -> None:
    check_load_option(name, value)
    if name in _LATER:
        _LATER[name](name, value)


def _keys(entries: Iterable[Node], make_key: MakeKey) -> Iterator[Problem]:
    ids: set[str] = set()
    for entry in entries:
        given = _mapping(entry)
        yield from _tried(entry, partial(make_key, given))
        if given["id"] in ids:
            yield Problem(entry.named_at, CODE, f"two API keys have the name '{given['id']}'")
        ids.add(given["id"])


def _mapping(node: Node | None) -> dict[str, Any]:
    plain = None if node is None else node.plain()
    return plain if isinstance(plain, dict) else {}


def _tried(node: Node, make: Callable[[], Any]) -> Iterator[Problem]:
    try:
        make()
    except OptionError as error:
        yield Problem(node.named_at, CODE, error.message, error.hint)
