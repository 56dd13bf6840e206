"""From text to the typed package: every construct lands in its field, with its place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.metadata.expressions import ListExpr, Literal, Name, TokensLiteral
from genai_pipeline.metadata.model import Binding, PackageSpec, StageSpec, TemplatePiece
from genai_pipeline.problems import Location

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.yaml"))

HEAD = """\
schema_version: "1"
name: made
inputs:
  p: {modality: text}
"""
TAIL = """\
outputs:
  r: {modality: vector, value: y}
components:
  m: {model: m.onnx}
stages:
  - {run: m, inputs: {x: p.tokens}, outputs: {y: y}}
"""
Make = Callable[[str], PackageSpec]


def with_stages(*stages: str) -> str:
    """The package with stages of its own."""
    return HEAD + TAIL.rpartition("  - {run")[0] + "".join(f"  - {stage}\n" for stage in stages)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_built(file: Path, spec: Make) -> None:
    package = spec(file.read_text(encoding="utf-8"))
    assert package.name
    assert package.stages


def test_the_text_model(spec: Make, example: Callable[[str], str], tmp_path: Path) -> None:
    package = spec(example("smollm2"))
    assert (package.schema_version, package.name) == ("1", "smollm2-135m")
    assert package.root == tmp_path.resolve()
    assert package.file == tmp_path / "inference_metadata.yaml"
    assert package.tokenizers["default"].eos == ("<|im_end|>", "<|endoftext|>")
    assert package.tokenizers["default"].chat_template == "chat_template.jinja"
    (kv,) = package.components["decoder"].kv
    assert (kv.update, kv.layers, kv.heads, kv.head_dim, kv.dtype) == ("in_place", 30, 3, 64, "float32")
    (stage,) = package.stages
    assert (stage.id, stage.kind, stage.decode and stage.decode.logits) == ("generate", "decode", "logits")
    (run,) = stage.body
    assert (run.id, run.run, run.outputs) == ("decoder", "decoder", {"logits": "logits"})
    tokens = run.inputs["input_ids"]
    assert isinstance(tokens, Binding)
    assert tokens.expr == Name("loop.tokens")
    assert tokens.at.path == "stages[0].body[0].inputs.input_ids"
    assert package.generation is not None
    assert package.generation.defaults == {"temperature": 0.2, "top_p": 0.9}
    assert package.generation.overrides is None
    assert package.limits is not None
    assert package.limits.context_length is not None
    assert package.limits.context_length.expr == Literal(8192)


def test_whisper_has_two_states_and_a_template(spec: Make, example: Callable[[str], str]) -> None:
    package = spec(example("whisper"))
    own, cross = package.components["decoder"].kv
    assert (own.update, cross.update, cross.source) == ("append", "fixed", "encoder")
    group, _ = package.stages
    assert (group.kind, group.for_each) == ("group", "audio.windows")
    decode = group.body[1].decode
    assert decode is not None
    assert decode.prompt is None
    assert decode.prompt_template == (TemplatePiece("<|startoftranscript|>"),)
    assert decode.suppress == ("<|nospeech|>", "<|startofprev|>", "<|startoflm|>")
    assert [step.op for step in package.programs["log_mel"].steps][:3] == ["decode", "mono", "resample"]
    assert package.programs["log_mel"].steps[-1].params["floor"] == 1e-10


def test_the_loops_of_speech(spec: Make, example: Callable[[str], str]) -> None:
    package = spec(example("speech_lm"))
    _, speak, sound = package.stages
    assert speak.decode is not None
    assert speak.decode.carry["frame"].next.expr == Name("frame_next")
    assert speak.decode.collect["frames"].value == "codebooks.code"
    assert speak.decode.stop is not None
    assert speak.decode.stop.tokens == (2150,)
    codebooks = speak.body[3].iterate
    assert codebooks is not None
    assert codebooks.count is not None
    assert codebooks.count.expr == Literal(7)
    assert codebooks.collect["code"].axis == 1
    assert sound.iterate is not None
    assert sound.iterate.over is not None
    assert (sound.iterate.over.chunk, sound.iterate.over.before, sound.iterate.over.after) == (12, 4, 0)
    assert sound.iterate.collect["wave"].scale == 1920
    assert [stage.id for stage in speak.body] == ["talker", "take", "concat", "codebooks", "sum"]
    assert [stage.id for stage in speak.body[3].body] == ["predictor", "sample", "take_2"]


def test_the_loop_and_the_guide_of_diffusion(spec: Make, example: Callable[[str], str]) -> None:
    package = spec(example("diffusion"))
    assert package.parameters["guidance"].type == "number"
    assert package.parameters["steps"].maximum == 100
    assert package.inputs["negative_prompt"].default == ""
    assert not package.inputs["negative_prompt"].required
    assert package.outputs["image"].options == {"range": (-1, 1), "layout": "nchw"}
    denoise = package.stages[4]
    assert denoise.iterate is not None
    assert denoise.iterate.schedule is not None
    assert denoise.iterate.schedule.op == "euler"
    assert denoise.iterate.schedule.params["steps"] == "parameters.steps"
    guide = denoise.body[1].guide
    assert guide is not None
    assert guide.scale.expr == Name("parameters.guidance")
    assert set(guide.negative) == {"states"}


def test_placeholders_and_lists(spec: Make, example: Callable[[str], str]) -> None:
    images = spec(example("vision")).inputs["images"]
    assert images.is_list
    assert not images.required
    assert images.placeholder is not None
    assert images.placeholder.token == "<image>"
    assert images.placeholder.count is not None
    assert images.placeholder.count.expr == Literal(64)


@pytest.mark.parametrize(
    ("fields", "is_list"),
    [("", False), ("list: true", True), ("max_items: 4", True), ("max_items: 1", False), ("min_items: 2", True)],
)
def test_what_makes_a_list(spec: Make, fields: str, is_list: bool) -> None:
    package = spec(HEAD + f"  q: {{modality: text, {fields}}}\n" + TAIL)
    assert package.inputs["q"].is_list is is_list


def test_components_of_every_kind(spec: Make) -> None:
    package = spec(
        HEAD
        + TAIL.replace(
            "  m: {model: m.onnx}\n",
            """\
  m: {model: {first: a.onnx, later: b.onnx}, span: {first: whole, later: 1.0}, pad: {x-in: 0}, x-note: 1}
  o: {package: other, component: c}
  v:
    variants: [{provider: cuda, model: c.onnx}, {model: d.onnx}]
    session: {providers: [cuda], provider_options: {cuda: {x: true, y: 2}}, config: {ep.z: no}}
    kv:
      - {update: replace, past: h, present: hn, shape: [batch, 8], initial: -.inf, layers: [0, 2]}
      - {update: append, past: k, present: kn, window: [4, null], history: 8, sinks: 2, keep: session}
