"""A real model's GGUF file, built by mobius-onnx: both of its output formats give the tokens of the reference here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
import pytest
from mobius.integrations.gguf import build_from_gguf, write_gguf_tokenizer_json
from mobius.integrations.onnx_genai import write_onnx_genai_config
from mobius.integrations.ort_genai import write_ort_genai_config

import genai_pipeline as gp
from genai_pipeline.importers.genai_config import import_genai_config
from genai_pipeline.importers.workflow import import_workflow

CASES = json.loads((Path(__file__).parents[2] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]


Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build(keep_quantized=True)``: one graph with its tokenizer and the files of both formats."""

    def made(**options: Any) -> Path:
        folder = str(tmp_path_factory.mktemp("smollm2"))
        package = build_from_gguf(smollm2_gguf, **options)
        package.save(folder)
        write_gguf_tokenizer_json(smollm2_gguf, folder)
        write_onnx_genai_config(package, folder, config=package.config)
        write_ort_genai_config(package, folder, ep="cpu")
        return Path(folder)

    return made


def _ours(package: Path) -> list[list[int]]:
    assert gp.validate(package)[1] == ()
    with gp.load(package) as pipe:
        options: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
        return [
            list(
                pipe.generate(tokens=case["prompt_tokens"], max_new_tokens=len(case["greedy_tokens"]), **options).tokens
            )
            for case in CASES
        ]


def _genai(folder: Path) -> list[list[int]]:
    """The tokens of onnxruntime-genai, whose configuration names no end token."""
    model = og.Model(str(folder))
    found = []
    for case in CASES:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=len(case["prompt_tokens"]) + len(case["greedy_tokens"]))
        generator = og.Generator(model, params)
        generator.append_tokens(np.array(case["prompt_tokens"], np.int32))
        found.append([])
        while not generator.is_done():
            generator.generate_next_token()
            found[-1].append(int(generator.get_next_tokens()[0]))
    return found


def test_dequantised_weights_repeat_the_reference_from_both_formats(build: Build, tmp_path: Path) -> None:
    folder = build()
    import_workflow(folder, tmp_path / "document")
    import_genai_config(folder, tmp_path / "genai")
    expected = [case["greedy_tokens"] for case in CASES]
    assert _ours(tmp_path / "document") == expected
    assert _ours(tmp_path / "genai") == expected
    assert _genai(folder) == expected
    for name in ("document", "genai"):
        assert (tmp_path / name / "model.onnx.data").samefile(folder / "model.onnx.data")
        metadata = (tmp_path / name / "inference_metadata.yaml").read_text(encoding="utf-8")
        assert "eos: [0, 2]" in metadata  # <|endoftext|> and <|im_end|>, which no file of this format names


def test_quantised_weights_give_the_tokens_of_the_tools_runtime(build: Build, tmp_path: Path) -> None:
    folder = build(keep_quantized=True, execution_provider="cpu")
    import_workflow(folder, tmp_path / "document")
    import_genai_config(folder, tmp_path / "genai")
    expected = _genai(folder)
    assert _ours(tmp_path / "document") == expected
    assert _ours(tmp_path / "genai") == expected
