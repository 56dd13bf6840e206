"""Import of Piper voices: a VITS graph in two parts, and the ids of phonemes."""

from __future__ import annotations

from genai_pipeline.importers.piper.importer import import_piper

__all__ = ["import_piper"]
