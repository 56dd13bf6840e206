"""Folders made for onnxruntime-genai (``genai_config.json`` and ONNX files) as packages."""

from __future__ import annotations

from genai_pipeline.importers.genai_config.importer import import_genai_config

__all__ = ["import_genai_config"]
