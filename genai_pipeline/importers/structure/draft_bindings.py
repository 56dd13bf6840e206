"""What the ports of a draft's stages are bound to: a value for each certain meaning, a question for every other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from genai_pipeline.importers.structure.findings import Finding
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.unread import unread_values
from genai_pipeline.metadata.drafts import MARK

# Meaning -> what a decode loop publishes.
IN_LOOP: Mapping[str, str] = {
    "tokens": "loop.tokens",
    "mask": "loop.attention_mask",
    "positions": "loop.position_ids",
    "last_index": "loop.last_index",
    "longest": "loop.max_length",
    "total_length": "loop.total_length",
    "past_length": "loop.past_length",
    "write_indices": "loop.write_indices",
    "cache_position": "loop.cache_position",
    "lengths": "loop.sequence_lengths",
    "later": "not loop.first",
    "embeds": "embeds",
    "source_mask": "prompt.mask",
}
# Meaning -> what a text publishes.
OF_TEXT: Mapping[str, str] = {
    "tokens": "prompt.tokens",
    "mask": "prompt.mask",
    "source_mask": "prompt.mask",
    "types": "prompt.types",
}


def loop_bindings(part: Part, sources: Mapping[str, str], text_source: bool) -> dict[str, str]:
    """Bindings of a graph in a decode loop; ``sources``: inputs that rows of an encoder go to, by value name.

    ``text_source``: what the encoder reads is the prompt, so that a mask of its rows is the prompt's.
    """
    values, sources = dict(IN_LOOP), {**unread_values(part), **sources}
    if not text_source:
        del values["source_mask"]
    if not part.port_of("mask"):  # without a mask attention is causal by the length alone
        values["total_length"] = "loop.padded_length"
    return {
        name: sources[name] if name in sources else _bound(finding, values) for name, finding in part.inputs.items()
    }


def text_bindings(part: Part) -> dict[str, str]:
    """Bindings of a graph that reads the prompt, outside loops; features become inputs of their own."""
    return {
        name: f"{input_name(name)}.values" if finding.value in ("features", "rows") else _bound(finding, OF_TEXT)
        for name, finding in part.inputs.items()
    }


def feature_ports(part: Part) -> tuple[str, ...]:
    """Inputs of a graph that a request gives as they are."""
    return tuple(name for name, finding in part.inputs.items() if finding.value in ("features", "rows"))


def input_name(port: str) -> str:
    """A port's name as that of an input of the package."""
    plain = re.sub(r"\W+", "_", port, flags=re.ASCII).strip("_")
    return plain if plain[:1].isalpha() and plain.lower() not in _WORDS | _TAKEN else f"input_{plain}"


_TAKEN = frozenset({"prompt", "media", "parameters", "data", "loop", "encode", "generate", "read", "see", "unread"})
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _bound(finding: Finding, values: Mapping[str, str]) -> str:
    if finding.certain and finding.value in values:
        return values[finding.value]
    choices = [values[choice] for choice in (finding.value, *finding.alternatives) if choice in values]
    return f"{MARK} {finding.reason}" + (f": {' | '.join(_once(choices))}" if choices and not finding.certain else "")


def _once(choices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(choices))
