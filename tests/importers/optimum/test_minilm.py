"""all-MiniLM-L6-v2 laid out as Optimum does: its vectors are those of the package that is described by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import genai_pipeline as gp
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.importers.pull import pull

TEXTS = ["A cat sits on the mat.", "The weather is fine today, and everybody is outside.", "x"]


def test_the_imported_model_gives_the_same_vectors(tmp_path: Path) -> None:
    known = pull("minilm")
    source = tmp_path / "source"
    (source / "onnx").mkdir(parents=True)
    (source / "1_Pooling").mkdir()
    for name, place in (("model.onnx", "onnx/model_quantized.onnx"), ("tokenizer.json", "tokenizer.json")):
        (source / place).write_bytes((known / name).read_bytes())
    modules = [
        {"idx": i, "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(("Transformer", "Pooling", "Normalize"))
    ]
    for name, value in (
        ("config.json", {"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0, "hidden_size": 384}),
        ("1_Pooling/config.json", {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}),
        ("modules.json", modules),
        ("sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False}),
    ):
        (source / name).write_text(json.dumps(value))
    import_optimum(source, tmp_path / "made")
    vectors = []
    for path in (known, tmp_path / "made"):
        with gp.load(path) as pipe:
            vectors.append(np.asarray(pipe.run({"prompt": TEXTS})["embedding"]))
    assert vectors[0].shape == (3, 384)
    np.testing.assert_array_equal(vectors[0], vectors[1])
