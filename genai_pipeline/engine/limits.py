"""The bounds that a package declares, as numbers."""

from __future__ import annotations

from genai_pipeline.config import DEFAULT_CONTEXT, LoadOptions
from genai_pipeline.errors import OptionError, PackageError
from genai_pipeline.metadata.expressions import evaluate, names
from genai_pipeline.metadata.model import Binding, PackageSpec


def context_length(package: PackageSpec, options: LoadOptions) -> int:
    """Most tokens of a sequence: the package's limit, lowered by the caller if asked."""
    limits = package.limits
    declared = limit(limits.context_length if limits else None) or DEFAULT_CONTEXT
    asked = options.context_length
    if asked is not None and asked > declared:
        raise OptionError(f"context_length is {asked}; this package holds {declared}", param="context_length")
    return asked or declared


def limit(binding: Binding | None) -> int | None:
    """A limit as a number. Raises PackageError when only a request could tell it."""
    if binding is None:
        return None
    if names(binding.expr):
        raise PackageError(
            f"{binding.at.path} is '{binding.text}', which depends on the request",
            hint="give the context as a number, and bound a request's own values by their declaration",
        )
    return int(evaluate(binding.expr, lambda name: None))
