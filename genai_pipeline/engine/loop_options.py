"""The options of generation in one loop: those of the request, with the loop's own defaults for what it leaves open."""

from __future__ import annotations

from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.metadata.model import GenerationSpec
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.sampling.breakers import BreakerTexts
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.params import resolve_options


class LoopOptions:
    """Lays the ``generation:`` of a loop over that of its package."""

    def __init__(self, generation: GenerationSpec | None, rules: LoopRules) -> None:
        self._generation = generation
        loaded = tuple(rules.tokenizers.values())
        self._breakers = BreakerTexts((lambda: _texts(loaded[0])) if len(loaded) == 1 else None)

    def of(self, asked: GenerationOptions) -> GenerationOptions:
        """The options of a request that count in this loop. Raises OptionError for one that it does not let be set."""
        if self._generation is None:
            return asked
        given = {name: getattr(asked, name) for name, source in asked.sources.items() if source == "request"}
        package = {name: getattr(asked, name) for name, source in asked.sources.items() if source == "package"}
        defaults = {**package, **self._generation.defaults}
        return self._breakers.resolve(resolve_options(given, defaults, self._generation.overrides))


def _texts(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode((token,), skip_special=False) for token in range(tokenizer.highest_id + 1)]
