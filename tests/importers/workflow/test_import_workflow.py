"""Inference-metadata documents become packages with their twins' tokens; other constructs are refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import genai_pipeline as gp
from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.importers.progress import silent
from genai_pipeline.importers.report import REPORT_FILE
from genai_pipeline.importers.table import match_listing
from genai_pipeline.importers.workflow import import_workflow
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import TinyPackage, metadata_text, write_graph, write_package

Step = dict[str, Any]


class Exported:
    """A folder with a document that a test may change before it is written."""

    def __init__(self, package: TinyPackage) -> None:
        self.package = package
        self.path = package.path
        self.document: dict[str, Any] = {}
        signature = read_signature(self.path / "model.onnx", self.path)
        self.pasts = [name for name in signature.inputs if name.startswith("past_")]
        self.presents = [name for name in signature.outputs if name.startswith("present")]
        self.inputs = [name for name in signature.inputs if name not in self.pasts]

    @property
    def workflow(self) -> dict[str, Any]:
        """``pipeline.workflow`` of the document."""
        found: dict[str, Any] = self.document["pipeline"]["workflow"]
        return found

    @property
    def loop(self) -> Step:
        """The only loop."""
        found: Step = self.workflow["steps"][0]
        return found

    def write(self) -> Path:
        """Write the document and return the folder."""
        (self.path / METADATA_FILE).write_text(metadata_text(self.document), encoding="utf-8")
        return self.path


def invoke(component: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Step:
    """A call of a component."""
    return {"kind": "invoke", "component": component, "inputs": dict(inputs), "outputs": dict(outputs)}


def policy(path: Path, op: str, *, axis: int | None = None) -> None:
    """A graph without weights: logits in, something out."""
    graph = GraphBuilder()
    logits = graph.input("logits", "float32", ["batch", "sequence", "vocabulary"])
    made = graph.op(op, logits, axis=axis) if axis is not None else graph.op(op, logits)
    graph.output(
        "out", made, "int64" if op == "ArgMax" else "float32", ["batch", "sequence", 1 if axis else "vocabulary"]
    )
    path.parent.mkdir(exist_ok=True)
    write_graph(path, graph)


def component(file: str, contract: str | None = None) -> Step:
    """A component that is a graph."""
    made: Step = {"implementation": {"kind": "onnx", "artifact": file}}
    if contract is not None:
        made["contract"] = {"id": contract, "version": "1", "parameters": {"mode": "greedy"}}
    return made


def decoder_workflow(package: TinyPackage) -> Exported:
    """A decoder with its sampler, in a loop that carries its state."""
    made = Exported(package)
    policy(made.path / "policies" / "token_sampler.onnx", "ArgMax", axis=-1)
    cells = {past: f"cache_{index}" for index, past in enumerate(made.pasts)}
    presents = dict(zip(made.pasts, made.presents, strict=True))

    def run(prefix: str) -> Sequence[Step]:
        past = cells if prefix == "body" else {name: f"initial.{cell}" for name, cell in cells.items()}
        outputs = {"logits": f"{prefix}.logits", **{name: f"{prefix}.{name}" for name in made.presents}}
        return [
            invoke("decoder", {**{name: f"{prefix}.{name}" for name in made.inputs}, **past}, outputs),
            invoke("sampler", {"logits": f"{prefix}.logits"}, {"out": f"{prefix}.token"}),
        ]

    emit = {"kind": "emit", "value": "body.token", "output": "tokens", "mode": "append"}
    made.document = {
        "schema_version": "v1",
        "pipeline": {
            "workflow": {
                "manifest": {"ir_version": "1.0", "capabilities": ["workflow_ssa", "typed_emit"]},
                "inputs": {
                    "package.eos_ids": {"source": {"kind": "literal"}, "default": list(package.end_ids)},
                    "package.max_context": {"source": {"kind": "literal"}, "default": 200},
                },
                "outputs": {"tokens": {"role": "tokens"}},
                "components": {
                    "decoder": component("model.onnx"),
                    "sampler": component("policies/token_sampler.onnx", "onnx-genai.token-sampler"),
                },
                "state": {
                    cell: {
                        "scope": "invocation",
                        "recurrence": {"kind": "bounded", "axis": 2, "max": "package.max_context"},
                    }
                    for cell in cells.values()
                },
                "steps": [
                    {
                        "kind": "loop",
                        "setup": list(run("setup")),
                        "steps": [
                            *run("body"),
                            invoke("ends", {"tokens": "body.token", "eos_ids": "package.eos_ids"}, {"done": "done"}),
                            emit,
                        ],
                        "continue_when": "active",
                        "carried": [{"cell": cells[past], "next": f"body.{presents[past]}"} for past in made.pasts],
                    }
                ],
            }
        },
    }
    return made


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    """A decoder as a workflow."""
    return decoder_workflow(write_package(tmp_path / "source", "kv", update="append"))


def _answers(folder: Path, package: TinyPackage, **options: Any) -> bool:
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(folder) as pipe:
        found = pipe.generate(tokens=prompt, max_new_tokens=12, **options)
    return list(found.tokens) == package.answer(prompt, 12)


def _refused(folder: Path, target: Path) -> str:
    """The whole message; nothing may be left behind."""
    with pytest.raises(ImportRefusedError) as caught:
        import_workflow(folder, target)
    assert not target.exists()
    assert [path.name for path in target.parent.iterdir() if path.name.startswith(".")] == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("kv", {"update": "append"}),
        ("kv", {"update": "in_place"}),
        ("kv", {"update": "scatter"}),
        ("recurrent", {}),
    ],
)
def test_a_decoder_gives_its_twins_tokens(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    exported = decoder_workflow(write_package(tmp_path / "source", kind, **options))
    import_workflow(exported.write(), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    assert _answers(tmp_path / "made", exported.package)


def test_graphs_are_linked_and_policies_stay_behind(tmp_path: Path, exported: Exported) -> None:
    import_workflow(exported.write(), tmp_path / "made")
    names = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert names == ["chat_template.jinja", REPORT_FILE, METADATA_FILE, "model.onnx", "tokenizer.json"]
    assert (tmp_path / "made" / "model.onnx").samefile(exported.path / "model.onnx")
    rows = {row["key"]: row["outcome"] for row in json.loads((tmp_path / "made" / REPORT_FILE).read_text())["rows"]}
    assert rows["pipeline.workflow.components.sampler"] == "dropped"
    assert rows["pipeline.workflow.steps"] == "dropped"


def test_what_the_document_knows_goes_into_the_package(tmp_path: Path, exported: Exported) -> None:
    import_workflow(exported.write(), tmp_path / "made")
    spec, _ = gp.validate(tmp_path / "made")
    assert spec is not None
    text = (tmp_path / "made" / METADATA_FILE).read_text()
    assert "context_length: 200" in text
    assert "temperature: 0" in text
    assert f"eos: {list(exported.package.end_ids)}" in text


def test_the_older_form_gives_its_twins_tokens(tmp_path: Path) -> None:
    exported = Exported(write_package(tmp_path / "source", "kv", update="append"))
    io = {"token_input": "input_ids", "logits_output": "logits", "kv_inputs": exported.pasts}
    exported.document = {
        "required_capabilities": ["kv_cache"],
        "model": {"architecture": "x", "max_sequence_length": 128, "io": {**io, "kv_outputs": exported.presents}},
        "kv_cache": {"native_dtype": "float32"},
    }
    (exported.path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(exported.package.end_ids)}))
    import_workflow(exported.write(), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    assert _answers(tmp_path / "made", exported.package, temperature=0)


def _older(folder: Path, **io: Any) -> Exported:
    """A decoder in the older form whose ``model.io`` has more keys, or others."""
    exported = Exported(write_package(folder, "kv", update="append"))
    pairs = {"kv_inputs": exported.pasts, "kv_outputs": exported.presents}
    exported.document = {"model": {"architecture": "x", "io": {"token_input": "input_ids", **pairs, **io}}}
    (exported.path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(exported.package.end_ids)}))
    return exported


def test_every_key_of_the_older_form_has_a_row(tmp_path: Path) -> None:
    exported = _older(tmp_path / "source", inputs=[{"name": "input_ids"}], kv_update="append", hidden_output=None)
    exported.document["model"] |= {"max_sequence_length": 128, "attention": {"type": "multi_head"}}
    rows = {row.key: row for row in import_workflow(exported.write(), tmp_path / "made").rows}
    model = exported.document["model"]
    keys = {*(f"model.{key}" for key in model if key != "io"), *(f"model.io.{key}" for key in model["io"])}
    assert keys <= rows.keys()
    assert rows["model.max_sequence_length"].outcome == "mapped"
    assert "checked" in rows["model.io.kv_inputs"].detail


@pytest.mark.parametrize("value", [3, "past", {"a": 1}, [3], [""]])
@pytest.mark.parametrize("key", ["kv_inputs", "inputs", "cross_kv_outputs"])
def test_lists_of_ports_are_lists_of_names(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ImportModelError, match=rf"model\.io\.{key}.* allowed: |model\.io\.{key}.*missing"):
        import_workflow(_older(tmp_path / "source", **{key: value}).write(), tmp_path / "made")


@pytest.mark.parametrize(
    ("io", "said"),
    [
        ({"inputs": ["input_idz"]}, r"model\.io\.inputs: names 'input_idz'.*no input"),
        ({"token_input": "inputs"}, r"model\.io\.token_input: names 'inputs'"),
        ({"logits_output": "input_ids"}, r"model\.io\.logits_output: names 'input_ids'.*no output"),
        ({"kv_inputs": ["no_such"]}, r"model\.io\.kv_inputs: names 'no_such'"),
        ({"state_pairs": [{"input": "a", "output": "b"}]}, r"model\.io\.state_pairs: names 'a'"),
        ({"static_cache": {"write_indices_input": "w"}}, r"static_cache\.write_indices_input: names 'w'"),
        ({"optional_inputs": {"w": {}}}, r"model\.io\.optional_inputs: names 'w'"),
        ({"kv_inputz": []}, r"model\.io\.kv_inputz: is not mapped"),
        ({"kv_outputs": []}, r"model\.io\.kv_inputs: has \d+ names, and model\.io\.kv_outputs 0"),
    ],
)
def test_ports_that_the_graph_lacks_and_keys_that_nothing_knows_are_refused(
    tmp_path: Path, io: dict[str, Any], said: str
) -> None:
    with pytest.raises(ImportRefusedError, match=said):
        import_workflow(_older(tmp_path / "source", **io).write(), tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_key_of_the_model_that_nothing_knows_is_refused(tmp_path: Path) -> None:
    exported = _older(tmp_path / "source")
    exported.document["model"]["atention"] = {}
    with pytest.raises(ImportRefusedError, match=r"model\.atention: is not mapped") as caught:
        import_workflow(exported.write(), tmp_path / "made")
    assert "did you mean 'attention'" in caught.value.hint


def _text_to_text(folder: Path, **document: Any) -> Exported:
    """An encoder and a decoder in the older form, with the edges that it writes."""
    exported = Exported(write_package(folder, "cross", update="append", captured=True))
    start = exported.package.vocabulary.id("<s>")
    (exported.path / "config.json").write_text(json.dumps({"decoder_start_token_id": start}))
    (exported.path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(exported.package.end_ids)}))
    once = {"kind": "single_pass", "model": "encoder"}
    steps = {"kind": "autoregressive", "decoder": "decoder"}
    exported.document = {
        "model": {"attention": {"type": "multi_head"}, "max_sequence_length": 128},
        "pipeline": {
            "models": {"encoder": {"filename": "encoder.onnx"}, "decoder": {"filename": "model.onnx"}},
            "dataflow": [{"from": "encoder.source_states", "to": "decoder.source_states"}],
            "strategy": {"kind": "composite", "stages": [{"strategy": once}, {"strategy": steps}]},
            "phases": {"encoder": {"run_on": "prompt_only"}},
            **document,
        },
    }
    return exported


def test_an_encoder_and_its_decoder_in_the_older_form(tmp_path: Path) -> None:
    exported = _text_to_text(tmp_path / "source")
    import_workflow(exported.write(), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    assert _answers(tmp_path / "made", exported.package, temperature=0)


def test_strategies_and_edges_without_a_counterpart_are_refused(tmp_path: Path) -> None:
    edge = {"from": "decoder.logits", "to": "encoder.input_ids"}
    exported = _text_to_text(
        tmp_path / "source", strategy={"kind": "iterative"}, dataflow=[edge], positions={"rank": 3}
    )
    message = _refused(exported.write(), tmp_path / "made")
    assert "the strategy 'iterative' has no counterpart" in message
    assert "decoder.logits goes to encoder.input_ids" in message
    assert "are made by 'no rule' on 3 axes" in message


def test_constructs_without_a_counterpart_are_refused_by_name_and_all_at_once(
    tmp_path: Path, exported: Exported
) -> None:
    inner = {"kind": "loop", "steps": [], "carried": []}
    exported.loop["steps"] += [{"kind": "branch", "predicate": "request.image_present", "cases": {}}, inner]
    exported.workflow["components"]["grammar"] = {"implementation": {"kind": "adapter", "abi": "grammar-guidance"}}
    exported.document["speculative"] = {"draft": "x"}
    message = _refused(exported.write(), tmp_path / "made")
    assert "the construct 'branch' on 'request.image_present'" in message
    assert "a loop inside a loop" in message
    assert "'grammar' is no graph but adapter 'grammar-guidance'" in message
    assert "speculative: is not mapped" in message


def test_a_policy_that_changes_logits_is_refused(tmp_path: Path, exported: Exported) -> None:
    policy(exported.path / "policies" / "temper.onnx", "Neg")
    exported.workflow["components"]["temper"] = component("policies/temper.onnx")
    exported.loop["steps"].insert(1, invoke("temper", {"logits": "body.logits"}, {"out": "tempered"}))
    assert "'temper' changes the logits (Neg)" in _refused(exported.write(), tmp_path / "made")


def test_state_that_is_wired_otherwise_is_refused(tmp_path: Path, exported: Exported) -> None:
    first, second = exported.loop["carried"][:2]
    first["next"], second["next"] = second["next"], first["next"]
    message = _refused(exported.write(), tmp_path / "made")
    assert "'past_key_values.0.key' becomes 'present.0.value' there, and 'present.0.key' by names and sizes" in message


def test_another_version_is_refused(tmp_path: Path, exported: Exported) -> None:
    exported.document["schema_version"] = "v9"
    assert "v9" in _refused(exported.write(), tmp_path / "made")


def test_what_only_the_graphs_could_say_is_refused_where_they_do_not(tmp_path: Path, exported: Exported) -> None:
    exported.workflow["inputs"] = {}
    tokenizer = exported.path / "tokenizer.json"
    tokens = json.loads(tokenizer.read_text())
    tokenizer.write_text(json.dumps({**tokens, "added_tokens": []}))
    message = _refused(exported.write(), tmp_path / "made")
    assert "tokenizer.eos" in message
    assert "limits.context_length" in message


def test_the_table_of_importers_tells_a_document_from_a_package(tmp_path: Path, exported: Exported) -> None:
    match = match_listing(["inference_metadata.yaml", "model.onnx"], None, "a listing")
    assert ([kind.name for kind in match.kinds], len(match.files)) == (["workflow", "package"], 2)
    match.make(exported.write(), tmp_path / "made", "made", None, silent)
    assert (tmp_path / "made" / REPORT_FILE).exists()
    match.make(tmp_path / "made", tmp_path / "copy", "copy", None, silent)
    assert gp.validate(tmp_path / "copy")[1] == ()


def test_what_a_check_refuses_leaves_nothing(tmp_path: Path, exported: Exported) -> None:
    def check(folder: Path, _what: str, rows: Any) -> None:
        assert (folder / METADATA_FILE).is_file()
        raise ImportModelError(f"not good: {len(rows)} rows")

    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(ImportModelError, match=r"not good: [1-9]\d* rows"):
        import_workflow(exported.write(), place / "made", check=check)
    assert list(place.iterdir()) == []


def test_files_of_other_kinds_are_told_apart(tmp_path: Path, exported: Exported) -> None:
    with pytest.raises(ImportModelError, match="is a package already"):
        import_workflow(write_package(tmp_path / "package", "kv").path, tmp_path / "made")
    exported.document = {"schema_version": "v1"}
    with pytest.raises(ImportModelError, match=r"neither pipeline\.workflow nor model\.io"):
        import_workflow(exported.write(), tmp_path / "made")
    exported.document = {"model": {"io": {}}}
    (exported.path / "model.onnx").unlink()
    with pytest.raises(ImportModelError, match=r"model\.onnx"):
        import_workflow(exported.write(), tmp_path / "made")


def test_the_form_between_with_graph_nodes_and_body_gives_its_twins_tokens(tmp_path: Path, exported: Exported) -> None:
    steps = exported.workflow.pop("steps")[0]
    body = [{**step, "effects": {}} for step in steps["steps"]]
    carried = [
        {"cell": carry["cell"], "current": f"initial.{carry['cell']}", "next": f"next.{carry['cell']}",
         "body_input": carry["cell"], "body_output": carry["next"]}
        for carry in steps["carried"]
    ]  # fmt: skip
    exported.workflow["initial_effects"] = {"stream": "stream.0"}
    exported.workflow["graph"] = {
        "kind": "loop",
        "setup": {"kind": "sequence", "nodes": steps["setup"]},
        "body": {"kind": "sequence", "nodes": body},
        "condition": "active",
        "carried": carried,
    }
    import_workflow(exported.write(), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    assert _answers(tmp_path / "made", exported.package)
    first, second = carried[:2]
    first["body_output"], second["body_output"] = second["body_output"], first["body_output"]
    assert "by names and sizes" in _refused(exported.write(), tmp_path / "other")


def _weighted(file: Path) -> None:
    """Give a graph a matrix of weights, as networks have: its only output times the identity."""
    model = onnx.load(file)
    (output,) = model.graph.output
    (node,) = (node for node in model.graph.node if output.name in node.output)
    node.output[:] = ["plain" if name == output.name else name for name in node.output]
    width = output.type.tensor_type.shape.dim[-1].dim_value
    model.graph.initializer.append(numpy_helper.from_array(np.eye(width, dtype=np.float32), "identity"))
    model.graph.node.append(helper.make_node("MatMul", ["plain", "identity"], [output.name]))
    onnx.save(model, str(file))


@pytest.mark.parametrize("weighted", [True, False])
def test_an_encoder_and_its_decoder_as_a_workflow(tmp_path: Path, weighted: bool) -> None:
    exported = _text_to_text(tmp_path / "source")
    if weighted:
        _weighted(exported.path / "encoder.onnx")
    past = dict(zip(exported.pasts, exported.presents, strict=False))
    sources = {name: "encoded" if name == "source_states" else f"body.{name}" for name in exported.inputs}
    cells = {name: f"cell.{name}" for name in past}
    outputs = {"logits": "body.logits", **{name: f"body.{name}" for name in past.values()}}
    loop = {
        "kind": "loop",
        "setup": [],
        "steps": [
            invoke("decoder", {**sources, **cells}, outputs),
            {"kind": "emit", "value": "body.logits", "output": "tokens", "mode": "append"},
        ],
        "carried": [{"cell": cells[name], "next": f"body.{present}"} for name, present in past.items()],
    }
    encode = invoke("encoder", {"input_ids": "request.tokens"}, {"source_states": "encoded"})
    exported.document = {
        "schema_version": "v1",
        "model": {"max_sequence_length": 128},
        "pipeline": {
            "workflow": {
                "outputs": {"tokens": {"role": "tokens"}},
                "components": {"encoder": component("encoder.onnx"), "decoder": component("model.onnx")},
                "steps": [encode, loop],
            }
        },
    }
    import_workflow(exported.write(), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    assert _answers(tmp_path / "made", exported.package, temperature=0)
