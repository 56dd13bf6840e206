"""Writes the folders of the corpus of broken packages: each is a base package with one fault, or several.

    python tests/packages/make_corpus.py                 writes what is missing
    python tests/packages/make_corpus.py NAME...         writes these again, e.g. invalid/kv-heads

``expected.json`` is written by ``accept.py`` after reading what it shows; this script leaves it alone.
Longer than most modules because it is one table, a fault a line.
"""

# ruff: noqa: E501

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from corpus_parts import (
    HERE,
    LFS,
    PAIR,
    SIZE,
    TEXT,
    Step,
    attention,
    cut,
    decoder,
    document,
    drop,
    embedding,
    external,
    file,
    folder,
    link,
    metadata,
    operation,
    tokenizer,
    write,
)
from metadata_faults import METADATA_FAULTS
from text_faults import TEXT_FAULTS

from genai_pipeline.testing import write_package
from genai_pipeline.testing.vocabulary import CHATML

NESTED = "x: " + "[" * 500 + "]" * 500 + "\n"
BOMB = "x-a: &a [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n" + "".join(
    f"x-{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
VARIANTS = "    variants:\n      - {model: model.onnx, provider: cpu}\n      - {model: other.onnx, provider: cuda}\n"
RUN = "      - run: decoder\n"
HINT = ("hint", "float32", ("batch", "sequence", SIZE))

# name -> (what is wrong, the metadata it starts from, steps)
FAULTS: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    # --- YAML -------------------------------------------------------------------------------------------------------
    "yaml-tab": ("a tab as indentation", TEXT, (metadata("  prompt: {modality", "\tprompt: {modality"),)),
    "yaml-unclosed-list": ("a list without its bracket", TEXT, (metadata('eos: ["</s>"]', 'eos: ["</s>"'),)),
    "yaml-unclosed-quote": ("a text without its quote", TEXT, (metadata('schema_version: "1"', 'schema_version: "1'),)),
    "yaml-indentation": ("a key between two levels", TEXT, (metadata("      heads: 2", "     heads: 2"),)),
    "yaml-colon": ("a second colon in a value", TEXT, (metadata("name: broken", "name: broken: very"),)),
    "yaml-duplicate-key": ("a key given twice", TEXT, (metadata("      heads: 2\n", "      heads: 2\n      heads: 4\n"),)),
    "yaml-alias-undefined": ("an alias of nothing", TEXT, (metadata("name: broken", "name: *broken"),)),
    "yaml-alias-bomb": ("ten billion values in nine lines", TEXT, (metadata("limits:\n", BOMB + "limits:\n"),)),
    "yaml-alias-loop": ("a list that holds itself", TEXT, (metadata("limits:\n", "x-loop: &a [*a]\nlimits:\n"),)),
    "yaml-too-deep": ("500 lists in each other", TEXT, (metadata("limits:\n", "x-deep" + NESTED[1:] + "limits:\n"),)),
    "yaml-python-tag": (
        "a tag that would run a program",
        TEXT,
        (metadata("name: broken", "name: !!python/name:os.system broken"),),
    ),
    "yaml-two-documents": ("a second document", TEXT, (metadata("limits:\n", "---\nlimits:\n"),)),
    "yaml-empty": ("nothing but a comment", TEXT, (document("# an empty file\n"),)),
    "yaml-not-utf8": ("bytes that are no UTF-8", TEXT, (document(b'schema_version: "1"\nname: caf\xe9\n'),)),
    "yaml-control-character": ("a control character", TEXT, (metadata("name: broken", "name: bro\x07ken"),)),
    "yaml-version-1.1": ("a directive of YAML 1.1", TEXT, (metadata("# a directive of", "%YAML 1.1\n---\n# a directive of"),)),
    "yaml-number-key": ("a number as a key", TEXT, (metadata("  prompt: {modality: text}", "  7: {modality: text}"),)),
    # --- schema -----------------------------------------------------------------------------------------------------
    "schema-list": ("a list instead of a mapping", TEXT, (document("- schema_version\n- name\n"),)),
    "schema-no-version": ("no schema version", TEXT, (metadata('schema_version: "1"\n', ""),)),
    "schema-version-unknown": ("a schema version of the future", TEXT, (metadata('"1"', '"2"'),)),
    "schema-no-name": ("no name", TEXT, (metadata("name: broken\n", ""),)),
    "schema-no-outputs": ("no outputs", TEXT, (metadata("outputs:\n  text: {modality: text, value: generate.text}\n", ""),)),
    "schema-unknown-top-field": ("a misspelt section", TEXT, (metadata("components:\n", "componets:\n"),)),
    "schema-unknown-field": ("a misspelt field of kv", TEXT, (metadata("head_dim: 4", "head_dims: 4"),)),
    "schema-unknown-stage-field": ("a misspelt field of a stage", TEXT, (metadata("    prompt: prompt", "    promt: prompt"),)),
    "schema-unknown-tokenizer-field": ("a field no tokenizer has", TEXT, (metadata("  eos:", "  vocabulary: 12\n  eos:"),)),
    "schema-unknown-option": ("a misspelt default", TEXT, (metadata("temperature:", "temprature:"),)),
    "schema-wrong-type": ("text where a number belongs", TEXT, (metadata("heads: 2", "heads: two"),)),
    "schema-bool-is-no-number": ("yes is text in YAML 1.2", TEXT, (metadata('eos: ["</s>"]', 'eos: ["</s>"]\n  add_bos: yes'),)),
    "schema-modality": ("a modality that does not exist", TEXT, (metadata("  prompt: {modality: text}", "  prompt: {modality: txt}"),)),
    "schema-update": ("an update kind that does not exist", TEXT, (metadata("update: append", "update: inplace"),)),
    "schema-loop": ("a loop that does not exist", TEXT, (metadata("loop: decode", "loop: decoding"),)),
    "schema-layers-zero": ("no layers", TEXT, (metadata("layers: 2", "layers: 0"),)),
    "schema-context-negative": ("a negative context length", TEXT, (metadata("context_length: 64", "context_length: -64"),)),
    "schema-temperature": ("a negative temperature", TEXT, (metadata("temperature: 0.7", "temperature: -0.7"),)),
    "schema-no-stages": ("no stages", TEXT, (document(TEXT.format(fault="no stages").partition("stages:\n")[0] + "stages: []\n"),)),
    "schema-no-present": ("a cache that never comes back", TEXT, (metadata('      present: "present.{layer}.{part}"\n', ""),)),
    "schema-run-and-op": ("a stage that runs and operates", TEXT, (metadata(RUN, "      - run: decoder\n        op: concat\n"),)),
    "schema-logits-and-tokens": ("a loop with two results", TEXT, (metadata("    logits: logits\n", "    logits: logits\n    tokens: logits\n"),)),
    # --- references: files of the package -----------------------------------------------------------------------------
    "file-model-missing": ("a graph that is not there", TEXT, (drop("model.onnx"),)),
    "file-model-outside": ("a graph outside the package", TEXT, (metadata("model: model.onnx", "model: ../outside.onnx"),)),
    "file-model-absolute": ("an absolute path", TEXT, (metadata("model: model.onnx", "model: /etc/passwd"),)),
    "file-model-link-outside": ("a link that leaves the package", TEXT, (link("model.onnx", "/etc/passwd"),)),
    "file-model-folder": ("a folder where a graph should be", TEXT, (folder("model.onnx"),)),
    "file-tokenizer-missing": ("a tokenizer that is not there", TEXT, (drop("tokenizer.json"),)),
    "file-tokenizer-outside": ("a tokenizer outside the package", TEXT, (metadata("file: tokenizer.json", "file: ../../tokenizer.json"),)),
    "file-tokenizer-link-outside": ("a tokenizer behind a link that leaves", TEXT, (link("tokenizer.json", "/etc/passwd"),)),
    "file-template-missing": ("a template that is not there", TEXT, (drop("chat_template.jinja"),)),
    "file-template-outside": ("a template outside the package", TEXT, (metadata("chat_template: chat", "chat_template: ../chat"),)),
    # --- weights ------------------------------------------------------------------------------------------------------
    "weights-missing": ("weights that are not there", TEXT, (external(), drop("model.onnx.data"))),
    "weights-cut": ("weights that end too early", TEXT, (external(keep=100),)),
    "weights-outside": ("weights outside the package", TEXT, (external("../model.onnx.data"),)),
    "weights-absolute": ("weights at an absolute path", TEXT, (external("/etc/passwd"),)),
    "weights-link-outside": ("weights behind a link that leaves", TEXT, (external(), link("model.onnx.data", "/etc/passwd"))),
    # --- the graph file -----------------------------------------------------------------------------------------------
    "graph-not-onnx": ("a graph file that is text", TEXT, (file("model.onnx", "this is not a graph\n"),)),
    "graph-empty": ("an empty graph file", TEXT, (file("model.onnx", ""),)),
    "graph-truncated": ("half a graph file", TEXT, (cut("model.onnx", 400),)),
    "graph-lfs-pointer": ("a Git LFS pointer instead of the graph", TEXT, (file("model.onnx", LFS),)),
    # --- names, scopes and flow ---------------------------------------------------------------------------------------
    "name-component": ("a component that does not exist", TEXT, (metadata(RUN, "      - run: decodr\n"),)),
    "name-value": ("a value nobody publishes", PAIR, (metadata("inputs_embeds: embeds\n", "inputs_embeds: embedz\n"),)),
    "name-loop-value": ("a loop value that does not exist", TEXT, (metadata("loop.position_ids", "loop.positions"),)),
    "name-input-field": ("a field the input does not publish", TEXT, (metadata("prompt: prompt.tokens", "prompt: prompt.token_ids"),)),
    "name-inner-value": ("an inner value read outside its loop", TEXT, (metadata("value: generate.text", "value: logits"),)),
    "name-output": ("an output nobody publishes", TEXT, (metadata("value: generate.text", "value: generated.text"),)),
    "name-operation": (
        "an operation that does not exist",
        PAIR,
        (
            metadata("      - id: second", "      - {op: spliced, inputs: {into: embeds}, outputs: {result: mixed}}\n      - id: second"),
            metadata("inputs_embeds: embeds\n", "inputs_embeds: mixed\n"),
        ),
    ),
    "name-two-producers": (
        "two stages publish the same value",
        PAIR,
        (
            metadata(
                "      - id: second",
                "      - {id: again, run: embed, inputs: {input_ids: loop.tokens}, outputs: {inputs_embeds: embeds}}\n      - id: second",
            ),
        ),
    ),
    "name-stage-twice": ("two stages with one id", PAIR, (metadata("id: second", "id: first"),)),
    "name-stage-and-input": ("a stage named like an input", TEXT, (metadata("id: generate", "id: prompt"), metadata("value: generate.text", "value: prompt.text"))),
    "name-component-unused": (
        "a component no stage runs",
        TEXT,
        (metadata("components:\n", "components:\n  spare: {model: model.onnx}\n"),),
    ),
    "flow-cycle": (
        "two stages that wait for each other",
        PAIR,
        (metadata("inputs: {input_ids: loop.tokens}", "inputs: {input_ids: loop.tokens, hint: logits}"), embedding(extra=[HINT])),
    ),
    "flow-self-cycle": (
        "a stage that waits for itself",
        TEXT,
        (metadata("          input_ids: loop.tokens\n", "          input_ids: loop.tokens\n          hint: logits\n"), decoder(extra=[HINT])),
    ),
    "flow-next-token": ("the chosen token is read before it is chosen", PAIR, (metadata("input_ids: loop.tokens", "input_ids: loop.next_token"),)),
    "flow-no-prompt": ("a decode loop without a prompt", TEXT, (metadata("    prompt: prompt.tokens\n", ""),)),
    "flow-prompt-is-text": ("a prompt that is text, not tokens", TEXT, (metadata("prompt: prompt.tokens", "prompt: prompt.text"),)),
    "flow-output-modality": ("an output that is not what it is declared to be", TEXT, (metadata("value: generate.text", "value: generate.tokens"),)),
    # --- operations ---------------------------------------------------------------------------------------------------
    "operation-unknown": ("an operation nobody knows", TEXT, operation("{id: more, op: argmaxx, inputs: {value: generate.tokens}}")),
    "operation-unknown-input": ("an input that the operation has not", TEXT, operation("{id: more, op: argmax, inputs: {value: generate.tokens, mask: generate.tokens}}")),
    "operation-missing-input": ("an input that is not bound", TEXT, operation("{id: more, op: argmax}")),
    "operation-unknown-output": (
        "an output that the operation has not",
        TEXT,
        operation("{id: more, op: argmax, inputs: {value: generate.tokens}, outputs: {index: found}}"),
    ),
    "operation-no-such-value": (
        "a value that the operation does not publish",
        TEXT,
        operation("{id: more, op: top_k, with: {k: 2}, inputs: {value: generate.tokens}}"),
    ),
    "operation-parameter-unknown": (
        "a parameter that the operation has not",
        TEXT,
        operation("{id: more, op: argmax, with: {axes: 1}, inputs: {value: generate.tokens}}"),
    ),
    "operation-parameter-choice": (
        "a parameter that is none of its choices",
        TEXT,
        operation("{id: more, op: noise, with: {kind: normall, shape: [4]}}"),
    ),
    "operation-parameter-missing": ("a parameter that is not given", TEXT, operation("{id: more, op: concat, inputs: {values: generate.tokens}}")),
    "operation-parameter-bounds": (
        "a parameter out of its range",
        TEXT,
        operation("{id: more, op: truncate, with: {size: 0}, inputs: {value: generate.tokens}}"),
    ),
    "operation-parameter-value": (
        "a parameter that reads what is not there",
        TEXT,
        operation("{id: more, op: truncate, with: {size: parameters.size}, inputs: {value: generate.tokens}}"),
    ),
    "operation-parameter-type": (
        "a parameter that is a fraction",
        TEXT,
        operation("{id: more, op: truncate, with: {size: generate.tokens.length / 2}, inputs: {value: generate.tokens}}"),
    ),
    "operation-text": ("a text where numbers belong", TEXT, operation("{id: more, op: argmax, inputs: {value: generate.text}}")),
    "operation-numbers": ("numbers where a text belongs", TEXT, operation("{id: more, op: split_text, inputs: {text: generate.tokens}}")),
    "operation-rank": ("a value of another rank", TEXT, operation("{id: more, op: pool, inputs: {states: generate.tokens.length}}")),
    "operation-fractions": (
        "fractions where whole numbers belong",
        TEXT,
        operation("{id: more, op: noise, with: {shape: [4]}}", "{id: last, op: take, inputs: {value: generate.tokens, index: more.result}}"),
    ),
    "operation-list": (
        "a list where one value belongs",
        TEXT,
        operation("{id: more, op: split, with: {axis: 0, parts: 2}, inputs: {value: generate.tokens}}", "{id: last, op: argmax, inputs: {value: more.result}}"),
    ),
    "operation-in-body": (
        "a slow operation in the body of a decode loop",
        TEXT,
        (metadata("    logits: logits\n", "      - {op: png, inputs: {image: logits}, outputs: {result: picture}}\n    logits: picture\n"),),
    ),
    "operation-not-yet": ("an operation that is not there yet", TEXT, operation("{id: more, op: unmask, inputs: {value: generate.tokens}}")),
    # --- expressions --------------------------------------------------------------------------------------------------
    "expression-syntax": ("an expression that does not parse", TEXT, (metadata("context_length: 64", 'context_length: "64 +"'),)),
    "expression-function": ("a function that does not exist", TEXT, (metadata("context_length: 64", 'context_length: "sqrt(64)"'),)),
    "expression-hostile": (
        "an expression that would run a program",
        TEXT,
        (metadata("context_length: 64", "context_length: \"__import__('os').system('touch hacked')\""),),
    ),
    "expression-too-deep": ("a condition in three hundred brackets", TEXT, (metadata(RUN, f"{RUN}        when: {'(' * 300}loop.first{')' * 300}\n"),)),
    "expression-parameter": ("a parameter that is not declared", TEXT, (metadata("loop.position_ids", "parameters.positions"),)),
    "expression-type": ("a number where a condition belongs", PAIR, (metadata("      - id: second\n", "      - id: second\n        when: 1 + 1\n"),)),
    # --- ports --------------------------------------------------------------------------------------------------------
    "port-input": ("a port the graph does not have", TEXT, (metadata("input_ids: loop.tokens", "input_idz: loop.tokens"), decoder(extra=()))),
    "port-output": ("an output the graph does not have", TEXT, (metadata("outputs: {logits: logits}", "outputs: {logit: logits}"),)),
    "port-unbound": ("a port of the graph that nothing feeds", TEXT, (decoder(extra=[("token_type_ids", "int64", ("batch", "sequence"))]),)),
    "port-dtype": ("embeddings in float32 for a port that takes int64", PAIR, (decoder(tokens=("inputs_embeds", "int64", ("batch", "sequence", 8))),)),
    "port-rank": ("embeddings with an axis too many", PAIR, (embedding(("batch", "sequence", 2, 4)),)),
    "port-dim": ("embeddings of 8 for a decoder that takes 16", PAIR, (decoder(tokens=("inputs_embeds", "float32", ("batch", "sequence", 16))),)),
    "port-mask-rank": ("a mask with four axes", TEXT, (decoder(mask=("int64", ("batch", 1, "sequence", "total"))),)),
    "port-logits-rank": ("logits without a vocabulary axis", TEXT, (decoder(logits=("batch", "sequence")),)),
    "port-all-tokens": ("the mask of all tokens where positions of new ones belong", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: loop.attention_mask"),)),
    "port-new-tokens": ("positions of new tokens where a mask of all belongs", TEXT, (metadata("attention_mask: loop.attention_mask", "attention_mask: loop.position_ids"),)),
    "port-mask-of-tokens": ("new tokens where a mask of all belongs", TEXT, (metadata("attention_mask: loop.attention_mask", "attention_mask: loop.tokens"),)),
    "port-logits-rows": ("a mask where tokens belong, so that logits have too many rows", TEXT, (metadata("input_ids: loop.tokens", "input_ids: loop.attention_mask"), metadata("position_ids: loop.position_ids", "position_ids: loop.attention_mask"))),
    "port-branch": ("a choice between positions and a mask", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: loop.position_ids if loop.first else loop.attention_mask"),)),
    "port-row-vector": ("one number per row where one per token belongs", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: loop.last_index"),)),
    "port-computed": ("a computed number where one per token belongs", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: loop.last_index + 1"),)),
    "port-prompt-length": ("the whole prompt where new tokens belong", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: prompt.tokens"),)),
    "port-across-edges": ("positions of all tokens beside embeddings of new ones", PAIR, (metadata("position_ids: loop.position_ids", "position_ids: loop.attention_mask"),)),
    "port-list-length": ("a list where any number of new tokens may come", TEXT, (metadata("position_ids: loop.position_ids", "position_ids: [0, 1, 2]"),)),
    "port-no-kv": ("a cache that no entry declares", PAIR, (metadata('    kv: {update: append, past: "past.{layer}.{part}", present: "present.{layer}.{part}"}\n', ""),)),
    # --- state --------------------------------------------------------------------------------------------------------
    "kv-no-port": ("a pattern that matches no port", TEXT, (metadata('past: "past.{layer}.{part}"', 'past: "pasts.{layer}.{part}"'),)),
    "kv-no-present": ("a cache the graph takes and never gives back", TEXT, (decoder(presents=False),)),
    "kv-part-missing": ("a key cache without its value cache", TEXT, (metadata('past: "past.{layer}.{part}"', 'past: "past.{layer}.key"'), metadata('present: "present.{layer}.{part}"', 'present: "present.{layer}.key"'))),
    "kv-layers": ("three layers declared, two in the graph", TEXT, (metadata("layers: 2", "layers: 3"),)),
    "variant-missing": ("a variant whose graph is not there", TEXT, (metadata("    model: model.onnx\n", VARIANTS),)),
    "variant-ports": ("a variant with a port too many", TEXT, (metadata("    model: model.onnx\n", VARIANTS), decoder(extra=(HINT,), metadata_name="other.onnx"))),
    "variant-and-model": ("variants beside a graph", TEXT, (metadata("    model: model.onnx\n", "    model: model.onnx\n" + VARIANTS), decoder(metadata_name="other.onnx"))),
    "kv-heads": ("four heads declared, two in the graph", TEXT, (metadata("heads: 2", "heads: 4"),)),
    "kv-head-dim": ("heads of 8 declared, of 4 in the graph", TEXT, (metadata("head_dim: 4", "head_dim: 8"),)),
    "kv-dtype": ("float16 declared, float32 in the graph", TEXT, (metadata("dtype: float32", "dtype: float16"),)),
    "kv-window": ("a window declared, none in the graph", TEXT, (metadata("append", "in_place"), metadata("dtype: float32", "dtype: float32\n      window: 16"), attention())),
    "kv-window-other": ("a window of 16 declared, of 8 in the graph", TEXT, (metadata("append", "in_place"), metadata("dtype: float32", "dtype: float32\n      window: 16"), attention(8))),
    "kv-pair-dtype": ("float32 in, float16 out", TEXT, (metadata("      dtype: float32\n", ""), decoder(present_dtype="float16"))),
    "kv-pair-heads": ("two heads in, four out", TEXT, (decoder(present=("batch", 4, "total", 4)),)),
    "kv-rank": ("a cache with three axes", TEXT, (decoder(past=("batch", "past", 4), present=("batch", "total", 4)),)),
    "kv-geometry-unknown": (
        "heads that neither graph nor metadata give",
        TEXT,
        (metadata("      heads: 2\n", ""), decoder(past=("batch", "heads", "past", 4), present=("batch", "heads", "total", 4))),
    ),
    # --- tokenizer and template -----------------------------------------------------------------------------------------
    "tokenizer-not-json": ("a tokenizer file cut in the middle", TEXT, (cut("tokenizer.json", 300),)),
    "tokenizer-list": ("a tokenizer file that holds a list", TEXT, (file("tokenizer.json", "[1, 2, 3]\n"),)),
    "tokenizer-model": ("a tokenizer of an unknown kind", TEXT, (tokenizer(lambda t: t["model"].update(type="Magic")),)),
    "tokenizer-no-model": ("a tokenizer without a vocabulary", TEXT, (tokenizer(lambda t: t.pop("model")),)),
    "tokenizer-eos": ("an end token the tokenizer does not have", TEXT, (metadata('eos: ["</s>"]', 'eos: ["<|im_ends|>"]'),)),
    "tokenizer-eos-id": ("an end token beyond the vocabulary", TEXT, (metadata('eos: ["</s>"]', "eos: [99]"),)),
    "tokenizer-bos": ("a start token the tokenizer does not have", TEXT, (metadata('eos: ["</s>"]', 'eos: ["</s>"]\n  bos: "<bos>"'),)),
    "tokenizer-add-bos": ("a start token to add, but none declared", TEXT, (metadata('eos: ["</s>"]', 'eos: ["</s>"]\n  add_bos: true'),)),
    "template-syntax": ("a template that does not parse", TEXT, (file("chat_template.jinja", CHATML.replace("{% endfor %}", "{% endfro %}")),)),
    "template-not-utf8": ("a template that is no UTF-8", TEXT, (file("chat_template.jinja", b"{{ messages }}\xff"),)),
    # --- capabilities -------------------------------------------------------------------------------------------------
    "capability-unknown": ("a declared capability nobody knows", TEXT, (metadata("name: broken", "name: broken\ncapabilities: [loop.decoding]"),)),
    "capability-nested": (
        "an iterate loop inside a decode loop, which is not supported yet",
        PAIR,
        (
            metadata("    body:\n      - id: first", "    body:\n      - id: twice\n        loop: iterate\n        count: 2\n        body:\n          - {run: embed, inputs: {input_ids: loop.tokens}}\n      - id: first"),
        ),
    ),
    "tools-format": ("a format of tool calls nobody knows", TEXT, (metadata("limits:\n", "tools: {format: json_taged}\nlimits:\n"),)),
    "reasoning-end": ("reasoning that ends with the token that ends everything", TEXT, (metadata("limits:\n", 'reasoning: {open: "<s>", close: "</s>"}\nlimits:\n'),)),
    "infill-token": ("a token for infill prompts that the tokenizer lacks", TEXT, (metadata("  chat_template:", '  infill: {prefix: "<|go|>", suffix: "<|im_start|>", middle: "<fim_middle>"}\n  chat_template:'),)),
    "infill-order": ("an order of infill prompts nobody knows", TEXT, (metadata("  chat_template:", '  infill: {prefix: "<|go|>", suffix: "<|im_start|>", middle: "<|im_end|>", order: mps}\n  chat_template:'),)),
    "capability-session": ("sessions, which are not supported yet", TEXT, (metadata("limits:\n", "session: {idle_seconds: 60}\nlimits:\n"),)),
    "capability-kv-history": ("a bounded history, which is not supported yet", TEXT, (metadata("dtype: float32", "dtype: float32\n      history: 64"),)),
    "capability-kv-keep": ("state that outlives its request, which is not supported yet", TEXT, (metadata("dtype: float32", "dtype: float32\n      keep: session"),)),
    "capability-tokenizer-kind": ("a tokenizer of a kind that is not supported yet", TEXT, (metadata("file: tokenizer.json\n", "file: tokenizer.json\n  kind: sentencepiece\n"),)),
    "capability-adapters": (
        "adapters, which are not supported yet",
        TEXT,
        (metadata("limits:\n", "adapters:\n  - {id: style, file: style.safetensors, component: decoder}\nlimits:\n"), file("style.safetensors", b"\x02\0\0\0\0\0\0\0{}")),
    ),
}  # fmt: skip


# name -> (what is wrong, base, steps): several faults in one package, in one layer or across layers
SEVERAL: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    "yaml": (
        "two keys twice, a key that is a number, a tag",
        TEXT,
        (
            metadata("name: broken", "name: broken\nname: very"),
            metadata("      heads: 2\n", "      heads: 2\n      heads: 2\n"),
            metadata("limits:\n", "7: seven\nlimits:\n"),
            metadata("layers: 2", "layers: !many 2"),
        ),
    ),
    "schema": (
        "two misspelt fields, a wrong type, a value out of range, no outputs",
        TEXT,
        (
            metadata("head_dim: 4", "head_dims: 4"),
            metadata("    prompt: prompt", "    promt: prompt"),
            metadata("heads: 2", "heads: two"),
            metadata("context_length: 64", "context_length: -1"),
            metadata("outputs:\n  text: {modality: text, value: generate.text}\n", ""),
        ),
    ),
    "files": (
        "three files that are not there or not inside",
        TEXT,
        (
            metadata("file: tokenizer.json", "file: ../tokenizer.json"),
            metadata("chat_template: chat_template.jinja", "chat_template: /etc/passwd"),
            drop("model.onnx"),
        ),
    ),
    "names": (
        "an undefined value, an undefined component, two producers, an unreachable output",
        PAIR,
        (
            metadata("inputs_embeds: embeds\n", "inputs_embeds: embedz\n"),
            metadata(
                "      - id: second",
                "      - {id: again, run: embeded, inputs: {input_ids: loop.tokens}, outputs: {inputs_embeds: embeds}}\n"
                "      - id: second",
            ),
            metadata("value: generate.text", "value: generated.text"),
        ),
    ),
    "ports": (
        "wrong heads and layers, a misspelt port, a port nothing feeds, a mask of a wrong rank",
        TEXT,
        (
            metadata("heads: 2", "heads: 4"),
            metadata("layers: 2", "layers: 5"),
            metadata("input_ids: loop.tokens", "input_idz: loop.tokens"),
            decoder(
                extra=[("token_type_ids", "int64", ("batch", "sequence"))], mask=("int64", ("batch", 1, "sequence", "total"))
            ),
        ),
    ),
    "text": (
        "two unknown tokens and a template that does not parse",
        TEXT,
        (
            metadata('eos: ["</s>"]', 'eos: ["</s>", "<|im_ends|>"]\n  bos: "<bos>"'),
            file("chat_template.jinja", CHATML.replace("{% endfor %}", "{% endfro %}")),
        ),
    ),
    "layers": (
        "one fault in every layer: a misspelt field, a missing template, an undefined value, weights, a capability",
        TEXT,
        (
            metadata("temperature:", "temprature:"),
            drop("chat_template.jinja"),
            metadata("loop.attention_mask", "loop.mask"),
            external(),
            drop("model.onnx.data"),
            metadata("name: broken", "name: broken\ncapabilities: [time.travel]"),
            metadata('eos: ["</s>"]', 'eos: ["<end>"]'),
        ),
    ),
}  # fmt: skip

# the packages that all faults start from, unbroken
BASES: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    "base-text": ("one decoder, no fault", TEXT, ()),
    "base-pair": ("embeddings and decoder, no fault", PAIR, ()),
}

# name -> (kind, options) of packages that are whole and run
VALID: dict[str, tuple[str, dict[str, object]]] = {
    "append": ("kv", {"update": "append", "end_at": 30}),
    "bytes": ("bytes", {}),
    "in-place": ("kv", {"update": "in_place", "dtype": "float16"}),
    "recurrent": ("recurrent", {}),
    "scatter": ("kv", {"update": "scatter"}),
    "script": ("script", {"external_data": True}),
    "two-components": ("embeds", {"update": "append"}),
}


def main(names: Sequence[str]) -> None:
    """Write the named folders, or those that do not exist."""
    for kind, table in (
        ("invalid", FAULTS | METADATA_FAULTS | TEXT_FAULTS),
        ("invalid_several", SEVERAL),
        ("valid", BASES),
    ):
        for name, (fault, text, steps) in table.items():
            if wanted(root := HERE / kind / name, names):
                write(root, fault, text, steps)
    for name, (kind, options) in VALID.items():
        if wanted(root := HERE / "valid" / name, names):
            write_package(root, kind, **options)


def wanted(root: Path, names: Sequence[str]) -> bool:
    """Whether a folder is to be written: its name, or its path below this folder, was given, or it is not there."""
    return root.name in names or str(root.relative_to(HERE)) in names or (not names and not root.exists())


if __name__ == "__main__":
    main(sys.argv[1:])
