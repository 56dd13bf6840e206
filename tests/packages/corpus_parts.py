"""What the corpus of broken packages is made of: base packages, and the steps that break them.

Graphs have ports and almost nothing inside: ``validate`` reads signatures only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx

from genai_pipeline.testing import GraphBuilder, Vocabulary
from genai_pipeline.testing.vocabulary import CHATML, SPECIALS

HERE = Path(__file__).parent
VOCABULARY = Vocabulary("words", (*SPECIALS, "user", "assistant", "a", "b", " ", "\n"))
SIZE = len(VOCABULARY)

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 98304000\n"

TEXT = """\
# {fault}
schema_version: "1"
name: broken
inputs:
  prompt: {{modality: text}}
outputs:
  text: {{modality: text, value: generate.text}}
tokenizer:
  file: tokenizer.json
  chat_template: chat_template.jinja
  eos: ["</s>"]
components:
  decoder:
    model: model.onnx
    kv:
      update: append
      past: "past.{{layer}}.{{part}}"
      present: "present.{{layer}}.{{part}}"
      layers: 2
      heads: 2
      head_dim: 4
      dtype: float32
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - run: decoder
        inputs:
          input_ids: loop.tokens
          attention_mask: loop.attention_mask
          position_ids: loop.position_ids
        outputs: {{logits: logits}}
    logits: logits
generation:
  defaults: {{temperature: 0.7, top_p: 0.9}}
limits:
  context_length: 64
"""

PAIR = """\
# {fault}
schema_version: "1"
name: broken
inputs:
  prompt: {{modality: text}}
outputs:
  text: {{modality: text, value: generate.text}}
tokenizer:
  file: tokenizer.json
  eos: ["</s>"]
components:
  embed:
    model: embed.onnx
  decoder:
    model: model.onnx
    kv: {{update: append, past: "past.{{layer}}.{{part}}", present: "present.{{layer}}.{{part}}"}}
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - id: first
        run: embed
        inputs: {{input_ids: loop.tokens}}
        outputs: {{inputs_embeds: embeds}}
      - id: second
        run: decoder
        inputs:
          inputs_embeds: embeds
          attention_mask: loop.attention_mask
          position_ids: loop.position_ids
        outputs: {{logits: logits}}
    logits: logits
limits:
  context_length: 64
