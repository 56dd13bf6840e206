"""generation_config.json: sampling settings and end tokens, each key mapped, dropped with a reason, or refused.

Defaults of the format where it differs from ours: without ``do_sample`` the answer is greedy, and sampling takes the
50 most likely tokens unless ``top_k`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.structure.texts import FORCED, NEVER, never_chosen

FILE = "generation_config.json"
_TOP_K = 50  # what the format samples from when it does not say
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")
_ALWAYS = ("repetition_penalty", "no_repeat_ngram_size", "max_new_tokens", "min_new_tokens")
_BEAMS = ("num_beams", "length_penalty", "early_stopping")
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # keys that change the answer unless they have one of these values
    "decoder_start_token_id": (), "diversity_penalty": (0, 0.0),
    "dola_layers": (), "encoder_no_repeat_ngram_size": (0,), "encoder_repetition_penalty": (1, 1.0),
    "epsilon_cutoff": (0, 0.0), "eta_cutoff": (0, 0.0), "exponential_decay_length_penalty": (), "force_words_ids": (),
    "forced_bos_token_id": (), "forced_decoder_ids": ([],), "guidance_scale": (1, 1.0),
    "num_beam_groups": (1,), "penalty_alpha": (0, 0.0), "remove_invalid_values": (False,), "sequence_bias": (),
    "renormalize_logits": (False,), "stop_strings": ([],), "top_h": (),
    "watermarking_config": (), "constraints": (), "max_time": (), "token_healing": (False,), "min_length": (0,),
}  # fmt: skip
_LENGTHS = {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}
START = "decoder_start_token_id"
# Keys that ``answer_defaults`` and the loop's prompt read.
ANSWER_KEYS = frozenset({START, "forced_bos_token_id", *_LENGTHS})
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def generation_defaults(
    config: ConfigNode, report: ImportReport, taken: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The defaults of a request that says nothing; every key gets its row. ``taken`` keys are read by the caller."""
    samples = config.boolean("do_sample", False)
    defaults: dict[str, Any] = {} if samples else {"temperature": 0}
    for key in config.keys:
        if key not in taken and key not in _TOKENS and key not in NEVER:
            _RULES.get(key, _other)(config, key, defaults, report)
    if samples and "top_k" not in config:
        defaults["top_k"] = _TOP_K
    return defaults


def answer_defaults(config: ConfigNode, report: ImportReport) -> dict[str, Any]:
    """Defaults besides: they count an answer's tokens with its start token, or say what comes right after that."""
    defaults: dict[str, Any] = {}
    for key, name in _LENGTHS.items():
        if key in config and (length := config.integer(key)) > 1:
            defaults.setdefault(name, length - 1)
            report.mapped(config.file, config.at(key), f"generation.defaults.{name}, without the start token")
    if "forced_bos_token_id" in config:
        defaults["forced_token_ids"] = [config.integer("forced_bos_token_id")]
        report.mapped(config.file, "forced_bos_token_id", "generation.defaults.forced_token_ids")
    return {**defaults, **{name: config.integer(name) for name in _LENGTHS.values() if name in config}}


def loop_fields(config: ConfigNode, report: ImportReport) -> dict[str, list[int]]:
    """Fields of the decode loop: tokens that it never chooses, and those that it does not choose first."""
    fields = never_chosen(config)
    for key, name in NEVER.items():
        if name in fields:
            report.mapped(config.file, config.at(key), f"the loop's {name}")
        elif any(token >= 0 for token in config.integers(key)):
            why = f"counts from the token after {FORCED}; packages count from the first of an answer"
            report.refused(config.file, config.at(key), why, f"remove '{key}' from {config.file} if it may differ")
    return {name: list(ids) for name, ids in fields.items()}


def of_config(config: ConfigNode) -> ConfigNode:
    """The settings in config.json, where older models have them; generation_config.json takes their place."""
    known = {*_NEUTRAL, *_RULES, *_TOKENS, *NEVER}
    return ConfigNode(config.file, "", {key: value for key, value in config.value.items() if key in known})


def _sampling(config: ConfigNode, key: str, defaults: dict[str, Any], report: ImportReport) -> None:
    if config.boolean("do_sample", False):
        _copied(config, key, defaults, report)
    else:
        report.dropped(config.file, config.at(key), "do_sample is off: the most likely token is taken")


def _copied(config: ConfigNode, key: str, defaults: dict[str, Any], report: ImportReport) -> None:
    if key not in config:
        report.dropped(config.file, config.at(key), "null: off")
        return
    value = config.number(key)
    if key == "typical_p" and value == 1:
        report.dropped(config.file, config.at(key), "1: off")
        return
    defaults[key] = value
    report.mapped(config.file, config.at(key), f"generation.defaults.{key}")


def _beams(config: ConfigNode, key: str, defaults: dict[str, Any], report: ImportReport) -> None:
    if config.integer("num_beams", 1) == 1:
        report.dropped(config.file, config.at(key), "num_beams is 1: no beam search")
    elif key == "early_stopping":
        defaults[key] = config.boolean(key, False)
        report.mapped(config.file, config.at(key), f"generation.defaults.{key}")
    else:
        _copied(config, key, defaults, report)


def _switch(config: ConfigNode, key: str, _: dict[str, Any], report: ImportReport) -> None:
    to = "sampling settings" if config.boolean(key, False) else "generation.defaults.temperature: 0"
    report.mapped(config.file, config.at(key), to)


def _banned(config: ConfigNode, key: str, defaults: dict[str, Any], report: ImportReport) -> None:
    """Tokens that are never chosen; words of several tokens are refused."""
    node = config.get(key)
    given = node.value if node is not None and isinstance(node.value, list) else []
    tokens = [word[0] if isinstance(word, list) and len(word) == 1 else word for word in given]
    if not all(isinstance(token, int) for token in tokens):
        why = "words of several tokens are banned, and packages ban single ones"
        report.refused(config.file, config.at(key), why, f"remove '{key}' from {config.file} if they may be written")
        return
    if banned := [token for token in tokens if token >= 0]:
        defaults["banned_token_ids"] = sorted({*defaults.get("banned_token_ids", ()), *banned})
        report.mapped(config.file, config.at(key), "generation.defaults.banned_token_ids")


def _other(config: ConfigNode, key: str, _: dict[str, Any], report: ImportReport) -> None:
    """A key that is not mapped: refused when it would change the answer."""
    node = config.get(key)
    if key not in _NEUTRAL or node is None or node.value in _NEUTRAL[key]:
        why = "off" if key in _NEUTRAL else _WHY.get(key, "it changes no answer here")
        report.dropped(config.file, config.at(key), why)
        return
    why = f"{node.shown} changes the answer, and packages have no word for it"
    report.refused(config.file, config.at(key), why, f"remove '{key}' from {config.file} if the answers may differ")


_WHY = {
    "forced_eos_token_id": "an answer that reaches its limit ends there",
    "max_length": "the context length is the limit",
    "use_cache": "the graphs decide what is kept",
    "transformers_version": "which tool wrote the file",
    "_from_model_config": "which tool wrote the file",
}
_Rule = Callable[[ConfigNode, str, dict[str, Any], ImportReport], None]
_RULES: Mapping[str, _Rule] = {
    "do_sample": _switch,
    "bad_words_ids": _banned,
    **dict.fromkeys(_SAMPLING, _sampling),
    **dict.fromkeys(_ALWAYS, _copied),
    **dict.fromkeys(_BEAMS, _beams),
}
