"""The Python API: load a package, generate, stream, run; and check or compile one without running it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from genai_pipeline.config import LoadArguments, LoadOptions
from genai_pipeline.errors import OptionError, PackageInvalidError, RequestError
from genai_pipeline.option_values import package_path
from genai_pipeline.problems import Problem, Problems, sort_problems
from genai_pipeline.types import PROMPT_OPTIONS, QUEUE_OPTIONS, RequestOptions, Result

if TYPE_CHECKING:
    from genai_pipeline.engine.assemble import Assembly
    from genai_pipeline.engine.request import Emit
    from genai_pipeline.engine.session import Session
    from genai_pipeline.engine.sessions import Sessions
    from genai_pipeline.engine.streams import AsyncStream, Stream, Submit
    from genai_pipeline.graph.plan import ExecutionPlan
    from genai_pipeline.metadata.model import PackageSpec
    from genai_pipeline.preprocess.prompts import PromptReader
    from genai_pipeline.preprocess.tokenizer import Tokenizer
    from genai_pipeline.sampling.params import GenerationOptions


def validate(path: str | Path) -> tuple[PackageSpec | None, tuple[Problem, ...]]:
    """Check a package in layers; gives the typed metadata (None when it cannot be read) and every problem found."""
    checked = check_package(path)
    return checked.spec, checked.problems


def compile(spec: PackageSpec) -> ExecutionPlan:
    """The execution plan of checked metadata; ``plan.graph`` is a networkx DiGraph. Raises PackageInvalidError."""
    from genai_pipeline.graph.compile import compile_package
    from genai_pipeline.metadata.model import PackageSpec

    if not isinstance(spec, PackageSpec):
        hint = "spec, problems = validate(package); spec is None where the metadata cannot be read"
        raise OptionError(f"compile takes what validate gives, not {spec!r}", param="spec", hint=hint)
    plan, problems = compile_package(spec)
    return _accept(str(spec.file), plan, problems)


def load(
    package: str | Path,
    *,
    precision: str | None = None,
    progress: Callable[..., None] | None = None,
    **arguments: Unpack[LoadArguments],
) -> Pipeline:
    """Load a package by folder, metadata file or known name, which is pulled on first use.

    ``arguments`` are those of ``config.LoadArguments``; ``profile`` writes a trace of the engine to that file. Raises
    PackageNotFoundError, PackageInvalidError with every problem, BackendError or OptionError.
    """
    from genai_pipeline.importers.progress import silent
    from genai_pipeline.importers.pull import resolve
    from genai_pipeline.kv.budget import machine_memory, parse_memory

    options = LoadOptions.of(**arguments)
    parse_memory(options.memory, machine_memory())
    path = resolve(package, precision=precision, progress=progress or silent)
    checked = check_package(path)
    plan = _accept(str(path), checked.plan, checked.problems)
    return Pipeline(plan, checked.tokenizers, options)


@dataclass(frozen=True, slots=True)
class CheckedPackage:
    """What the checks found: ``plan`` None when there is an error among the problems."""

    spec: PackageSpec | None
    plan: ExecutionPlan | None
    tokenizers: Mapping[str, Tokenizer]
    problems: tuple[Problem, ...]


def check_package(path: str | Path) -> CheckedPackage:
    """All layers of checks over one package: metadata, graph, tokenizer and template."""
    from genai_pipeline.graph.compile import compile_package
    from genai_pipeline.metadata.load import load_package
    from genai_pipeline.metadata.places import placed
    from genai_pipeline.preprocess.text_checks import check_text
    from genai_pipeline.sampling.params import check_declared_options

    spec, found = load_package(package_path(path))
    problems = Problems()
    problems.extend(found)
    if spec is None:
        return CheckedPackage(None, None, {}, problems.sorted())
    plan, more = compile_package(spec, found)
    problems.extend(more)
    check_declared_options(spec.generation, problems)
    tokenizers = check_text(spec, plan.facts["vocab_sizes"] if plan is not None else {}, problems)
    found = sort_problems(placed(problems, spec.places))
    return CheckedPackage(spec, None if problems.failed else plan, tokenizers, found)


def _accept(name: str, plan: ExecutionPlan | None, problems: tuple[Problem, ...]) -> ExecutionPlan:
    errors = [problem for problem in problems if problem.severity == "error"]
    if plan is not None and not errors:
        return plan
    first = errors[0]
    raise PackageInvalidError(
        f"{name} has {len(errors)} problem{'s' if len(errors) > 1 else ''}; first: {first.message}",
        problems,
        hint=f"genai-pipeline validate {name}",
    )


class Pipeline:
    """A loaded package. Usable from several threads at once; a context manager that closes."""

    def __init__(self, plan: ExecutionPlan, tokenizers: Mapping[str, Tokenizer], options: LoadOptions) -> None:
        """Load graphs and start the engine; use ``load`` for a package on disk."""
        from genai_pipeline.backends.ort import OrtBackend
        from genai_pipeline.engine.assemble import assemble
        from genai_pipeline.preprocess.prompts import PromptReader
        from genai_pipeline.sampling.breakers import BreakerTexts

        self.plan = plan
        self._options = options
        self._prompts: PromptReader = PromptReader(plan.package, tokenizers)
        sizes = tuple(plan.facts["vocab_sizes"].values()) or [loaded.highest_id + 1 for loaded in tokenizers.values()]
        self._vocabulary: int | None = max(sizes, default=None)
        self._assembly: Assembly = assemble(plan, OrtBackend(threads=options.threads), tokenizers, options)
        self._breakers = BreakerTexts(_token_texts(*tokenizers.values()) if len(tokenizers) == 1 else None)
        self._close = weakref.finalize(self, self._assembly.close)  # once, at the latest with the last reference

    @property
    def context_length(self) -> int:
        """Most tokens a sequence may have, prompt and answer together."""
        return self._assembly.context_length

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of the engine as plain JSON, by the names of docs/telemetry.md; from any thread."""
        return self._assembly.telemetry.snapshot()

    def options(self, **options: Any) -> GenerationOptions:
        """The options in effect for a request that sets ``options``. Raises OptionError."""
        from genai_pipeline.sampling.params import resolve_options

        generation = self.plan.package.generation
        if generation is None:
            return resolve_options(options)
        return resolve_options(options, generation.defaults, generation.overrides)

    def generate(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> Result:
        """Run one request to its end.

        A plain ``prompt`` is one user turn when the package has a chat template (``raw=True`` sends it as it is);
        ``messages`` is a conversation, ``tokens`` are ids. Raises the error that ended the request.
        """
        from genai_pipeline.engine.collect import collect_result
        from genai_pipeline.engine.streams import Stream

        with Stream(self._submission(prompt, request)) as stream:
            return collect_result(stream)

    def stream(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> Stream:
        """The events of one request as they happen; closing the iterator cancels. Bad requests raise here."""
        from genai_pipeline.engine.streams import Stream

        return Stream(self._submission(prompt, request))

    def astream(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> AsyncStream:
        """``stream`` for asyncio; call it inside a running event loop."""
        from genai_pipeline.engine.streams import AsyncStream

        return AsyncStream(self._submission(prompt, request))

    def run(self, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Run any pipeline: declared inputs and parameters by name in, declared outputs by name out."""
        from genai_pipeline.engine.collect import collect_result
        from genai_pipeline.engine.streams import Stream

        with Stream(self._submit_values(self._prompts.inputs(inputs), options)) as stream:
            return dict(collect_result(stream).outputs)

    def session(self, path: str | None = None) -> Session:
        """A conversation that keeps its state between turns; ``path``: one that was saved, to go on with.

        Raises CheckpointError for a file that is damaged or belongs to another package.
        """
        return self._sessions.open(path)

    def close(self) -> None:
        """Stop the engine and free graphs and state; requests that still run end with EngineClosedError."""
        self._close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submission(self, prompt: str | None, request: RequestOptions) -> Submit:
        """Normalise a request on the caller's thread; what is given back hands it to the engine."""
        options = dict(request)
        given: dict[str, Any] = {name: options.pop(name) for name in PROMPT_OPTIONS if name in options}
        return self._submit_values(self._prompts.prompt(prompt, **given), options)

    @cached_property
    def _sessions(self) -> Sessions:
        from genai_pipeline.engine.identity import package_identity
        from genai_pipeline.engine.sessions import Sessions

        if len(self._assembly.parts) != 1:
            raise RequestError("a session needs a package with one decode loop", hint="use generate or run")
        (part,) = self._assembly.parts.values()
        identity = package_identity(self.plan)
        return Sessions(self._assembly.engine, part.keeper, identity, self._ask, shared=self._options.prefix_cache)

    def _ask(
        self, messages: Sequence[Mapping[str, Any]], salt: bytes, options: Mapping[str, Any]
    ) -> tuple[Stream, list[int]]:
        """Start one turn of a session."""
        from genai_pipeline.engine.streams import Stream

        values = self._prompts.prompt(messages=messages)
        prompt = next(value for name, value in values.items() if name.endswith(".tokens"))
        return Stream(self._submit_values(values, options, salt)), list(prompt)

    def _submit_values(self, values: Mapping[str, Any], options: Mapping[str, Any], salt: bytes = b"") -> Submit:
        from genai_pipeline.engine.request import Queueing, Request
        from genai_pipeline.sampling.params import check_vocabulary
        from genai_pipeline.sampling.random import fresh_seed

        queueing = Queueing.of(**{name: options[name] for name in QUEUE_OPTIONS if name in options})
        effective = self.options(**{name: value for name, value in options.items() if name not in QUEUE_OPTIONS})
        check_vocabulary(effective, self._vocabulary)
        effective = self._breakers.resolve(effective)
        seed = fresh_seed() if effective.seed is None else effective.seed

        def submit(emit: Emit) -> Callable[[], None]:
            state = self._assembly.engine.submit(Request(values, effective, emit, seed, queueing, salt))
            return lambda: self._assembly.engine.cancel(state)  # keeps this pipeline alive as long as the stream

        return submit


def _token_texts(tokenizer: Tokenizer) -> Callable[[], Sequence[str]]:
    """What reads the text of every token, control tokens too."""
    return lambda: [tokenizer.decode((id,), skip_special=False) for id in range(tokenizer.highest_id + 1)]


__all__ = ["Pipeline", "check_package", "compile", "load", "validate"]