""",
        )
    )
    m, o, v = package.components.values()
    assert (m.model, m.model_later, m.pad) == ("a.onnx", "b.onnx", {"x-in": 0})
    assert m.span is not None
    assert (m.span.first, m.span.later) == ("whole", 1)
    assert (o.package, o.component, o.model) == ("other", "c", None)
    assert [(variant.provider, variant.model) for variant in v.variants] == [("cuda", "c.onnx"), (None, "d.onnx")]
    assert v.session is not None
    assert v.session.provider_options == {"cuda": {"x": "1", "y": "2"}}
    assert v.session.config == {"ep.z": "no"}
    replaced, appended = v.kv
    assert replaced.initial == -math.inf
    assert (replaced.shape, replaced.layers) == (("batch", 8), (0, 2))
    assert (appended.window, appended.history, appended.sinks, appended.keep) == ((4, None), 8, 2, "session")


def test_the_rest_of_the_file(spec: Make) -> None:
    package = spec(
        HEAD
        + TAIL
        + """\
tokenizers: {a: {file: a.json, pad: [7, 8], bos: 1, truncate: 9.0}, b: {file: b.json, kind: list}}
data: {t: {files: [x.npy, y.npy]}, r: {file: r.bin, dtype: int8, shape: [2, 3]}}
reasoning: {open: <t>, close: </t>, x-why: 1}
tools: {format: json_tagged}
structured_output: {modes: [regex]}
session: {idle_seconds: 5}
adapters: [{id: ad, file: ad.safetensors, component: m, when: present(p)}]
speculative: {propose: {body: [{run: m, outputs: {y: z}}], logits: z}}
limits: {sizes: {file_bytes: 10}, max_new_tokens: 3 + 4}
generation: {overrides: {seed: true, top_k: {minimum: 1, x-why: 2}}}
"""
    )
    a, b = package.tokenizers.values()
    assert (a.pad, a.bos, a.truncate, b.kind) == (7, 1, 9, "list")
    assert (package.data["t"].files, package.data["t"].is_list) == (("x.npy", "y.npy"), True)
    assert (package.data["r"].shape, package.data["r"].is_list) == ((2, 3), False)
    assert package.reasoning == {"open": "<t>", "close": "</t>"}
    assert (package.tools, package.session) == ({"format": "json_tagged"}, {"idle_seconds": 5})
    (adapter,) = package.adapters
    assert (adapter.id, adapter.component) == ("ad", "m")
    assert adapter.when is not None
    assert package.speculative is not None
    assert package.speculative.propose is not None
    assert [stage.id for stage in package.speculative.propose.body] == ["m"]
    assert package.limits is not None
    assert set(package.limits.sizes) == {"file_bytes"}
    assert package.generation is not None
    assert package.generation.overrides == {"seed": True, "top_k": {"minimum": 1}}


def test_decode_settings(spec: Make) -> None:
    package = spec(
        HEAD
        + TAIL
        + """\
  - loop: decode
    prompt: {tokens: [<s>, 5]}
    body:
      - {run: m, inputs: {x: loop.row, "i{i}": [y, 1], whole: [y, 1]}, outputs: {y: c}, state: read, when: y.length > 1}
    tokens: c
    block: 2
    positions: {op: grid_positions, with: {merge: 2}, inputs: {t: p.tokens}}
    walk: {rows: y, axis: 1, length: y.length, blank: <blk>, advance: c, max_per_row: 9}
    stop: {when: c > 1}
    generation: {defaults: {top_k: 5}}
