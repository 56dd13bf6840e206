"""Which roles a chat template knows: texts that it compares the role of a message with.

``message.role == 'ipython'``, ``role in ['tool', 'ipython']``, ``messages | selectattr('role', 'equalto', 'system')``,
``{'assistant': 'model'}[message['role']]`` and the like. Texts in other places, such as the key in
``message['content']``, are no roles.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

_EQUALITY = frozenset(("eq", "equalto", "==", "ne", "!=", "in", "sameas"))  # tests and operators
_SELECT = frozenset(("selectattr", "rejectattr"))
_KEY = "role"


def roles_of(tree: nodes.Template) -> frozenset[str]:
    """The roles of a template, as far as they are names."""
    known = frozenset((_KEY, *_assigned(tree)))
    found = (*_compared(tree, known), *_tested(tree, known), *_selected(tree), *_looked_up(tree, known))
    return frozenset(text for text in found if text.isidentifier())


def _assigned(tree: nodes.Template) -> Iterator[str]:
    """Variables that hold a role."""
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _is_role(assignment.node, frozenset()):
            yield assignment.target.name


def _is_role(node: nodes.Node | None, known: frozenset[str]) -> bool:
    """Whether an expression is a message's role, possibly trimmed, lowered or with a default."""
    while isinstance(node, nodes.Filter | nodes.Call):
        if isinstance(node, nodes.Filter):
            node = node.node
            continue
        method = node.node
        if isinstance(method, nodes.Getattr) and method.attr == "get" and node.args and _text(node.args[0]) == _KEY:
            return True
        node = method.node if isinstance(method, nodes.Getattr) else None
    if isinstance(node, nodes.Getattr):
        return node.attr == _KEY
    if isinstance(node, nodes.Getitem):
        return _text(node.arg) == _KEY
    return isinstance(node, nodes.Name) and node.name in known


def _compared(tree: nodes.Template, known: frozenset[str]) -> Iterator[str]:
    for comparison in tree.find_all(nodes.Compare):
        operands = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        if any(_is_role(operand, known) for operand in operands):
            for operand in operands:
                yield from _texts(operand)


def _tested(tree: nodes.Template, known: frozenset[str]) -> Iterator[str]:
    for test in tree.find_all(nodes.Test):
        if test.name in _EQUALITY and _is_role(test.node, known):
            for argument in test.args:
                yield from _texts(argument)


def _selected(tree: nodes.Template) -> Iterator[str]:
    for chosen in tree.find_all(nodes.Filter):
        if chosen.name in _SELECT and len(chosen.args) > 2 and _text(chosen.args[0]) == _KEY:
            yield from _texts(chosen.args[2])


def _looked_up(tree: nodes.Template, known: frozenset[str]) -> Iterator[str]:
    """Keys of a mapping that is written out and looked up by a role."""
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.node, nodes.Dict) and _is_role(item.arg, known):
            yield from _texts(item.node)


def _texts(node: nodes.Node) -> Iterator[str]:
    """Texts that are written out: one, or those of a list or of the keys of a mapping."""
    items = [node]
    if isinstance(node, nodes.List | nodes.Tuple):
        items = list(node.items)
    elif isinstance(node, nodes.Dict):
        items = [pair.key for pair in node.items]
    yield from (text for item in items if (text := _text(item)) is not None)


def _text(node: nodes.Node) -> str | None:
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None
