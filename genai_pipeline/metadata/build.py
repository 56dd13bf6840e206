"""From a checked node tree to the typed values of ``model``: the package and what its top level declares.

The tree has passed the schema (or is what was left of it), so shapes are as the grammar has them; only top-level
fields may be missing. Expressions are parsed here, and their faults recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from genai_pipeline.metadata.build_components import component
from genai_pipeline.metadata.build_stages import StageBuilder, generation
from genai_pipeline.metadata.build_values import (
    binding,
    fields,
    integer,
    listed,
    maybe_binding,
    named,
    per_layer,
    plain,
    several,
)
from genai_pipeline.metadata.model import (
    AdapterSpec,
    DataSpec,
    InfillSpec,
    InputSpec,
    LimitsSpec,
    OutputSpec,
    PackageSpec,
    ParameterSpec,
    PlaceholderSpec,
    ProgramSpec,
    ProgramStep,
    SpeculativeSpec,
    TokenizerSpec,
)
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.places import Places
from genai_pipeline.problems import Problems

DEFAULT_TOKENIZER: Final = "default"  # the name of the entry that ``tokenizer:`` is


def build(root: Node, folder: Path, file: Path, problems: Problems) -> PackageSpec:
    """The package that a document describes; ``folder`` is the resolved package folder."""
    get = root.get
    inputs = get("inputs")
    stages = StageBuilder(shared_names(root), problems)
    return PackageSpec(
        root=folder,
        file=file,
        at=root.at,
        schema_version=plain(get("schema_version"), "1"),
        name=plain(get("name"), ""),
        summary=plain(get("summary"), ""),
        license=plain(get("license"), ""),
        capabilities=several(get("capabilities")),
        inputs={n: _input(n, node, problems) for n, node in named(inputs) if n != "parameters"},
        parameters={n: _parameter(n, node) for n, node in named(inputs and inputs.get("parameters"))},
        outputs={n: _output(n, node) for n, node in named(get("outputs"))},
        tokenizers=_tokenizers(root),
        programs={n: _program(n, node) for n, node in named(get("preprocess"))},
        data={n: _data(n, node) for n, node in named(get("data"))},
        components={n: component(n, node) for n, node in named(get("components"))},
        stages=stages.stages(get("stages")),
        generation=generation(get("generation")),
        limits=_limits(get("limits"), problems),
        structured_output=fields(get("structured_output")),
        tools=fields(get("tools")),
        reasoning=fields(get("reasoning")),
        speculative=_speculative(get("speculative"), stages),
        adapters=_adapters(get("adapters"), problems),
        session=fields(get("session")),
        places=Places.of(root),
    )


def shared_names(root: Node) -> frozenset[str]:
    """The names of inputs, parameters and data, which stage ids share one namespace with."""
    inputs = root.get("inputs")
    parameters = inputs.get("parameters") if inputs is not None else None
    return frozenset(n for node in (inputs, parameters, root.get("data")) for n, _ in named(node) if n != "parameters")


def _input(name: str, node: Node, problems: Problems) -> InputSpec:
    get = node.get
    most, fewest = integer(get("max_items")), integer(get("min_items"))
    default = get("default")
    return InputSpec(
        at=node.named_at,
        name=name,
        modality=plain(get("modality")),
        program=plain(get("program")),
        placeholder=_placeholder(get("placeholder"), problems),
        is_list=most != 1 and (plain(get("list"), most is not None or fewest is not None)),
        min_items=fewest,
        max_items=most,
        required=plain(get("required"), default is None),
        live=plain(get("live"), False),
        default=plain(default),
        tokenizer=plain(get("tokenizer")),
        options=_options(node, ("dtype", "shape")),
    )


def _options(node: Node, names: tuple[str, ...]) -> Mapping[str, Any]:
    return {name: per_layer(child) for name in names if (child := node.get(name)) is not None}


def _placeholder(node: Node | None, problems: Problems) -> PlaceholderSpec | None:
    if node is None:
        return None
    count = maybe_binding(node.get("count"), problems)
    return PlaceholderSpec(node.named_at, plain(node.get("token")), count, plain(node.get("expand")))


def _parameter(name: str, node: Node) -> ParameterSpec:
    get = node.get
    return ParameterSpec(
        at=node.named_at,
        name=name,
        type=plain(get("type")),
        default=per_layer(get("default")),
        minimum=plain(get("minimum")),
        maximum=plain(get("maximum")),
        multiple_of=plain(get("multiple_of")),
        values=several(get("values")),
        values_from=plain(get("from")),
    )


def _output(name: str, node: Node) -> OutputSpec:
    options = _options(node, ("range", "layout", "rate", "segments", "format"))
    return OutputSpec(node.named_at, name, plain(node.get("modality")), plain(node.get("value")), options)


def _tokenizers(root: Node) -> dict[str, TokenizerSpec]:
    found = {name: _tokenizer(name, node) for name, node in named(root.get("tokenizers"))}
    single = root.get("tokenizer")
    if single is not None:
        found.setdefault(DEFAULT_TOKENIZER, _tokenizer(DEFAULT_TOKENIZER, single))
    return found


def _tokenizer(name: str, node: Node) -> TokenizerSpec:
    get = node.get
    pad = several(get("pad"))
    return TokenizerSpec(
        at=node.named_at,
        name=name,
        file=plain(get("file")),
        kind=plain(get("kind"), "tokenizers"),
        chat_template=plain(get("chat_template")),
        bos=plain(get("bos")),
        eos=several(get("eos")),
        pad=pad[0] if pad else None,
        add_bos=plain(get("add_bos")),
        truncate=integer(get("truncate")),
        pad_to=integer(get("pad_to")),
        infill=_infill(get("infill")),
    )


def _infill(node: Node | None) -> InfillSpec | None:
    if node is None:
        return None
    prefix, suffix, middle = (plain(node.get(name)) for name in ("prefix", "suffix", "middle"))
    return InfillSpec(node.named_at, prefix, suffix, middle, plain(node.get("order"), "psm"))


def _program(name: str, node: Node) -> ProgramSpec:
    steps = [
        ProgramStep(child.named_at, op, child.plain()) for step in node.items for op, child in step.mapping.items()
    ]
    return ProgramSpec(node.named_at, name, tuple(step for step in steps if not step.op.startswith("x-")))


def _data(name: str, node: Node) -> DataSpec:
    get = node.get
    files = get("files")
    shape = get("shape")
    return DataSpec(
        at=node.named_at,
        name=name,
        files=several(files if files is not None else get("file")),
        is_list=files is not None,
        dtype=plain(get("dtype")),
        shape=None if shape is None else tuple(int(dim) for dim in shape.plain()),
        key=plain(get("key")),
    )


def _limits(node: Node | None, problems: Problems) -> LimitsSpec | None:
    if node is None:
        return None
    get = node.get
    return LimitsSpec(
        at=node.named_at,
        context_length=maybe_binding(get("context_length"), problems),
        max_new_tokens=maybe_binding(get("max_new_tokens"), problems),
        sizes={name: binding(child, problems) for name, child in named(get("sizes"))},
    )


def _speculative(node: Node | None, stages: StageBuilder) -> SpeculativeSpec | None:
    if node is None:
        return None
    propose = node.get("propose")
    return SpeculativeSpec(
        at=node.named_at,
        draft=plain(node.get("draft")),
        lookup=fields(node.get("lookup")),
        propose=None if propose is None else stages.proposal(propose),
    )


def _adapters(node: Node | None, problems: Problems) -> tuple[AdapterSpec, ...]:
    return tuple(
        AdapterSpec(
            at=item.at,
            id=plain(item.get("id")),
            file=plain(item.get("file")),
            component=plain(item.get("component")),
            when=maybe_binding(item.get("when"), problems),
        )
        for item in listed(node)
    )
