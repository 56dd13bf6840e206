"""The kinds of import a recipe can name, one module each: how fetched files become a package folder."""

from __future__ import annotations

from collections.abc import Mapping

from genai_pipeline.importers.kinds import ctranslate2, files, g2p, gguf, piper
from genai_pipeline.importers.kinds.step import ImportKind

# A new kind is a module with a KIND, and a line here.
KINDS: Mapping[str, ImportKind] = {
    "ctranslate2": ctranslate2.KIND,
    "files": files.KIND,
    "g2p": g2p.KIND,
    "gguf": gguf.KIND,
    "piper": piper.KIND,
}
