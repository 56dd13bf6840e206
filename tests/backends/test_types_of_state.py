"""The type of a cache is taken per tensor from the graph, whatever it is, on every backend; logits have their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import PackageInvalidError
from genai_pipeline.testing import write_package

CASES: dict[str, dict[str, Any]] = {
    "float16 cache": {"update": "append", "dtype": "float16"},
    "float16 cache in place": {"update": "in_place", "dtype": "float16"},
    "float16 keys, float32 values": {"update": "append", "dtype": "float16", "value_dtype": "float32"},
    "float32 keys, float16 values": {"update": "append", "dtype": "float32", "value_dtype": "float16"},
    "float16 logits": {"logits": "float16"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["ort", "nxrt", "emulated"])
@pytest.mark.usefixtures("emulated")
def test_each_tensor_has_the_type_of_the_graph(tmp_path: Path, backend: str, case: str) -> None:
    package = write_package(tmp_path, **CASES[case])
    prompt = package.vocabulary.encode("abcdefgh")
    with gp.load(package.path, backend=backend) as pipe:
        for _ in range(2):  # the second time with state from the prefix cache
            result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=20, ignore_eos=True)
            assert list(result.tokens) == package.expected(prompt, 20)


@pytest.mark.parametrize("backend", ["ort", "nxrt"])
def test_a_type_that_the_graph_has_not_is_named_with_the_tensor(tmp_path: Path, backend: str) -> None:
    def claim(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["kv"]["dtype"] = "float16"

    package = write_package(tmp_path, edit=claim)
    with pytest.raises(PackageInvalidError) as found:
        gp.load(package.path, backend=backend)
    (problem,) = found.value.problems
    assert "past" in problem.message
    assert "float16" in problem.message
    assert "float32" in problem.message
