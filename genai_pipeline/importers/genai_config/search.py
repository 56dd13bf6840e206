"""``search`` of genai_config.json as generation defaults and limits.

What each key does there decides what becomes of it: with ``do_sample`` off the likeliest token is taken whatever else
is set; a ``top_k`` of 1 or a temperature of 0 does the same; ``max_length`` counts prompt and answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

_TOP_K = 50  # what applies where the file has none
_DROPPED: Mapping[str, str] = {
    "batch_size": "the scheduler forms batches",
    "chunk_size": "the scheduler cuts prompts",
    "diversity_penalty": "onnxruntime-genai reads it and does not use it",
    "no_repeat_ngram_size": "onnxruntime-genai reads it and does not use it",
}
_OF_BEAMS = ("length_penalty", "early_stopping")


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What a package says of them. ``most_tokens``: of prompt and answer together."""

    defaults: Mapping[str, Any]
    most_tokens: int


def read_search(search: ConfigNode, context_length: int, report: ImportReport) -> SearchSettings:
    """Maps, drops or refuses every known key."""
    reader = _Reader(search, report)
    for key, why in _DROPPED.items():
        reader.drop(key, why)
    reader.must_be("num_return_sequences", 1, "how many answers there are is up to each request (n)")
    reader.must_be("min_length", 1, "it counts the prompt too; a package can only count the answer (min_new_tokens)")
    defaults = {**_choice(search, reader), **_beams(search, reader)}
    penalty = search.number("repetition_penalty") if "repetition_penalty" in search else 1
    if penalty != 1:
        defaults["repetition_penalty"] = penalty
    reader.map("repetition_penalty", "generation.defaults.repetition_penalty")
    return SearchSettings(defaults, _most(search, reader, context_length))


def _choice(search: ConfigNode, reader: _Reader) -> dict[str, Any]:
    """How the next token is chosen."""
    temperature = search.number("temperature") if "temperature" in search else 1
    top_k, sampled = search.integer("top_k", _TOP_K), search.boolean("do_sample", False)
    top_p = search.number("top_p") if "top_p" in search else 0
    reader.map("do_sample", "generation.defaults" if sampled else "generation.defaults.temperature: 0")
    if not sampled or top_k == 1 or temperature == 0:
        for key in ("temperature", "top_k", "top_p", "random_seed"):
            reader.drop(key, "the likeliest token is always taken")
        return {"temperature": 0}
    found: dict[str, Any] = {"temperature": temperature, "top_k": top_k}
    if 0 < top_p < 1:
        found["top_p"] = top_p
    for key in ("temperature", "top_k", "top_p"):
        reader.map(key, f"generation.defaults.{key}")
    seed = search.get("random_seed")
    if seed is not None and seed.value == -1:
        reader.drop("random_seed", "-1 means another seed each time, which is what happens")
    elif seed is not None:
        found["seed"] = search.integer("random_seed")
        reader.map("random_seed", "generation.defaults.seed (the draws of two runtimes are not the same)")
    return found


def _beams(search: ConfigNode, reader: _Reader) -> dict[str, Any]:
    beams = search.integer("num_beams", 1, least=1)
    if beams == 1:
        reader.drop("num_beams", "1 means no beam search")
        for key in _OF_BEAMS:
            reader.drop(key, "there is no beam search")
        return {}
    if search.boolean("do_sample", False):
        reader.refuse("num_beams", "a beam search that draws its tokens does not exist", "set do_sample to false")
    penalty = search.number("length_penalty") if "length_penalty" in search else 1.0
    if penalty != 0:
        hint = "set length_penalty to 0, or num_beams to 1 and ask for beams per request"
        reader.refuse("length_penalty", f"is {penalty}: the length it is a power of counts the prompt there", hint)
    found = {"num_beams": beams, **{key: search.value[key] for key in _OF_BEAMS if key in search}}
    for key in found:
        reader.map(key, f"generation.defaults.{key}")
    return found


def _most(search: ConfigNode, reader: _Reader, context_length: int) -> int:
    longest = search.integer("max_length", 0)
    if 0 < longest < context_length:
        reader.map("max_length", "limits.context_length: prompt and answer together, as there")
        return longest
    reader.drop("max_length", "it is no less than model.context_length")
    return context_length


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reports keys of ``search`` that are there."""

    search: ConfigNode
    report: ImportReport

    def map(self, key: str, to: str) -> None:
        if key in self.search:
            self.report.mapped(self.search.file, self.search.at(key), to)

    def drop(self, key: str, why: str) -> None:
        if key in self.search:
            self.report.dropped(self.search.file, self.search.at(key), why)

    def refuse(self, key: str, why: str, hint: str) -> None:
        self.report.refused(self.search.file, self.search.at(key), why, hint)

    def must_be(self, key: str, most: int, why: str) -> None:
        """Refuses a value above ``most``; smaller ones change nothing."""
        if self.search.integer(key, 0) > most:
            self.refuse(key, f"is {self.search.value[key]}: {why}", f"set {key} to {most} and give it per request")
        else:
            self.drop(key, "it changes nothing")