"""

Step = Callable[[Path], None]
Shape = Sequence[int | str]


def metadata(old: str, new: str) -> Step:
    """Replace one piece of the metadata."""

    def step(root: Path) -> None:
        file = root / "inference_metadata.yaml"
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{root.name}: {old!r} occurs {text.count(old)} times"
        file.write_text(text.replace(old, new), encoding="utf-8")

    return step


def operation(*stages: str) -> tuple[Step, ...]:
    """Stages behind the loop; the first has the id ``more``, and a last one, if there are two, the id ``last``."""
    name = "last" if len(stages) > 1 else "more"
    output = f"  {name}: {{modality: tensor, value: {name}.result}}\n"
    text = "  text: {modality: text, value: generate.text}\n"
    lines = "".join(f"  - {stage}\n" for stage in stages)
    return metadata(text, text + output), metadata("    logits: logits\n", f"    logits: logits\n{lines}")


def document(content: str | bytes) -> Step:
    """Another metadata file altogether."""
    return file("inference_metadata.yaml", content)


def file(name: str, content: str | bytes) -> Step:
    """Write a file."""

    def step(root: Path) -> None:
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return step


def drop(name: str) -> Step:
    """Remove a file."""

    def step(root: Path) -> None:
        (root / name).unlink()

    return step


def link(name: str, target: str) -> Step:
    """Replace a file by a symbolic link."""

    def step(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)

    return step


def folder(name: str) -> Step:
    """Replace a file by a folder (with a file in it, so that it can be committed)."""

    def step(root: Path) -> None:
        (root / name).unlink()
        (root / name).mkdir()
        (root / name / "keep").write_text("")

    return step


def decoder(
    *,
    past: Shape = ("batch", 2, "past", 4),
    present: Shape = ("batch", 2, "total", 4),
    dtype: str = "float32",
    present_dtype: str | None = None,
    layers: Sequence[int] = (0, 1),
    parts: Sequence[str] = ("key", "value"),
    tokens: tuple[str, str, Shape] = ("input_ids", "int64", ("batch", "sequence")),
    mask: tuple[str, Shape] = ("int64", ("batch", "total")),
    extra: Sequence[tuple[str, str, Shape]] = (),
    logits: Shape = ("batch", "sequence", SIZE),
    presents: bool = True,
    metadata_name: str = "model.onnx",
) -> Step:
    """Write the decoder graph with other ports."""

    def step(root: Path) -> None:
        b = GraphBuilder("decoder")
        token = b.input(*tokens)
        b.input("attention_mask", *mask)
        b.input("position_ids", "int64", ("batch", "sequence"))
        for port in extra:
            b.input(*port)
        b.output("logits", b.cast(token, "float32"), "float32", logits)
        for layer in layers:
            for part in parts:
                value = b.input(f"past.{layer}.{part}", dtype, past)
                if presents:
                    b.output(f"present.{layer}.{part}", b.op("Identity", value), present_dtype or dtype, present)
        b.save(root / metadata_name)

    return step


def attention(window: int = -1) -> Step:
    """Write a decoder graph whose caches go through GroupQueryAttention, with a window or (-1) without."""

    def step(root: Path) -> None:
        b = GraphBuilder("decoder")
        token = b.input("input_ids", "int64", ("batch", "sequence"))
        mask = b.input("attention_mask", "int64", ("batch", "total"))
        b.input("position_ids", "int64", ("batch", "sequence"))
        hidden = b.op("Expand", b.cast(b.op("Unsqueeze", token, [-1]), "float32"), [1, 1, 8])
        last = b.cast(b.op("Sub", b.op("ReduceSum", mask, [1], keepdims=0), 1), "int32")
        width = b.cast(b.op("Squeeze", b.size(mask, 1)), "int32")
        cache = ("batch", 2, "capacity", 4)
        for layer in (0, 1):
            past = [b.input(f"past.{layer}.{part}", "float32", cache) for part in ("key", "value")]
            hidden, *present = b.ops(
                "GroupQueryAttention", hidden, hidden, hidden, *past, last, width, domain="com.microsoft",
                count=3, num_heads=2, kv_num_heads=2, local_window_size=window,
            )  # fmt: skip
            for part, value in zip(("key", "value"), present, strict=True):
                b.output(f"present.{layer}.{part}", value, "float32", cache)
        b.output("logits", b.op("MatMul", hidden, [[0.0] * SIZE] * 8), "float32", ("batch", "sequence", SIZE))
        b.save(root / "model.onnx")

    return step


def embedding(
    shape: Shape = ("batch", "sequence", 8), dtype: str = "float32", extra: Sequence[tuple[str, str, Shape]] = ()
) -> Step:
    """Write the embedding graph."""

    def step(root: Path) -> None:
        b = GraphBuilder("embed")
        token = b.input("input_ids", "int64", ("batch", "sequence"))
        for port in extra:
            b.input(*port)
        b.output("inputs_embeds", b.cast(token, dtype), dtype, shape)
        b.save(root / "embed.onnx")

    return step


def external(location: str | None = None, keep: int | None = None) -> Step:
    """Give the decoder a weight in ``model.onnx.data``, at another location or cut to ``keep`` bytes."""

    def step(root: Path) -> None:
        b = GraphBuilder("decoder")
        token = b.input("input_ids", "int64", ("batch", "sequence"))
        b.input("attention_mask", "int64", ("batch", "total"))
        b.input("position_ids", "int64", ("batch", "sequence"))
        weight = b.const([[0.5] * SIZE] * 16, name="lm_head.weight")
        b.output("logits", b.op("MatMul", b.cast(token, "float32"), weight), "float32", ("batch", "sequence", SIZE))
        for layer in (0, 1):
            for part in ("key", "value"):
                value = b.input(f"past.{layer}.{part}", "float32", ("batch", 2, "past", 4))
                b.output(f"present.{layer}.{part}", b.op("Identity", value), "float32", ("batch", 2, "total", 4))
        b.save(root / "model.onnx", "model.onnx.data")
        if keep is not None:
            data = (root / "model.onnx.data").read_bytes()
            (root / "model.onnx.data").write_bytes(data[:keep])
        if location is not None:
            model = onnx.load(root / "model.onnx", load_external_data=False)
            for tensor in model.graph.initializer:
                for entry in tensor.external_data:
                    if entry.key == "location":
                        entry.value = location
            (root / "model.onnx").write_bytes(model.SerializeToString())
            (root / "model.onnx.data").unlink()

    return step


def cut(name: str, keep: int) -> Step:
    """Keep the first bytes of a file only."""

    def step(root: Path) -> None:
        (root / name).write_bytes((root / name).read_bytes()[:keep])

    return step


def tokenizer(change: Callable[[dict], object]) -> Step:
    """Change the content of tokenizer.json."""

    def step(root: Path) -> None:
        content = VOCABULARY.to_json()
        change(content)
        (root / "tokenizer.json").write_text(json.dumps(content, indent=1), encoding="utf-8")

    return step


def write(root: Path, fault: str, text: str, steps: Sequence[Step]) -> None:
    """Write one folder: the base package, then the steps that break it."""
    root.mkdir(parents=True, exist_ok=True)
    for old in root.iterdir():
        if old.name != "expected.json":
            remove(old)
    (root / "inference_metadata.yaml").write_text(text.format(fault=fault), encoding="utf-8")
    VOCABULARY.write(root / "tokenizer.json")
    if text is PAIR:
        decoder(tokens=("inputs_embeds", "float32", ("batch", "sequence", 8)))(root)
        embedding()(root)
    else:
        (root / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
        decoder()(root)
    for step in steps:
        step(root)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder of files."""
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()
    else:
        os.unlink(path)
