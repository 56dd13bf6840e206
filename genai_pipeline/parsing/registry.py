"""The formats of tool calls by the names that packages declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.parsing.call_format import CallFormat
from genai_pipeline.parsing.formats.json_tagged import JSON_TAGGED
from genai_pipeline.parsing.formats.llama_python_tag import LLAMA_PYTHON_TAG
from genai_pipeline.parsing.formats.mistral_list import MISTRAL_LIST
from genai_pipeline.parsing.formats.pythonic import PYTHONIC
from genai_pipeline.parsing.formats.xml_tagged import XML_TAGGED

FORMATS: Final[Mapping[str, CallFormat]] = {
    format.name: format for format in (JSON_TAGGED, MISTRAL_LIST, LLAMA_PYTHON_TAG, PYTHONIC, XML_TAGGED)
}
