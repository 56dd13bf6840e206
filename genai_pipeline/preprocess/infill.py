"""Prompts for filling in the middle: what stands before a gap and after it, put together as a package declares."""

from __future__ import annotations

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import InfillSpec
from genai_pipeline.preprocess.plain_encoder import encodable
from genai_pipeline.preprocess.tokenizer import Tokenizer


def infill_text(spec: InfillSpec | None, tokenizer: Tokenizer | None, before: str, after: str) -> str:
    """The raw prompt that asks for what stands between two texts.

    ``psm``: prefix, suffix, middle; ``spm``: suffix, prefix, middle (Bavarian et al., 2022, "Efficient Training of
    Language Models to Fill in the Middle"). The texts are raw prompts: control tokens in them have their meaning.
    Raises OptionError for a package that declares no such prompts.
    """
    if spec is None or tokenizer is None:
        message = "this package does not fill in the middle, so it takes no suffix"
        raise OptionError(message, param="suffix", hint="a package that does declares tokenizer.infill")
    encodable(after, "suffix")
    prefix, suffix, middle = (_text(tokenizer, token) for token in (spec.prefix, spec.suffix, spec.middle))
    parts = (prefix, before, suffix, after) if spec.order == "psm" else (suffix, after, prefix, before)
    return "".join((*parts, middle))


def _text(tokenizer: Tokenizer, token: str | int) -> str:
    found = token if isinstance(token, str) else tokenizer.id_to_token(token)
    assert found is not None, "declared tokens are checked when a package is loaded"
    return found
