"""Import of CTranslate2 models: a Whisper model's weights as encoder and decoder graphs in a package folder."""

from __future__ import annotations

from genai_pipeline.importers.ctranslate2.importer import import_ctranslate2

__all__ = ["import_ctranslate2"]
