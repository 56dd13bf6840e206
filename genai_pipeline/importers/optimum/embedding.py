"""Sentence embeddings: one graph without a cache, pooled as 1_Pooling/config.json says, scaled to length 1."""

from __future__ import annotations

from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.optimum.layout import MODEL, Layout
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.structure.texts import TOKENIZER

COMMENT = "Imported from an encoder that Optimum laid out: encode, pool, normalise, for each text of the request."
POOLING, MODULES = "1_Pooling/config.json", "modules.json"
_SENTENCE_CONFIGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
_STATES = ("last_hidden_state", "token_embeddings")
_WHOLE = ("sentence_embedding", "sentence_embeddings")
_PORTS = {"input_ids": "prompt.tokens", "attention_mask": "prompt.mask", "token_type_ids": "prompt.types"}
_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_MODULES = ("Transformer", "Pooling", "Normalize")


def is_embedding(layout: Layout, signatures: dict[str, GraphSignature]) -> bool:
    """Whether the one graph turns tokens into vectors and keeps nothing."""
    if set(layout.graphs) != {MODEL}:
        return False
    graph = signatures[MODEL]
    keeps = any(name.startswith("past") for name in graph.inputs)
    return "input_ids" in graph.inputs and not keeps and any(name in graph.outputs for name in (*_WHOLE, *_STATES))


def embedding_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of an embedder."""
    file = source.layout.graphs[MODEL]
    graph = source.folder.signature(file)
    source.report.mapped(file, "", "components.encoder")
    whole = next((name for name in _WHOLE if name in graph.outputs), None)
    states = next((name for name in _STATES if name in graph.outputs), "")
    inputs = {name: _PORTS.get(name, "") for name in graph.inputs}
    for name in (name for name, binding in inputs.items() if not binding):
        source.report.refused(file, name, "an input that nothing here gives")
    output = {whole: "unit"} if whole else {states: "states"}
    body: list[dict[str, Any]] = [{"run": "encoder", "inputs": inputs, "outputs": output}]
    if whole:
        source.report.mapped(file, whole, "outputs.embedding: the graph pools and normalises")
        _drop(source, POOLING, MODULES, why="the graph does this itself")
    else:
        body += _pooled(source)
    pad = {name: _pad(source) if name == "input_ids" else 0 for name in inputs}
    return {
        "inputs": {"prompt": {"modality": "text", "list": True}},
        "outputs": {"embedding": {"modality": "vector", "value": f"each.{body[-1]['outputs'].get(whole or 'result')}"}},
        "tokenizer": {**_tokenizer(source), "truncate": _longest(source)},
        "components": {"encoder": {"model": file, "pad": pad}},
        "stages": [{"id": "each", "for_each": "prompt", "body": body}],
    }


def _tokenizer(source: Source) -> dict[str, Any]:
    source.folder.need(TOKENIZER, "texts are split with it; other forms of tokenizers must be converted first")
    source.files[TOKENIZER] = None
    source.report.mapped(TOKENIZER, "", "tokenizer")
    return {"file": TOKENIZER}


def _pooled(source: Source) -> list[dict[str, Any]]:
    """Pooling, and normalising where modules.json asks for it."""
    config = source.folder.optional_json(POOLING)
    kinds = [kind for key, kind in _POOLING.items() if config.boolean(key, False)]
    for key in config.keys:
        _pooling_row(source, config, key)
    if len(kinds) != 1:
        source.report.refused(
            POOLING,
            "",
            f"says {' and '.join(kinds) or 'no kind of pooling'}: how vectors of tokens become one must be known",
            "fetch the file 1_Pooling/config.json of the sentence-transformers model, with one pooling mode",
        )
    pool = {
        "op": "pool",
        "with": {"kind": (*kinds, "mean")[0]},
        "inputs": {"states": "states", "mask": "prompt.mask"},
        "outputs": {"result": "pooled"},
    }
    unit = {"op": "normalize", "with": {"order": 2}, "inputs": {"value": "pooled"}, "outputs": {"result": "unit"}}
    return [pool, unit] if _normalises(source) else [pool]


def _pooling_row(source: Source, config: ConfigNode, key: str) -> None:
    report, value = source.report, config.value[key]
    if key in _POOLING and value:
        report.mapped(POOLING, key, f"op: pool, kind: {_POOLING[key]}")
    elif key.startswith("pooling_mode") and value:
        report.refused(POOLING, key, "a kind of pooling that packages have no word for")
    elif key == "include_prompt" and value is False:
        report.refused(POOLING, key, "prompts are left out of the mean; packages pool whole texts")
    else:
        report.dropped(POOLING, key, "off" if value is False else "a fact of the graph")


def _normalises(source: Source) -> bool:
    """Whether the last module scales to length 1; without modules.json vectors are scaled, as cosines are compared."""
    if not source.folder.has(MODULES):
        source.report.dropped(MODULES, "", "absent: vectors are scaled to length 1, which cosines do not see")
        return True
    names = source.folder.text(MODULES)
    types = [str(item.get("type", "")).rpartition(".")[2] for item in _list(source, names)]
    for kind in (kind for kind in types if kind not in _MODULES):
        source.report.refused(MODULES, kind, "a module between tokens and vector that no graph here holds")
    source.report.mapped(MODULES, "", "stages: " + ", ".join(types))
    return "Normalize" in types


def _list(source: Source, text: str) -> list[dict[str, Any]]:
    import json

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        source.report.refused(MODULES, "", f"is not JSON: line {error.lineno}: {error.msg}")
        return []
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _longest(source: Source) -> int:
    """Tokens of a text; what is longer is cut: the smallest of what the files say."""
    for name in _SENTENCE_CONFIGS:
        config = source.folder.optional_json(name)
        for key in config.keys:
            _sentence_row(source, config, key)
    own = source.folder.optional_json(_SENTENCE_CONFIGS[0])
    return min(source.context(), own.integer("max_seq_length", least=1) if "max_seq_length" in own else 1 << 31)


def _sentence_row(source: Source, config: ConfigNode, key: str) -> None:
    report, value = source.report, config.value[key]
    if key == "max_seq_length" and value is not None:
        report.mapped(config.file, key, "tokenizer.truncate")
    elif key == "do_lower_case" and value is True:
        report.refused(config.file, key, "texts are made lower case before the tokenizer; tokenizer.json must do it")
    elif key == "default_prompt_name" and value is not None:
        report.refused(config.file, key, "a prompt stands before every text", "put the prompt into the texts yourself")
    elif key == "prompts" and value:
        report.dropped(config.file, key, "a caller puts the prompt that is wanted before the text")
    else:
        report.dropped(config.file, key, "it changes no vector")


def _drop(source: Source, *names: str, why: str) -> None:
    for name in (name for name in names if source.folder.has(name)):
        source.report.dropped(name, "", why)


def _pad(source: Source) -> int:
    return source.config.integer("pad_token_id", 0)
