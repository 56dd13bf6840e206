"""Import of a GRU encoder-decoder kept as numpy arrays, which spells words out in phonemes, and of dictionaries."""

from __future__ import annotations

from genai_pipeline.importers.g2p.dictionary import write_dictionary
from genai_pipeline.importers.g2p.importer import import_g2p

__all__ = ["import_g2p", "write_dictionary"]
