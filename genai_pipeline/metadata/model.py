"""Inference metadata as typed, frozen values: one dataclass per construct of the grammar.

Every value keeps ``at``, the place it was written. Names follow the YAML keys; lists became tuples and
mappings keep the order of the file. Nothing here has been checked against graphs yet.

Longer than most modules because it is the whole grammar in one place, and only declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from genai_pipeline.metadata.places import Places
from genai_pipeline.problems import Location

if TYPE_CHECKING:
    from genai_pipeline.metadata.expressions import Expr

Modality = Literal["text", "image", "audio", "video", "tensor", "items", "vector"]
KvUpdate = Literal["in_place", "append", "scatter", "fixed", "replace"]
BatchMode = Literal["stack", "pack", "none"]


@dataclass(frozen=True, slots=True)
class Binding:
    """What a port, limit or condition takes: the parsed expression and its text as written."""

    expr: Expr
    text: str
    at: Location


@dataclass(frozen=True, slots=True)
class PlaceholderSpec:
    """How an item of an input takes up slots of the prompt: ``count`` of ``token``, or the text of ``expand``."""

    at: Location
    token: str
    count: Binding | None = None
    expand: str | None = None


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input of a request."""

    at: Location
    name: str
    modality: Modality
    program: str | None = None
    placeholder: PlaceholderSpec | None = None
    is_list: bool = False
    min_items: int | None = None
    max_items: int | None = None
    required: bool = True
    live: bool = False
    default: Any = None
    tokenizer: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # dtype, shape, rate, ... as the modality allows


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One typed request parameter; ``default`` None means the request must give it."""

    at: Location
    name: str
    type: Literal["integer", "number", "boolean", "string", "choice"]
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    multiple_of: float | None = None
    values: tuple[Any, ...] = ()
    values_from: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One declared output: a modality, the value it is read from, and what its writer needs."""

    at: Location
    name: str
    modality: Modality
    value: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InfillSpec:
    """Tokens that ask a model to fill in the middle, by text or id, and their order: ``psm`` or ``spm``."""

    at: Location
    prefix: str | int
    suffix: str | int
    middle: str | int
    order: Literal["psm", "spm"] = "psm"


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Where a tokenizer comes from and which special tokens it has, by text or id."""

    at: Location
    name: str
    file: str
    kind: Literal["tokenizers", "sentencepiece", "list", "characters"] = "tokenizers"
    chat_template: str | None = None
    bos: str | int | None = None
    eos: tuple[str | int, ...] = ()
    pad: str | int | None = None  # of a list, the first
    add_bos: bool | None = None
    truncate: int | None = None
    pad_to: int | None = None
    infill: InfillSpec | None = None


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One step of a preprocess program: an operation and its parameters."""

    at: Location
    op: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """An ordered preprocess program."""

    at: Location
    name: str
    steps: tuple[ProgramStep, ...]


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A named tensor, or a list of them, stored in files of the package."""

    at: Location
    name: str
    files: tuple[str, ...]
    is_list: bool = False
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class KvSpec:
    """One state entry of a component, as declared; geometry may be one value or one per layer."""

    at: Location
    update: KvUpdate
    past: str | None = None
    present: str | None = None
    layers: int | tuple[int, ...] | None = None  # how many, or the numbers of those that have this state
    parts: tuple[str, ...] = ()
    heads: int | tuple[int, ...] | None = None
    head_dim: int | tuple[int, ...] | None = None
    dtype: str | tuple[str, ...] | None = None
    window: int | tuple[int | None, ...] | None = None
    shape: tuple[str | int, ...] | None = None
    initial: float | None = None
    source: str | None = None  # the grammar's ``from``
    history: int | None = None
    sinks: int | None = None
    keep: Literal["request", "session"] = "request"


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """One alternative graph of a component for a provider or precision."""

    at: Location
    model: str
    provider: str | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """The variant that is used, why, and the providers that run it, the first choice first.

    ``passed_over`` says why providers before these, that somebody asked for, do not run it.
    """

    variant: VariantSpec
    reason: str
    providers: tuple[str, ...]
    passed_over: tuple[str, ...] = ()
    runs: bool = True  # False: nothing here runs any variant; this one is there to be checked


@dataclass(frozen=True, slots=True)
class SpanSpec:
    """How many tokens a run may take: ``whole`` or a number, for the first run and for later ones."""

    at: Location
    first: int | Literal["whole"]
    later: int | Literal["whole"]


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Runtime session settings of a component."""

    at: Location
    providers: tuple[str, ...] = ()
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One graph, or pair of graphs with one state, that stages run."""

    at: Location
    name: str
    model: str | None = None
    model_later: str | None = None
    package: str | None = None
    component: str | None = None
    root: Path | None = None  # the folder of its files, if it is another package's
    variants: tuple[VariantSpec, ...] = ()
    chosen: VariantChoice | None = None  # among the variants; its graph is ``model`` then
    batch: BatchMode = "stack"
    no_batch_axis: tuple[str, ...] = ()  # ports declared to have no batch axis
    pad: Mapping[str, float | int] = field(default_factory=dict)
    span: SpanSpec | None = None
    session: SessionSpec | None = None
    kv: tuple[KvSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class CarrySpec:
    """A value handed from one step of a loop to the next."""

    at: Location
    initial: Binding
    next: Binding


@dataclass(frozen=True, slots=True)
class CollectSpec:
    """A value joined over the steps of a loop."""

    at: Location
    value: str
    axis: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class GuideSpec:
    """Classifier-free guidance of a run stage."""

    at: Location
    scale: Binding
    negative: Mapping[str, Binding]


@dataclass(frozen=True, slots=True)
class OpCallSpec:
    """A host operation with its parameters and inputs, where the grammar takes one inside another construct."""

    at: Location
    op: str
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Binding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopSpec:
    """What ends a decode loop besides the tokenizer's end tokens."""

    at: Location
    tokens: tuple[str | int, ...] = ()
    when: Binding | None = None


