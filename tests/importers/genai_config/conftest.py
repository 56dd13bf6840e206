"""Folders made for onnxruntime-genai out of closed-form packages, and that runtime's own answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.graphs.caches import Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.graphs.mixing import (
    EYE_SIDE,
    eye_graph,
    filled_eye_graph,
    mixer_graph,
    patch_eye_graph,
    wide_eye_graph,
)
from genai_pipeline.testing.graphs.rules import SumRule
from genai_pipeline.testing.kinds import KindOptions, Update, make_cache, sum_rule
from genai_pipeline.testing.media import PARTS_TEMPLATE
from genai_pipeline.testing.packages import write_graph
from genai_pipeline.testing.vocabulary import SPECIALS, Vocabulary, byte_characters

CONTEXT = 256
BLOCK = 4  # pixels that stand for one row of a picture of any size
PATCH_VALUES = 3 * 2 * (BLOCK // 2) ** 2  # channels, frames, pixels
# Type of a model -> the token of slots, and all its marks.
MARKS = {
    "gemma3": ("<image_soft_token>", ("<start_of_image>", "<image_soft_token>", "<end_of_image>")),
    "mistral3": ("[IMG]", ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]")),
    "lfm2_vl": ("<image>", ("<image>", "<|image_start|>", "<|image_end|>")),
    "qwen2_5_vl": ("<|image_pad|>", ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")),
}
WRITTEN = {  # what a template writes for a picture
    "gemma3": "<start_of_image>",
    "mistral3": "[IMG]",
    "lfm2_vl": "<image>",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
}
COLOUR_WORDS = "abcdefgh"
PICTURE_STEPS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    ("DecodeImage", {"color_space": "RGB"}),
    ("Resize", {"interpolation": "CUBIC", "width": EYE_SIDE, "height": EYE_SIDE, "keep_aspect_ratio": 0}),
    ("Rescale", None),
    ("Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}),
    ("Permute3D", {"dims": [2, 0, 1]}),
)


@dataclass(frozen=True)
class GenaiFolder:
    """A source folder, and the package it was made of, whose twin knows the answers."""

    path: Path
    package: TinyPackage

    def reconfigure(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Changes genai_config.json."""
        config = json.loads((self.path / "genai_config.json").read_text())
        edit(config)
        write_config(self.path, config)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The tokens of onnxruntime-genai, end tokens included."""
        import onnxruntime_genai

        model = onnxruntime_genai.Model(str(self.path))
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + count)
        generator = onnxruntime_genai.Generator(model, params)
        generator.append_tokens(np.array(prompt, np.int32))
        tokens: list[int] = []
        while not generator.is_done():
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
        return tokens


@pytest.fixture
def genai_folder(tmp_path: Path) -> Callable[..., GenaiFolder]:
    """``genai_folder("kv", edit=..., update="append")``: ``edit`` gets the config before it is written."""

    def make(
        kind: str = "kv",
        *,
        edit: Callable[[dict[str, Any]], object] | None = None,
        name: str = "source",
        **options: Any,
    ) -> GenaiFolder:
        package = write_package(tmp_path / name, kind, context_length=CONTEXT, **options)
        config = decoder_config(package)
        if edit is not None:
            edit(config)
        (package.path / "inference_metadata.yaml").unlink()
        write_config(package.path, config)
        return GenaiFolder(package.path, package)

    return make


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Writes genai_config.json."""
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")


def decoder_config(package: TinyPackage) -> dict[str, Any]:
    """What onnxruntime-genai's model builder writes for such a decoder."""
    return {
        "model": {
            "type": "llama",
            "bos_token_id": package.vocabulary.id("<s>"),
            "eos_token_id": list(package.end_ids),
            "pad_token_id": package.end_ids[0],
            "context_length": CONTEXT,
            "vocab_size": len(package.vocabulary),
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": 8,
                "hidden_size": 16,
                "num_attention_heads": 2,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"do_sample": False, "max_length": CONTEXT, "past_present_share_buffer": True},
    }


