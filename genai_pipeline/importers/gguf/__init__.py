"""Import of GGUF files: weights, tokenizer and chat template of a llama-family decoder as a package folder."""

from __future__ import annotations

from genai_pipeline.importers.gguf.importer import import_gguf

__all__ = ["import_gguf"]