@dataclass(frozen=True, slots=True)
class WalkSpec:
    """A transducer's cursor over the rows of an outer value."""

    at: Location
    rows: Binding
    axis: int
    blank: str | int
    advance: Binding | None = None
    length: Binding | None = None
    max_per_row: int | None = None


@dataclass(frozen=True, slots=True)
class TemplatePiece:
    """A piece of a prompt template; it is there when ``when`` is true, or always."""

    text: str
    when: Binding | None = None


@dataclass(frozen=True, slots=True)
class TimesSpec:
    """Tokens that mark times, by text or id; ``when`` they are wanted (None: always)."""

    at: Location
    first: str | int
    last: str | int
    latest_start: str | int | None = None
    when: Binding | None = None


@dataclass(frozen=True, slots=True)
class DecodeSpec:
    """The settings of a ``loop: decode`` stage besides its body."""

    at: Location
    prompt: Binding | None = None
    prompt_template: tuple[TemplatePiece, ...] | None = None
    logits: str | None = None
    tokens: str | None = None
    block: int | None = None
    carry: Mapping[str, CarrySpec] = field(default_factory=dict)
    collect: Mapping[str, CollectSpec] = field(default_factory=dict)
    positions: OpCallSpec | None = None
    walk: WalkSpec | None = None
    suppress: tuple[str | int, ...] = ()
    begin_suppress: tuple[str | int, ...] = ()  # not chosen as the first token
    times: TimesSpec | None = None
    stop: StopSpec | None = None
    tokenizer: str | None = None
    generation: GenerationSpec | None = None


@dataclass(frozen=True, slots=True)
class OverSpec:
    """A sliding walk over an axis of a value, in chunks with context before and after."""

    at: Location
    value: Binding
    axis: int
    chunk: int
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class IterateSpec:
    """The settings of a ``loop: iterate`` stage besides its body."""

    at: Location
    count: Binding | None = None
    schedule: OpCallSpec | None = None
    over: OverSpec | None = None
    until: str | None = None
    max: Binding | None = None
    carry: Mapping[str, CarrySpec] = field(default_factory=dict)
    collect: Mapping[str, CollectSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage: exactly one of ``run``, ``op``, ``decode``, ``iterate`` or a ``for_each`` group with only a body."""

    at: Location
    id: str  # given, or derived: the component, operation or loop kind, with _2, _3, ... when that is taken
    kind: Literal["run", "op", "decode", "iterate", "group"]
    run: str | None = None
    op: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)  # of ``with:``
    inputs: Mapping[str, Binding | tuple[Binding, ...]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)  # port -> value name, as written
    when: Binding | None = None
    for_each: str | None = None
    guide: GuideSpec | None = None
    state: Literal["advance", "read"] = "advance"
    decode: DecodeSpec | None = None
    iterate: IterateSpec | None = None
    body: tuple[StageSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """Defaults for silent requests, and bounds of what a request may set (name -> allowed values or range)."""

    at: Location
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Hard limits of a package."""

    at: Location
    context_length: Binding | None = None
    max_new_tokens: Binding | None = None
    sizes: Mapping[str, Binding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeculativeSpec:
    """Where drafts come from; exactly one of the three. ``propose`` is a decode stage with the id "propose"."""

    at: Location
    draft: str | None = None
    lookup: Mapping[str, int] | None = None
    propose: StageSpec | None = None


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """Weights laid over a component, when a condition holds or a request names them."""

    at: Location
    id: str
    file: str
    component: str
    when: Binding | None = None


@dataclass(frozen=True, slots=True)
class PackageSpec:
    """A whole inference metadata file."""

    root: Path  # the package folder, resolved
    file: Path  # the metadata file
    at: Location
    schema_version: str
    name: str
    summary: str = ""
    license: str = ""
    capabilities: tuple[str, ...] = ()
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    outputs: Mapping[str, OutputSpec] = field(default_factory=dict)
    tokenizers: Mapping[str, TokenizerSpec] = field(default_factory=dict)  # ``tokenizer:`` is the entry "default"
    programs: Mapping[str, ProgramSpec] = field(default_factory=dict)
    data: Mapping[str, DataSpec] = field(default_factory=dict)
    components: Mapping[str, ComponentSpec] = field(default_factory=dict)
    stages: tuple[StageSpec, ...] = ()
    generation: GenerationSpec | None = None
    limits: LimitsSpec | None = None
    structured_output: Mapping[str, Any] | None = None
    tools: Mapping[str, Any] | None = None
    reasoning: Mapping[str, Any] | None = None
    speculative: SpeculativeSpec | None = None
    adapters: tuple[AdapterSpec, ...] = ()
    session: Mapping[str, Any] | None = None
    places: Places = field(default_factory=Places, repr=False, compare=False)  # of every entry of the file