"""
    )
    stage = package.stages[1]
    assert stage.id == "decode"
    decode = stage.decode
    assert decode is not None
    assert decode.prompt is not None
    assert decode.prompt.expr == TokensLiteral(("<s>", 5))
    assert (decode.tokens, decode.block) == ("c", 2)
    assert decode.positions is not None
    assert (decode.positions.op, set(decode.positions.inputs)) == ("grid_positions", {"t"})
    assert decode.walk is not None
    assert (decode.walk.blank, decode.walk.axis, decode.walk.max_per_row) == ("<blk>", 1, 9)
    assert decode.stop is not None
    assert decode.stop.when is not None
    assert decode.generation is not None
    assert decode.generation.defaults == {"top_k": 5}
    (inner,) = stage.body
    assert (inner.id, inner.state) == ("m_2", "read")
    family = inner.inputs["i{i}"]
    assert isinstance(family, tuple)
    assert [member.expr for member in family] == [Name("y"), Literal(1)]
    assert [member.at.path.rpartition("[")[2] for member in family] == ["0]", "1]"]
    whole = inner.inputs["whole"]
    assert isinstance(whole, Binding)
    assert isinstance(whole.expr, ListExpr)
    assert whole.text == '["y", 1]'


def test_ids_are_derived_around_given_ones_and_shared_names(spec: Make) -> None:
    package = spec(
        with_stages(
            "{run: m, inputs: {x: p.tokens}, outputs: {y: y}}",
            "{run: m, inputs: {x: p.tokens}, outputs: {y: z}}",
            "{id: m, run: m, inputs: {x: p.tokens}, outputs: {y: w}}",
            "{op: p, inputs: {x: z}, outputs: {y: v}}",
        )
    )
    assert [stage.id for stage in package.stages] == ["m_2", "m_3", "m", "p_2"]


def test_expression_faults_point_at_the_binding(load: Callable[[str], Any]) -> None:
    package, problems = load(with_stages("{run: m, inputs: {x: p.tokens **}, when: foo(1)}"))
    assert package is None
    assert [(p.code, p.at.path, p.at.line) for p in problems] == [
        ("expression.syntax", "stages[0].inputs.x", 10),
        ("expression.syntax", "stages[0].when", 10),
    ]


def places(value: Any) -> Iterator[Location]:
    """Every place inside a spec."""
    if isinstance(value, Location):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from places(getattr(value, field.name))
    elif isinstance(value, dict | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from places(item)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_value_knows_its_place(file: Path, spec: Make) -> None:
    text = file.read_text(encoding="utf-8")
    lines = text.split("\n")
    found = list(places(spec(text)))
    assert len(found) > 10
    for at in found:
        assert at.file.endswith("inference_metadata.yaml")
        assert lines[at.line - 1][at.column - 1 :].strip(), at


def test_values_are_frozen(spec: Make, example: Callable[[str], str]) -> None:
    stage: StageSpec = spec(example("smollm2")).stages[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        stage.id = "other"  # type: ignore[misc]
