"""What this version can run, and what a package needs beyond it.

Each need that is not met is one problem, at the first place that has it; a declared capability that nothing uses is
only a note (unknown ones are found with the references).
"""

from __future__ import annotations

from typing import Final

from genai_pipeline.graph.package_needs import Need, package_needs
from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.capabilities import CAPABILITIES
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.operations import BUILT_IN
from genai_pipeline.problems import Problems, one_of

SUPPORTED: Final = frozenset(
    {
        "input.text",
        "input.text.masks",
        "input.image",
        "input.audio",
        "input.tensor",
        "input.list",
        "input.optional",
        "input.program",
        "input.placeholder",
        "parameter.from",
        "tokenizer.truncate",
        "tokenizer.pad_to",
        "output.text",
        "output.tensor",
        "output.audio",
        "output.image",
        "output.segments",
        "loop.decode",
        "decode.template",
        "decode.times",
        "decode.carry",
        "decode.generation",
        "span.one",
        "span.whole",
        "binding.tokens",
        "loop.iterate",
        "loop.iterate.over",
        "loop.iterate.until",
        "run.outside_loop",
        "for_each",
        "when",
        "data",
        "kv.in_place",
        "kv.append",
        "kv.scatter",
        "kv.fixed",
        "kv.replace",
        "kv.window",
        "kv.from",
        "model.borrowed",
        "model.pair",
        "model.variants",
        "tokenizer.tokenizers",
        "tokenizer.list",
        "tokenizer.characters",
        "speculative.draft",
        "speculative.lookup",
        "tokenizer.infill",
        "structured_output",
        "tools",
        "reasoning",
        *(f"op.{name}" for name in BUILT_IN),
    }
)


def check_capabilities(root: Scope, spec: PackageSpec, problems: Problems) -> frozenset[str]:
    """Report needs that are not met and declarations that mean nothing; returns all needed capabilities."""
    needs: dict[str, Need] = {}
    for need in package_needs(root, spec):
        needs.setdefault(need.capability, need)
    for name, need in needs.items():
        if name not in SUPPORTED:
            message = f"{need.what} needs {CAPABILITIES[name]} ('{name}'), which this version cannot run"
            problems.error(need.at, "capability.missing", message, f"it can run {one_of(SUPPORTED, 20)}")
    for index, name in enumerate(spec.capabilities):
        if name in CAPABILITIES and name not in needs:
            message = f"nothing in the package uses the declared capability '{name}'"
            problems.note(below(spec.at, f"capabilities[{index}]"), "capability.unused", message)
    return frozenset(needs)
