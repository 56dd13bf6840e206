"""Folders laid out by Optimum and transformers.js turned into packages: graphs by role, configs, tokenizer."""

from __future__ import annotations

from genai_pipeline.importers.optimum.importer import import_optimum

__all__ = ["import_optimum"]
