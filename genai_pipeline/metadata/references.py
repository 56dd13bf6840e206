"""Checks that every name inside the file stands for something: components, tokenizers, programs, data.

They look at the node tree, so that each problem points at the word itself. ``declared`` comes from the document before
anything faulty was left out: a component with a fault of its own is still a component, and its users have no problem.
Whether values exist and flow is for the graph layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.build_stages import given_ids
from genai_pipeline.metadata.build_values import listed, named
from genai_pipeline.metadata.capabilities import CAPABILITIES
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problems, nearest, one_of

RESERVED: Final = frozenset(
    {"loop", "parameters", "data", "true", "false", "True", "False", "None"}
    | {"and", "or", "not", "if", "else", "in", "is", "lambda"}
)

# kind of name -> problem code, and how messages call it
_KINDS: Final = {
    "component": ("reference.component", "component"),
    "tokenizer": ("reference.tokenizer", "tokenizer"),
    "program": ("reference.program", "preprocess program"),
    "data": ("reference.data", "data entry"),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """The names that a document declares, by kind."""

    components: frozenset[str]
    tokenizers: frozenset[str]
    programs: frozenset[str]
    data: frozenset[str]

    @staticmethod
    def of(*roots: Node) -> Declared:
        """The names in any of several readings of a document."""

        def names(*keys: str) -> frozenset[str]:
            return frozenset(name for root in roots for name, _ in named(_below(root, *keys)))

        single = {DEFAULT_TOKENIZER for root in roots if root.get("tokenizer") is not None}
        return Declared(
            components=names("components"),
            tokenizers=names("tokenizers") | single,
            programs=names("preprocess"),
            data=names("data"),
        )


def check_references(root: Node, declared: Declared, problems: Problems) -> None:
    """Record every name that stands for nothing, and every name that stands for two things."""
    check = _References(declared, problems)
    for _, node in named(root.get("inputs")):
        check.program(node.get("program"))
        check.tokenizer(node.get("tokenizer"))
    for _, node in named(_below(root, "inputs", "parameters")):
        check.data(node.get("from"))
    for _, node in named(root.get("components")):
        check.states(node)
    for stage in all_stages(root):
        check.stage(stage)
    for adapter in listed(root.get("adapters")):
        check.component(adapter.get("component"))
    _check_capabilities(root, problems)
    _check_namespace(root, problems)


def all_stages(root: Node) -> Iterator[Node]:
    """Every stage of the document, bodies and the drafting body included, in order."""
    proposal = _below(root, "speculative", "propose")
    if proposal is not None:
        yield proposal
        yield from _stages(proposal.get("body"))
    yield from _stages(root.get("stages"))


def _stages(node: Node | None) -> Iterator[Node]:
    for stage in listed(node):
        yield stage
        yield from _stages(stage.get("body"))


def _below(root: Node, *keys: str) -> Node | None:
    node: Node | None = root
    for key in keys:
        node = None if node is None else node.get(key)
    return node


class _References:
    """Looks names up in what is declared."""

    def __init__(self, declared: Declared, problems: Problems) -> None:
        self._declared = declared
        self._problems = problems

    def component(self, node: Node | None) -> None:
        """A component's name."""
        self._known(node, "component", self._declared.components)

    def program(self, node: Node | None) -> None:
        """A preprocess program's name."""
        self._known(node, "program", self._declared.programs)

    def tokenizer(self, node: Node | None) -> None:
        """A tokenizer's name."""
        self._known(node, "tokenizer", self._declared.tokenizers)

    def data(self, node: Node | None) -> None:
        """``data.NAME``."""
        if node is not None:
            self._known(node, "data", self._declared.data, str(node.value).removeprefix("data."))

    def states(self, component: Node) -> None:
        """Where the state entries of a component come from."""
        kv = component.get("kv")
        for entry in listed(kv) or ((kv,) if kv is not None else ()):
            source = entry.get("from")
            if source is not None:
                name = str(source.value).removesuffix(".kv")
                self._known(source, "component", self._declared.components, name)

    def stage(self, stage: Node) -> None:
        """What a stage runs, and the tokenizer of a loop."""
        self.component(stage.get("run"))
        self.tokenizer(stage.get("tokenizer"))

    def _known(self, node: Node | None, kind: str, names: frozenset[str], name: str | None = None) -> None:
        if node is None:
            return
        name = str(node.value) if name is None else name
        if name in names:
            return
        code, what = _KINDS[kind]
        hint = nearest(name, names) or (f"there are: {one_of(names)}" if names else f"the file declares no {what}")
        self._problems.error(node.at, code, f"there is no {what} '{name}'", hint)


def _check_capabilities(root: Node, problems: Problems) -> None:
    for node in listed(root.get("capabilities")):
        name = str(node.value)
        if name not in CAPABILITIES:
            hint = nearest(name, CAPABILITIES) or f"known are: {one_of(CAPABILITIES, 60)}"
            problems.error(node.at, "reference.capability", f"the capability '{name}' is not known", hint)


def _check_namespace(root: Node, problems: Problems) -> None:
    """Inputs, parameters, data and stage ids share one namespace; inner ids may not hide what is visible outside."""
    taken: dict[str, tuple[str, int]] = {}
    groups = (
        ("input", root.get("inputs")),
        ("parameter", _below(root, "inputs", "parameters")),
        ("data entry", root.get("data")),
    )
    for kind, group in groups:
        entries = ((name, node) for name, node in named(group) if not (kind == "input" and name == "parameters"))
        _take(taken, kind, entries, problems)
    _check_ids(root.get("stages"), taken, problems)


def _check_ids(stages: Node | None, outer: dict[str, tuple[str, int]], problems: Problems) -> None:
    taken = dict(outer)
    _take(taken, "stage", given_ids(stages), problems)
    for stage in listed(stages):
        _check_outputs(stage, problems)
        _check_ids(stage.get("body"), taken, problems)


def _check_outputs(stage: Node, problems: Problems) -> None:
    outputs = stage.get("outputs")
    for node in outputs.mapping.values() if outputs is not None else ():
        if node.value in RESERVED:
            _reserved(node, str(node.value), problems)


def _take(
    taken: dict[str, tuple[str, int]], kind: str, entries: Iterable[tuple[str, Node]], problems: Problems
) -> None:
    for name, node in entries:
        at = node.named_at
        if name in RESERVED:
            _reserved(node, name, problems)
        elif name in taken:
            other, line = taken[name]
            message = f"the name '{name}' already stands for the {other} on line {line}"
            hint = "inputs, parameters, data and stage ids share one namespace"
            problems.error(at, "reference.duplicate_name", message, hint)
        else:
            taken[name] = kind, at.line


def _reserved(node: Node, name: str, problems: Problems) -> None:
    message = f"'{name}' is a word of the expression language and cannot be a name"
    problems.error(node.named_at, "reference.reserved_name", message, "choose another name")
