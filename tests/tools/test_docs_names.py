"""What pages say of the code is there: modules, what is in them, and the layers of imports."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "genai_pipeline"
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md")
ARCHITECTURE = ROOT / "docs" / "architecture.md"
_CODE_OF_READERS = re.compile(r"^```python\n.*?^```$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"[\w./*{},-]*\w[*}]?\.py\b")
_NAME_IN_MODULE = re.compile(r"`([\w./-]+\.py):\s+([\w.]+)`")


def test_every_module_that_a_page_names_is_exactly_one_file() -> None:
    """Written from the folder of the package or from the top of the repository, so that no name means several."""
    named = [(page.name, name) for page in PAGES for name in _modules(page)]
    assert len(named) > 200
    assert [(page, name, len(_files(name))) for page, name in named if len(_files(name)) != 1] == []


def test_what_a_page_says_is_in_a_module_is_defined_there() -> None:
    named = [(page.name, *found) for page in PAGES for found in _NAME_IN_MODULE.findall(page.read_text("utf-8"))]
    assert len(named) > 20
    assert [one for one in named if not _defined(_files(one[1])[0].read_text("utf-8"), one[2])] == []


def test_the_layers_are_those_that_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (enforced,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawn = ARCHITECTURE.read_text("utf-8").partition("## The layers\n\n```\n")[2].partition("```")[0].splitlines()
    assert [_words(line.partition("#")[0]) for line in drawn] == [_words(layer) for layer in enforced]


def _modules(page: Path) -> Iterator[str]:
    """The names of modules on a page, each of ``{a,b}.py`` by itself; programs of readers are no modules of ours."""
    for found in _MODULE.findall(_CODE_OF_READERS.sub("", page.read_text("utf-8"))):
        parts = [part.split(",") for part in re.split(r"[{}]", found)]
        yield from ("".join(chosen) for chosen in product(*parts))


def _files(name: str) -> list[Path]:
    return [file for file in (PACKAGE / name, ROOT / name) if file.is_file()]


def _defined(source: str, name: str) -> bool:
    forms = r"^\s*(async def|def|class) {0}\b|^{0}\s*[:=]"
    return all(re.search(forms.format(part), source, re.MULTILINE) for part in name.split("."))


def _words(line: str) -> set[str]:
    return set(re.findall(r"\w+", line))
