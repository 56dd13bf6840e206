"""Where every entry of the metadata file was written, by its YAML path.

A check that knows only the place of a construct and the key at fault gives a problem the construct's line and the
key's path; ``placed`` puts such problems on the line of the key itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_pipeline.metadata.nodes import Node, child_path
from genai_pipeline.problems import Location, Problem


@dataclass(frozen=True, slots=True)
class Places:
    """The place of every entry by YAML path: of its key, and of its value where it is an item of a list."""

    entries: Mapping[str, Location] = field(default_factory=dict)

    @staticmethod
    def of(root: Node) -> Places:
        """The places of a document; a misspelt key is found under the name that was meant."""
        return Places(dict(_by_path(root)))

    def locate(self, path: str) -> Location | None:
        """The place of the entry with that path, else of the closest one around it that is there."""
        return next((self.entries[around] for around in (path, *_outer(path)) if around in self.entries), None)

    def placed(self, problem: Problem) -> Problem:
        """The problem on the line of its path, if it has that of an entry around it."""
        at = problem.at
        around = (self.entries.get(path) for path in _outer(at.path))
        if not any(place is not None and replace(place, path=at.path) == at for place in around):
            return problem
        found = self.locate(at.path)
        assert found is not None
        return replace(problem, at=replace(found, path=found.path if at.path in self.entries else at.path))


def placed(problems: Iterable[Problem], places: Places) -> tuple[Problem, ...]:
    """Problems with the lines of their paths."""
    return tuple(places.placed(problem) for problem in problems)


def _outer(path: str) -> Iterator[str]:
    """The paths of the entries around one, innermost first."""
    while path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
        yield path


def _by_path(root: Node) -> Iterator[tuple[str, Location]]:
    pending = [("", root)]
    while pending:
        path, node = pending.pop()
        yield path, node.named_at
        entries = enumerate(node.items) if node.items else node.mapping.items()
        pending.extend((child_path(path, key), child) for key, child in entries)
