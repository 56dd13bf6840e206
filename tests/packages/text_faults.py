"""Faults of tokenizers, the files beside them and chat templates: the part of the corpus that is about text.

Longer lines than elsewhere: it is one table, a fault a line.
"""

# ruff: noqa: E501

from __future__ import annotations

import json

from corpus_parts import SIZE, TEXT, Step, decoder, drop, file, link, metadata

EOS = 'eos: ["</s>"]'
LOOP = "    prompt: prompt.tokens\n"
UNDECLARED = metadata("  chat_template: chat_template.jinja\n", "")


def config(content: object) -> Step:
    """Write tokenizer_config.json."""
    return file("tokenizer_config.json", json.dumps(content))


def only_config(template: object) -> tuple[Step, ...]:
    """The template is in tokenizer_config.json and nowhere else."""
    return (UNDECLARED, drop("chat_template.jinja"), config({"chat_template": template}))


TEXT_FAULTS: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    "tokenizer-empty": ("an empty tokenizer file", TEXT, (file("tokenizer.json", ""),)),
    "tokenizer-pad": ("a padding token the tokenizer does not have", TEXT, (metadata(EOS, EOS + '\n  pad: "<padding>"'),)),
    "tokenizer-bos-id": ("a start token beyond the vocabulary", TEXT, (metadata(EOS, EOS + "\n  bos: 4096"),)),
    "tokenizer-eos-two": ("two end tokens, the second unknown", TEXT, (metadata(EOS, 'eos: ["</s>", "</ss>"]'),)),
    "tokenizer-suppress": ("a suppressed token the tokenizer does not have", TEXT, (metadata(LOOP, LOOP + '    suppress: ["<nothing>"]\n'),)),
    "tokenizer-stop": ("a loop that stops at a token beyond the vocabulary", TEXT, (metadata(LOOP, LOOP + "    stop: {tokens: [512]}\n"),)),
    "tokenizer-suppress-near": ("a misspelt suppressed token, after a right one", TEXT, (metadata(LOOP, LOOP + '    suppress:\n      - "<s>"\n      - "<|im_strat|>"\n'),)),
    "tokenizer-times": ("marks of time in the wrong order", TEXT, (metadata(LOOP, LOOP + '    times: {first: 9, last: 7, latest_start: 8}\n'),)),
    "tokenizer-default-stop": ("a default stop beyond the vocabulary", TEXT, (metadata("top_p: 0.9", "stop_token_ids: [1, 99999]"),)),
    "tokenizer-vocabulary": ("logits with a column too few", TEXT, (decoder(logits=("batch", "sequence", SIZE - 1)),)),
    "tokenizer-config-syntax": ("a tokenizer_config.json that is no JSON", TEXT, (file("tokenizer_config.json", '{\n"bos_token": "<s>",\n}\n'),)),
    "tokenizer-config-link": ("a tokenizer_config.json behind a link that leaves", TEXT, (link("tokenizer_config.json", "/etc/hostname"),)),
    "tokenizer-generation-list": ("a generation_config.json that holds a list", TEXT, (file("generation_config.json", "[2]\n"),)),
    "template-beside-syntax": ("a template beside the tokenizer that does not parse", TEXT, (UNDECLARED, file("chat_template.jinja", "{{ messages }}\n{% endif %}\n"))),
    "template-in-config-syntax": ("a template in tokenizer_config.json that does not parse", TEXT, only_config("a\n{{ b }")),
    "template-in-config-type": ("a template that is a number", TEXT, only_config(7)),
    "template-no-default": ("named templates without a default", TEXT, only_config([{"name": "tool_use", "template": "x"}])),
    "template-filter": ("a template with a filter that does not exist", TEXT, (file("chat_template.jinja", "{{ messages | to_json }}"),)),
}  # fmt: skip
