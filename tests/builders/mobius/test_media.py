"""Models that see or hear, as mobius-onnx builds them with random weights: imported, they answer as plain loops do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mobius
import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import transformers
from mobius.integrations.onnx_genai import write_onnx_genai_config
from mobius.models.wav2vec2_ctc import Wav2Vec2ForCTCModel
from numpy.typing import NDArray

import genai_pipeline as gp
from genai_pipeline.importers.workflow import import_workflow

SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<image>")
WORDS = 119
SLOT = 4
SIDE, ROWS = 28, 4  # pixels of a picture's side, and rows that it becomes
SYMBOLS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefg")
Arrays = Mapping[str, NDArray[Any]]


def built(config: Any, folder: Path, **options: Any) -> Path:
    """The folder that mobius writes for a config, with random weights."""
    config.save_pretrained(folder / "config")
    package = mobius.build(str(folder / "config"), load_weights=False, **options)
    generator = np.random.default_rng(3)
    for model in package.values():
        for name, value in model.graph.initializers.items():
            if value.const_value is None:
                value.const_value = ir.tensor(weight(name, tuple(map(int, value.shape)), generator), name=name)
    package.save(str(folder / "built"))
    write_onnx_genai_config(package, str(folder / "built"), config=package.config)
    return folder / "built"


def weight(name: str, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    """Numbers that keep what they are multiplied with about as large as it was."""
    if len(shape) > 1:
        return generator.normal(size=shape, scale=1.5 * np.prod(shape[1:]) ** -0.5).astype(np.float32)
    around = 1.0 if "norm" in name and not name.endswith("bias") else 0.0
    return generator.normal(size=shape, loc=around, scale=0.2).astype(np.float32)


class Plain:
    """A graph in plain onnxruntime, in the pool of threads that the process has once a package is loaded."""

    def __init__(self, file: Path) -> None:
        options = ort.SessionOptions()
        options.use_per_session_threads = False
        self.session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def __call__(self, **feeds: NDArray[Any]) -> NDArray[np.float32]:
        """Its first output; inputs that are not given are empty state."""
        for port in self.session.get_inputs():
            shape = [size if isinstance(size, int) else 1 - min(axis, 1) for axis, size in enumerate(port.shape)]
            feeds.setdefault(port.name, np.zeros(shape, np.float32))
        found: NDArray[np.float32] = self.session.run(None, feeds)[0]
        return found


def seen(folder: Path, picture: NDArray[np.float32], prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens by hand: rows of the picture, embeddings of the whole text, logits, anew for each token."""
    eye, mixer, decoder = (Plain(folder / name / "model.onnx") for name in ("vision_encoder", "embedding", "decoder"))
    rows, tokens = eye(pixel_values=picture[np.newaxis])[0], list(prompt)
    for _ in range(count):
        embeds = mixer(input_ids=np.array([tokens]), image_features=rows)
        where = np.arange(len(tokens))[np.newaxis]
        logits = decoder(inputs_embeds=embeds, attention_mask=np.ones_like(where), position_ids=where)
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value), encoding="utf-8")


def word_tokenizer() -> dict[str, Any]:
    texts = [*SPECIAL, *(f"w{index}" for index in range(WORDS))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": text, **flags} for index, text in enumerate(SPECIAL)],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {text: i for i, text in enumerate(texts)}, "unk_token": "<unk>"},
    }


def test_a_model_that_sees(tmp_path: Path) -> None:
    text = transformers.LlamaConfig(
        vocab_size=len(SPECIAL) + WORDS, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256, bos_token_id=1,
        eos_token_id=2, pad_token_id=3, tie_word_embeddings=False,
    )  # fmt: skip
    eye = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE, patch_size=14
    )
    config = transformers.LlavaConfig(vision_config=eye, text_config=text, image_token_index=SLOT)
    config.architectures = ["LlavaForConditionalGeneration"]
    folder = built(config, tmp_path)
    (folder / "config.json").write_bytes((tmp_path / "config" / "config.json").read_bytes())
    write_json(folder / "tokenizer.json", word_tokenizer())
    size = {"height": SIDE, "width": SIDE}
    numbers = {"rescale_factor": 1 / 255, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    write_json(
        folder / "preprocessor_config.json", {"image_processor_type": "SiglipImageProcessor", "size": size} | numbers
    )
    import_workflow(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    picture = np.random.default_rng(5).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    with gp.load(tmp_path / "made", prefill_chunk=3) as pipe:
        found = pipe.generate("w5 <image> w17 w90 w33", images=[picture], raw=True, temperature=0, max_new_tokens=16)
        prompt = [len(SPECIAL) + 5, *[SLOT] * ROWS, *(len(SPECIAL) + word for word in (17, 90, 33))]
        pixels = (picture.transpose(2, 0, 1).astype(np.float32) / 255 - 0.5) / 0.5
        wanted = seen(folder, pixels, prompt, 16)
    assert list(found.tokens) == wanted[: wanted.index(2) if 2 in wanted else None]
    assert len(set(wanted)) > 4  # the weights make an answer that a wrong picture would change


def test_a_model_that_hears(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(
        vocab_size=len(SYMBOLS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, feat_extract_norm="layer",
        do_stable_layer_norm=True, conv_bias=True, architectures=["Wav2Vec2ForCTC"],
    )  # fmt: skip
    folder = built(config, tmp_path, task="ctc-asr", module_class=Wav2Vec2ForCTCModel)
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000, "do_normalize": True}
    write_json(folder / "preprocessor_config.json", extractor)
    write_json(folder / "vocab.json", {text: index for index, text in enumerate(SYMBOLS)})
    import_workflow(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    sound = np.random.default_rng(6).normal(size=12000, scale=0.1).astype(np.float32)
    with gp.load(tmp_path / "made") as pipe:
        found = pipe.run({"sound": (sound, 16000)})["text"]
        unit = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
        best = Plain(folder / "model.onnx")(input_values=unit[np.newaxis])[0].argmax(-1)
    path = [int(symbol) for index, symbol in enumerate(best) if index == 0 or best[index - 1] != symbol]
    assert len(set(path)) > 2
    said = "".join("" if symbol < 3 else SYMBOLS[symbol].replace("|", " ") for symbol in path)
    assert found == said.strip()
