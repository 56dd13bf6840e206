"""Tools for tests, the project's own and its users': tiny packages whose right answers are arithmetic.

``write_package`` writes one with graphs, tokenizer, template and metadata; see docs/testing.md.
"""

from __future__ import annotations

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.kinds import KINDS, KindOptions
from genai_pipeline.testing.packages import TinyPackage, metadata_text, write_draft, write_package
from genai_pipeline.testing.vocabulary import CHATML, Vocabulary, byte_level, words

__all__ = [
    "CHATML",
    "KINDS",
    "GraphBuilder",
    "KindOptions",
    "TinyPackage",
    "Vocabulary",
    "byte_level",
    "metadata_text",
    "words",
    "write_draft",
    "write_package",
]