@dataclass(frozen=True)
class SeeingFolder:
    """A source folder with an eye, a mixer and a decoder; ``rule`` knows the answers to what stands in the slots."""

    path: Path
    vocabulary: Vocabulary
    rule: SumRule
    slot: str

    def reconfigure(self, edit: Callable[[dict[str, Any]], object], file: str = "genai_config.json") -> None:
        """Changes a JSON file."""
        config = json.loads((self.path / file).read_text())
        edit(config)
        (self.path / file).write_text(json.dumps(config), encoding="utf-8")

    def answer(self, tokens: Sequence[int], pictures: Sequence[NDArray[np.uint8]], count: int) -> list[int]:
        """The tokens after a prompt with slots, given the pictures in them."""
        words = iter(self.vocabulary.id_list(COLOUR_WORDS[code] for picture in pictures for code in codes(picture)))
        slot = self.vocabulary.id(self.slot)
        return self.rule.expected([next(words) if token == slot else token for token in tokens], count)

    def tokens(self, prompt: str, pictures: Sequence[bytes]) -> list[int]:
        """The tokens that onnxruntime-genai makes of a prompt with pictures."""
        _, tensors = self._read(prompt, pictures)
        return [int(token) for token in tensors["input_ids"].as_numpy()[0]]

    def pixels(self, prompt: str, pictures: Sequence[bytes]) -> NDArray[np.float32]:
        """What it makes of the pictures."""
        _, tensors = self._read(prompt, pictures)
        return np.array(tensors["pixel_values"].as_numpy())

    def theirs(self, prompt: str, pictures: Sequence[bytes], count: int) -> tuple[list[int], list[int]]:
        """The tokens of a prompt, and those that it answers."""
        import onnxruntime_genai

        model, tensors = self._read(prompt, pictures)
        tokens = [int(token) for token in tensors["input_ids"].as_numpy()[0]]
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=len(tokens) + count)
        generator = onnxruntime_genai.Generator(model, params)
        generator.set_inputs(tensors)
        found: list[int] = []
        while not generator.is_done():
            generator.generate_next_token()
            found.append(int(generator.get_next_tokens()[0]))
        return tokens, found

    def _read(self, prompt: str, pictures: Sequence[bytes]) -> tuple[Any, Any]:
        import onnxruntime_genai

        model = onnxruntime_genai.Model(str(self.path))
        images = {"images": onnxruntime_genai.Images.open_bytes(*pictures)} if pictures else {}
        return model, model.create_multimodal_processor()(prompt, **images)


def codes(picture: NDArray[np.uint8]) -> list[int]:
    """The numbers of the colours of all pixels, in reading order."""
    bits = picture.reshape(-1, 3) > 127
    return [int(code) for code in bits @ np.array([1, 2, 4])]


@pytest.fixture
def seeing_folder(tmp_path: Path) -> Callable[..., SeeingFolder]:
    """``seeing_folder(axes=3, steps=...)``: a folder like those of Gemma 3."""

    def make(
        kind: str = "gemma3",
        *,
        axes: int = 3,
        update: Update = "in_place",
        steps: Sequence[tuple[str, dict[str, Any] | None]] = PICTURE_STEPS,
    ) -> SeeingFolder:
        folder = tmp_path / "source"
        folder.mkdir()
        slot, marks = MARKS[kind]
        vocabulary = Vocabulary("bytes", (*SPECIALS, *marks, *byte_characters()), len(SPECIALS) + len(marks))
        options = KindOptions(update=update)
        rule = sum_rule(options, vocabulary)
        decoder = Decoder(rule, make_cache(options), Geometry(), "inputs_embeds").build()
        words = vocabulary.id_list(COLOUR_WORDS)
        eyes = {
            "gemma3": lambda: eye_graph(words, axes=axes),
            "mistral3": lambda: wide_eye_graph(words, BLOCK),
            "lfm2_vl": lambda: filled_eye_graph(words, 2, PATCH_VALUES // 2),
        }
        write_graph(folder / "vision.onnx", eyes.get(kind, lambda: patch_eye_graph(words, 2, PATCH_VALUES))())
        mixer = mixer_graph(len(vocabulary), {"image_features": vocabulary.id(slot)}, axes=axes)
        write_graph(folder / "embedding.onnx", mixer)
        write_graph(folder / "model.onnx", decoder)
        vocabulary.write(folder / "tokenizer.json")
        texts = {
            "tokenizer_class": "GPT2Tokenizer",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": PARTS_TEMPLATE.replace("<image>", WRITTEN[kind]),
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(texts), encoding="utf-8")
        operations = [{"name": kind.lower(), "type": kind, **({"attrs": a} if a else {})} for kind, a in steps]
        processor = {"processor": {"name": "eye", "transforms": [{"operation": o} for o in operations]}}
        (folder / "processor_config.json").write_text(json.dumps(processor), encoding="utf-8")
        write_config(folder, seeing_config(vocabulary, kind))
        return SeeingFolder(folder, vocabulary, rule, slot)

    return make


def seeing_config(vocabulary: Vocabulary, kind: str) -> dict[str, Any]:
    """genai_config.json of such a folder."""
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "hidden_size": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "head_size": 8,
        "inputs": {
            "inputs_embeds": "inputs_embeds",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    return {
        "model": {
            "type": kind,
            "bos_token_id": vocabulary.id("<s>"),
            "eos_token_id": [vocabulary.id("</s>")],
            "pad_token_id": vocabulary.id("</s>"),
            "context_length": 1024,
            "vocab_size": len(vocabulary),
            "decoder": decoder,
            "embedding": {
                "filename": "embedding.onnx",
                "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
                "outputs": {"inputs_embeds": "inputs_embeds"},
            },
            "vision": {
                "filename": "vision.onnx",
                "config_filename": "processor_config.json",
                "spatial_merge_size": 2,
                "patch_size": BLOCK // 2,
                "inputs": {"pixel_values": "pixel_values", "image_grid_thw": "image_grid_thw"},
                "outputs": {"image_features": "image_features"},
            },
        },
        "search": {"do_sample": False, "max_length": 1024, "past_present_share_buffer": True},
    }
