"""Closed-form packages that see and hear; ``signals`` has the pictures and sounds whose answers they know.

    package = write_vlm(tmp_path)
    pipe.generate("what?", images=[quarters("red", "green", "blue", "white")]).text == "redgreenbluewhite"

``write_vlm``: vision, projector, embedding and decoder; the answer names the colours of the quarters of every picture.
``write_listener``: an ear, embedding and decoder; the answer names level and pitch of a sound. ``write_towers``:
vectors of texts and of sounds, alike where a text names the pitch that a sound has; ``write_embedder``: of texts alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs import senses
from genai_pipeline.testing.graphs.caches import Geometry
from genai_pipeline.testing.graphs.decoder import Decoder, embedding_graph
from genai_pipeline.testing.graphs.echo import EchoRule
from genai_pipeline.testing.graphs.rules import Rule
from genai_pipeline.testing.kinds import KindOptions, Update, decode_stage, make_cache, sum_rule
from genai_pipeline.testing.packages import METADATA_FILE, metadata_text, write_graph
from genai_pipeline.testing.signals import COLOURS, LEVEL_WORDS, PITCH_WORDS
from genai_pipeline.testing.vocabulary import GENERATION_PROMPT, Vocabulary, words

IMAGE, AUDIO = "<image>", "<audio>"
PARTS_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% elif part.type == 'audio' %}<audio>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Edit = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class MediaPackage(os.PathLike[str]):
    """A package that was written. Usable wherever a path is; ``slot`` is the token that fills the places of items."""

    path: Path
    vocabulary: Vocabulary
    rule: Rule
    slot: int

    def __fspath__(self) -> str:
        """The package folder."""
        return str(self.path)

    def answer(self, prompt: Sequence[int], seen: Sequence[str], max_new_tokens: int) -> list[int]:
        """What ``Result.tokens`` must be for a prompt with slots, given the words that stand for what is in them."""
        rest = iter(self.vocabulary.id_list(seen))
        tokens = [next(rest) if token == self.slot else token for token in prompt]
        found = self.rule.expected(tokens, max_new_tokens)
        ends = [place for place, token in enumerate(found) if token == self.vocabulary.id("</s>")]
        return found[: ends[0]] if ends else found


@dataclass(frozen=True)
class _Sense:
    """What a package that talks about what it sees or hears adds to the metadata of a text model."""

    name: str
    token: str  # of the placeholder
    words: Sequence[str]  # that rows of features stand for
    input: str
    declared: dict[str, Any]  # the input
    program: list[dict[str, Any]]
    graphs: Mapping[str, GraphBuilder]  # by component
    stages: list[dict[str, Any]]


def write_vlm(
    folder: str | os.PathLike[str],
    *,
    update: Update = "in_place",
    sums: bool = False,
    chat_template: str = PARTS_TEMPLATE,
    edit: Edit | None = None,
) -> MediaPackage:
    """A vision-language package: the answer is the colours of all quarters, in order.

    With ``sums`` it is that of the package kind ``kv`` for a prompt with the colours' words in the slots.
    """
    vocabulary = words(IMAGE, *COLOURS)
    projector = senses.projector_graph(vocabulary.id_list(COLOURS))
    side = senses.SIDE
    placeholder = {"token": IMAGE, "count": senses.QUARTERS}
    sense = _Sense(
        name="tiny-vlm",
        token=IMAGE,
        words=COLOURS,
        input="images",
        declared={"modality": "image", "placeholder": placeholder, "max_items": 4, "required": False},
        program=[
            {"decode": {"mode": "RGB"}},
            {"resize": {"size": [side, side], "fit": "stretch", "resample": "box"}},
            {"rescale": {"factor": 1 / 255}},
        ],
        graphs={"vision": senses.vision_graph(), "projector": projector},
        stages=[
            {
                "id": "see",
                "run": "vision",
                "for_each": "images",
                "inputs": {"pixel_values": "images.pixels"},
                "outputs": {"image_features": "features"},
            },
            {
                "id": "project",
                "run": "projector",
                "for_each": "features",
                "inputs": {"features": "features"},
                "outputs": {"rows": "rows"},
            },
        ],
    )
    options = KindOptions(update=update)
    rule = sum_rule(options, vocabulary) if sums else _echo(vocabulary, COLOURS)
    return _write_talker(Path(folder), vocabulary, rule, sense, options, chat_template, edit)


def write_listener(
    folder: str | os.PathLike[str],
    *,
    update: Update = "in_place",
    chat_template: str = PARTS_TEMPLATE,
    edit: Edit | None = None,
) -> MediaPackage:
    """A package that hears: the answer is a word for the level of a sound and one for its pitch."""
    heard = (*LEVEL_WORDS, *PITCH_WORDS)
    vocabulary = words(AUDIO, *heard)
    sense = _Sense(
        name="tiny-listener",
        token=AUDIO,
        words=heard,
        input="audio",
        declared={"modality": "audio", "placeholder": {"token": AUDIO, "count": 2}, "required": False},
        program=hearing(),
        graphs={"ear": senses.ear_graph(vocabulary.id_list(LEVEL_WORDS), vocabulary.id_list(PITCH_WORDS))},
        stages=[
            {
                "id": "listen",
                "run": "ear",
                "when": "present(audio)",
                "inputs": {"samples": "audio.samples"},
                "outputs": {"rows": "rows"},
            }
        ],
    )
    options = KindOptions(update=update)
    return _write_talker(Path(folder), vocabulary, _echo(vocabulary, heard), sense, options, chat_template, edit)


def write_towers(folder: str | os.PathLike[str], *, edit: Edit | None = None) -> MediaPackage:
    """Two towers: vectors of texts and of sounds in one space, of length 1."""
    vocabulary = words(*PITCH_WORDS)
    pitches = vocabulary.id_list(PITCH_WORDS)
    unit = {"op": "normalize", "with": {"order": 2}, "inputs": {"value": "vector"}, "outputs": {"result": "unit"}}
    text = {"input_ids": "prompt.tokens", "attention_mask": "prompt.mask"}
    metadata = {
        "schema_version": "1",
        "name": "tiny-towers",
        "inputs": {
            "prompt": {"modality": "text", "list": True, "required": False},
            "audio": {"modality": "audio", "list": True, "required": False, "program": "hear"},
        },
        "outputs": {
            "texts": {"modality": "vector", "value": "read.unit"},
            "sounds": {"modality": "vector", "value": "listen.unit"},
        },
        "tokenizer": {"file": "tokenizer.json"},
        "preprocess": {"hear": hearing()},
        "components": {
            "text_tower": {"model": "text_tower.onnx", "pad": {"input_ids": 0, "attention_mask": 0}},
            "sound_tower": {"model": "sound_tower.onnx"},
        },
        "stages": [
            {
                "id": "read",
                "for_each": "prompt",
                "body": [{"run": "text_tower", "inputs": text, "outputs": {"vector": "vector"}}, unit],
            },
            {
                "id": "listen",
                "for_each": "audio",
                "body": [
                    {"run": "sound_tower", "inputs": {"samples": "audio.samples"}, "outputs": {"vector": "vector"}},
                    unit,
                ],
            },
        ],
    }
    graphs = {
        "text_tower": senses.text_tower_graph(len(vocabulary), pitches),
        "sound_tower": senses.sound_tower_graph(),
    }
    return _write(Path(folder), metadata, graphs, _Known(vocabulary, _echo(vocabulary, PITCH_WORDS), 0), edit)


def write_embedder(folder: str | os.PathLike[str], *, edit: Edit | None = None) -> MediaPackage:
    """The tower of texts alone: how often each word of a pitch is there, as a vector of length 1."""

    def alone(metadata: dict[str, Any]) -> None:
        metadata["name"] = "tiny-embedder"
        for part, name in (("inputs", "audio"), ("outputs", "sounds"), ("components", "sound_tower")):
            del metadata[part][name]
        del metadata["preprocess"], metadata["stages"][1]
        if edit is not None:
            edit(metadata)

    return write_towers(folder, edit=alone)


def hearing() -> list[dict[str, Any]]:
    """The program of the packages that hear: a tenth of a second at 8 kHz."""
    seconds = senses.LISTEN / senses.RATE
    return [{"decode": {}}, {"mono": {}}, {"resample": {"rate": senses.RATE}}, {"pad": {"seconds": seconds}}]


def _echo(vocabulary: Vocabulary, seen: Sequence[str]) -> EchoRule:
    """The rule that answers with the words in the slots."""
    lead = len(vocabulary.encode(GENERATION_PROMPT))
    start, end = vocabulary.id("<|im_start|>"), vocabulary.id("</s>")
    return EchoRule(len(vocabulary), tuple(vocabulary.id_list(seen)), start, end, lead)


def _write_talker(
    folder: Path,
    vocabulary: Vocabulary,
    rule: Rule,
    sense: _Sense,
    options: KindOptions,
    chat_template: str,
    edit: Edit | None,
) -> MediaPackage:
    """A package whose encoder's rows are spliced into the embeddings of the prompt."""
    cache = make_cache(options)
    at = f"{sense.input}.positions"
    body = [
        {"run": "embed", "inputs": {"input_ids": "loop.tokens"}, "outputs": {"inputs_embeds": "plain"}},
        {"op": "splice", "inputs": {"into": "plain", "features": "rows", "at": at}, "outputs": {"result": "embeds"}},
        {"run": "decoder", "inputs": {"inputs_embeds": "embeds", **cache.bindings()}, "outputs": {"logits": "logits"}},
    ]
    state = {"update": cache.update, "past": "past_key_values.{layer}.{part}", "present": "present.{layer}.{part}"}
    metadata = {
        "schema_version": "1",
        "name": sense.name,
        "inputs": {"prompt": {"modality": "text"}, sense.input: {**sense.declared, "program": "prepare"}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": {"file": "tokenizer.json", "chat_template": "chat_template.jinja", "eos": ["</s>", "<|im_end|>"]},
        "preprocess": {"prepare": sense.program},
        "components": {
            **{name: {"model": f"{name}.onnx"} for name in (*sense.graphs, "embed")},
            "decoder": {"model": "decoder.onnx", "kv": state},
        },
        "stages": [*sense.stages, decode_stage(body)],
        "generation": {"defaults": {"temperature": 0}},
        "limits": {"context_length": 256},
    }
    decoder = Decoder(rule, cache, Geometry(), "inputs_embeds", options.logits, options.peak)
    graphs = {**sense.graphs, "embed": embedding_graph(len(vocabulary)), "decoder": decoder.build()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    return _write(folder, metadata, graphs, _Known(vocabulary, rule, vocabulary.id(sense.token)), edit)


@dataclass(frozen=True)
class _Known:
    """What a written package knows about its answers."""

    vocabulary: Vocabulary
    rule: Rule
    slot: int


def _write(
    folder: Path, metadata: dict[str, Any], graphs: Mapping[str, GraphBuilder], known: _Known, edit: Edit | None
) -> MediaPackage:
    """Write graphs (by component), tokenizer and metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in graphs.items():
        write_graph(folder / f"{name}.onnx", graph)
    known.vocabulary.write(folder / "tokenizer.json")
    if edit is not None:
        edit(metadata)
    (folder / METADATA_FILE).write_text(metadata_text(metadata), encoding="utf-8")
    return MediaPackage(folder, known.vocabulary, known.rule, known.slot)
