"""Checks that modules stay within 300 lines and functions within 60.

A longer module is allowed when its docstring says why, in a sentence that begins "Longer than most modules because".
Usage: python tools/size_budget.py [FOLDER...]; prints every breach and exits with 1 when there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MODULE_LINES = 300
FUNCTION_LINES = 60
REASON = "longer than most modules because"
DEFAULT_FOLDERS = ("genai_pipeline", "tools")


def breaches(path: Path) -> Iterator[str]:
    """Every breach of the budget in one Python file, as ``file:line: text``."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, filename=str(path))
    lines = source.count("\n")
    docstring = " ".join((ast.get_docstring(tree) or "").lower().split())
    if lines > MODULE_LINES and REASON not in docstring:
        yield f"{path}:1: {lines} lines, {MODULE_LINES} allowed: split it, or say in its docstring 'Longer than ...'"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name}() has {length} lines, {FUNCTION_LINES} allowed"


def main(arguments: Sequence[str]) -> int:
    """Check the given folders (default: the package and the tools)."""
    root = Path(__file__).resolve().parent.parent
    folders = [Path(argument) for argument in arguments] or [root / name for name in DEFAULT_FOLDERS]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    found = [breach for file in files for breach in breaches(file)]
    for breach in found:
        print(breach)
    print(f"{len(files)} modules within the size budget" if not found else f"{len(found)} breaches of the size budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
