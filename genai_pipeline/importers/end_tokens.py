"""Which tokens end an answer, when neither the source's own config nor a file beside the tokenizer says it.

Some exporters write a config and tokenizer.json, and leave the end tokens to the reader. What is named is taken, by
text or id; else control tokens whose texts have no other use in published vocabularies. Both are told in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.texts import TOKENIZER, Texts
from genai_pipeline.problems import nearest

# Texts that end a text, a turn or an answer.
_USUAL = (
    "</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>",
    "<|end_of_turn|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|call|>", "<|end|>",
    "<｜end▁of▁sentence｜>", "<|end_of_sentence|>", "<|endofassistant|>",
)  # fmt: skip
# With the second in the vocabulary the first only ends one of the messages that make an answer.
_ONLY_MESSAGES = {"<|end|>": "<|return|>"}


def end_tokens(folder: SourceFolder, texts: Texts, named: Sequence[str], report: ImportReport) -> tuple[int, ...]:
    """End tokens by id; () when files say them already, or nothing tells. Raises ImportModelError for unknown names."""
    if named:
        return named_ends(folder, named, texts.vocabulary, report)
    if texts.ends_known or texts.eos or texts.tokenizer is None:
        return texts.eos
    return usual_ends({text: index for text, index in added_tokens(folder) if text in texts.specials}, report)


def named_ends(
    folder: SourceFolder, named: Sequence[str], vocabulary: int | None, report: ImportReport
) -> tuple[int, ...]:
    """The tokens of ``--eos`` by id. Raises ImportModelError for unknown names."""
    tokens = dict(added_tokens(folder))
    found = tuple(dict.fromkeys(_index(text, tokens, vocabulary) for text in named))
    report.mapped("--eos", "", f"tokenizer.eos: {', '.join(map(str, found))}")
    return found


def usual_ends(control: Mapping[str, int], report: ImportReport) -> tuple[int, ...]:
    """Control tokens of texts that end answers everywhere, by id. ``control``: text -> id."""
    usual = [text for text in _USUAL if text in control and _ONLY_MESSAGES.get(text, "") not in control]
    if usual:
        shown = ", ".join(usual)
        why = f"tokenizer.eos: {shown}, by their usual texts, as no file says which tokens end an answer"
        report.mapped(TOKENIZER, "added_tokens", f"{why}; --eos names others")
    return tuple(dict.fromkeys(control[text] for text in usual))


def _index(text: str, tokens: Mapping[str, int], vocabulary: int | None) -> int:
    """The token that a text or a number names."""
    if text in tokens:
        return tokens[text]
    if text.isascii() and text.isdigit() and (vocabulary is None or int(text) < vocabulary):
        return int(text)
    hint = nearest(text, tokens) or "a control token by its text, or any token by its id"
    raise ImportModelError(f"--eos '{text}': no control token of {TOKENIZER} has this text", hint=hint)


def added_tokens(folder: SourceFolder, *, special: bool = False) -> Iterator[tuple[str, int]]:
    """Text and id of the added tokens of tokenizer.json, all or the control tokens among them."""
    added = folder.json(TOKENIZER).get("added_tokens") if folder.has(TOKENIZER) else None
    for item in added.items() if added is not None else ():
        if not special or item.boolean("special", False):
            yield item.text("content"), item.integer("id")
