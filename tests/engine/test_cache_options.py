"""The options of the cache reach it: pages as 8-bit integers, and pages that go to files and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.checking import check_package
from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import OptionError
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.testing import TinyPackage, write_package

PAGE = 16 * 2 * 2 * 2 * 8 * 4  # tokens, layers, parts, heads, head_dim, float32


def load(package: TinyPackage, **options: Any) -> Pipeline:
    checked = check_package(package.path)
    assert checked.plan is not None
    return Pipeline(checked.plan, checked.tokenizers, LoadOptions.of(**options))


def test_int8_pages_are_said_to_be_inexact(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "kv")
    with load(package, cache_int8=True) as pipe:
        assert pipe.stats()["pages"]["host"]["exact"] is False
        (part,) = pipe._assembly.parts.values()
        assert part.store.page_bytes < PAGE
    with load(package) as pipe:
        assert pipe.stats()["pages"]["host"]["exact"] is True


def test_pages_go_to_files_and_come_back(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "kv")
    folder = tmp_path / "cache"
    with load(package, memory=4 * 20 * PAGE, cache_disk="1MiB", cache_folder=folder) as pipe:
        prompts = [package.vocabulary.encode(letter * 100) for letter in "abcdefgh"]
        for prompt in (*prompts, prompts[0]):
            result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=4)
            assert list(result.tokens) == package.expected(prompt, 4)
        assert result.usage.cached_tokens == 96
        assert pipe.stats()["pages"]["disk"]["used"] > 0
        assert folder.is_dir()


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"cache_folder": "/tmp"}, "cache_folder"),
        ({"cache_disk": "many"}, "cache_disk"),
        ({"cache_disk": 0}, "cache_disk"),
        ({"cache_disk": 0.5}, "cache_disk"),
        ({"cache_disk": "1MiB", "cache_folder": "/proc/no"}, "cache_folder"),
        ({"cache_int8": "yes"}, "cache_int8"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path: Path, options: dict[str, Any], param: str) -> None:
    package = write_package(tmp_path / "package", "kv")
    with pytest.raises(OptionError) as caught:
        load(package, **options)
    assert caught.value.param == param
