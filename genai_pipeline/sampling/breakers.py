"""Texts that DRY lets no repetition cross, as the tokens of a package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from genai_pipeline.errors import OptionError
from genai_pipeline.sampling.options import GenerationOptions

_NAME = "dry_sequence_breakers"


class BreakerTexts:
    """Turns breaker texts into ids: a text stands for every token whose own text contains it. Thread-safe.

    ``texts`` gives the text of each token by id, and is called once, when a text is first asked for; None for a package
    without a tokenizer, or with several.
    """

    _KEPT = 256  # texts whose tokens are remembered

    def __init__(self, texts: Callable[[], Sequence[str]] | None) -> None:
        self._read = texts
        self._texts: Sequence[str] | None = None
        self._known: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def resolve(self, options: GenerationOptions) -> GenerationOptions:
        """The options with ids in place of texts; the same ones where DRY is off. Raises OptionError."""
        breakers = options.dry_sequence_breakers
        if not options.dry_multiplier or not any(isinstance(item, str) for item in breakers):
            return options
        given = _NAME in options.sources
        ids: dict[int, None] = {}
        for item in breakers:
            found = self._ids(item) if isinstance(item, str) else (item,)
            if given and not found:
                raise OptionError(f"{_NAME} has the text {item!r}, which no token contains", param=_NAME)
            ids.update(dict.fromkeys(found))
        return replace(options, dry_sequence_breakers=tuple(ids))

    def _ids(self, text: str) -> tuple[int, ...]:
        if self._read is None:
            message = f"{_NAME} has the text {text!r}, and this package has no one tokenizer to look it up in"
            raise OptionError(message, param=_NAME, hint="give token ids, or an empty list")
        with self._lock:
            if self._texts is None:
                self._texts = self._read()
            if text not in self._known:
                if len(self._known) >= self._KEPT:
                    self._known.clear()
                self._known[text] = tuple(id for id, other in enumerate(self._texts) if text in other)
            return self._known[text]
