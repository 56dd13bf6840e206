"""Portable inference-metadata documents (``pipeline.workflow``, and the older ``model.io``) as packages."""

from __future__ import annotations

from genai_pipeline.importers.workflow.document import is_document
from genai_pipeline.importers.workflow.importer import import_workflow

__all__ = ["import_workflow", "is_document"]
