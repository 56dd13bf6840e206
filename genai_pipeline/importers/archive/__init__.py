"""A package as one file: packed with the hash of every file, unpacked only when all of them are right.

The file is a zip (zip64) of uncompressed entries, so that any tool lists it and weights are copied as they are. Its
last entry, ``manifest.json``, names every file with size and SHA-256; a file that is there twice is stored once.
"""

from __future__ import annotations

from genai_pipeline.importers.archive.pack import pack
from genai_pipeline.importers.archive.unpack import unpack

__all__ = ["pack", "unpack"]
