"""A third runtime, ONNX's own reference in Python, serves packages: what a backend needs to be, in a page of code.

It is in conftest.py; test_exact.py has it answer as the others do.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import genai_pipeline as gp
from genai_pipeline.testing import write_package


def test_it_takes_less_than_sixty_lines(reference: tuple[type, ...]) -> None:
    assert sum(len(inspect.getsourcelines(part)[0]) for part in reference) < 60


@pytest.mark.usefixtures("reference")
def test_its_name_is_one_of_those_to_choose_from(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    with pytest.raises(gp.errors.OptionError, match="unknown backend 'referense'") as found:
        gp.load(package.path, backend="referense")
    assert "reference" in str(found.value.hint)
