"""What a document says besides its program: end tokens, context, pairs of state, and keys that change no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.steps import Program

_ENDS = "eos_ids"  # ports of policies that take the end tokens
_WHY = "what it asks of a reader follows from the graphs and the steps"
_ENDS_ROLE = "eos_token_ids"  # of the input that gives them
# Top-level keys, and those of a workflow, that change no answer once the graphs are recognised.
_DROPPED = {
    "schema_version": "the version of the document",
    "required_capabilities": _WHY,
    "kv_cache": "the graphs say the type of their state",
    "pipeline.workflow.manifest": _WHY,
    "pipeline.workflow.inputs": "a request gives the prompt and options of generation by their own names",
    "pipeline.workflow.outputs": "outputs.text",
    "pipeline.workflow.components": "components",
    "pipeline.workflow.state": "components.*.kv: as the graphs have it",
    "pipeline.workflow.steps": "stages",
    "pipeline.workflow.graph": "stages",
    "pipeline.workflow.initial_effects": "effects order streams of outputs, of which there is one",
    "pipeline.workflow.serving": "the scheduler batches and ends rows by itself",
    "pipeline.models": "components",
    "pipeline.dataflow": "stages: checked against the graphs' ports",
    "pipeline.strategy": "stages",
    "pipeline.phases": "what runs in a loop and what before it follows from the graphs",
}


_SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}  # option -> the number that means "off"


@dataclass(frozen=True, slots=True)
class Facts:
    """End tokens and how many tokens fit; () and None where the document does not say."""

    eos: tuple[int, ...]
    context: int | None


def package_facts(document: Document, program: Program) -> Facts:
    """What is written in the document as defaults of its inputs, or under ``model``."""
    model, inputs = document.root.mapping("model"), document.workflow.mapping("inputs")
    bound = {value for call in program.invokes for port, value in call.inputs.items() if port.endswith(_ENDS)}
    bound |= {name for name in inputs.keys if inputs.mapping(name).mapping("role").text("role", "-") == _ENDS_ROLE}
    ends = [index for name in sorted(bound) for index in inputs.mapping(name).integers("default")]
    context = model.integer("max_sequence_length", least=1) if "max_sequence_length" in model else None
    return Facts(tuple(dict.fromkeys(index for index in ends if index >= 0)), context or _bound(document.workflow))


def sampling_defaults(document: Document, inputs: Mapping[str, str]) -> dict[str, float]:
    """Defaults of the inputs that a sampler's ports take; a number that switches an option off is left out."""
    declared = document.workflow.mapping("inputs")
    found: dict[str, float] = {}
    for option, off in _SAMPLING.items():
        name = inputs.get(option, "-")
        if "default" in declared.mapping(name) and declared.mapping(name).number("default") != off:
            found[option] = declared.mapping(name).number("default")
    return found


def _bound(workflow: ConfigNode) -> int | None:
    """The bound of state that grows, as a default of the input that it names."""
    inputs = workflow.mapping("inputs")
    for cell in workflow.mapping("state").items():
        name = cell.mapping("recurrence").text("max", "-")
        if "default" in inputs.mapping(name):
            return inputs.mapping(name).integer("default", least=1)
    return None


def report_keys(document: Document, report: ImportReport, mapped: Mapping[str, str]) -> None:
    """One row for each key but ``model``, ``mapped`` ones first; one that nothing knows may change the answer."""
    root = document.root
    paths = [root.at(key) for key in root.keys if key not in ("pipeline", "model")]
    pipeline = root.mapping("pipeline")
    paths += [f"pipeline.{key}" for key in pipeline.keys if key != "workflow"]
    paths += [f"pipeline.workflow.{key}" for key in pipeline.mapping("workflow").keys]
    for path in paths:
        if path in mapped:
            report.mapped(DOCUMENT, path, mapped[path])
        elif path in _DROPPED:
            report.dropped(DOCUMENT, path, _DROPPED[path])
        else:
            report.refused(DOCUMENT, path, "is not mapped", "take it away where it changes no answer")
