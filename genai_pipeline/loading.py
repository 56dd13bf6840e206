"""The Python API before there is a pipeline: check, compile and load packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from genai_pipeline.checking import accept, check_package
from genai_pipeline.config import LoadArguments, LoadOptions, Selection, environment_options
from genai_pipeline.errors import OptionError
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.problems import Problem, Problems

if TYPE_CHECKING:
    from genai_pipeline.engine.draft_model import DraftPackage
    from genai_pipeline.graph.plan import ExecutionPlan
    from genai_pipeline.metadata.model import PackageSpec


def load_options(arguments: Mapping[str, Any]) -> LoadOptions:
    """The options of a load: what is given, before what the environment says. Raises OptionError."""
    return LoadOptions.of(**{**environment_options(os.environ, arguments), **arguments})


def require_runtime(options: LoadOptions) -> None:
    """Refuse a backend that cannot run here, and providers that are not here, before anything is fetched or read.

    Raises RuntimeMissingError, ProviderUnavailableError or OptionError.
    """
    from genai_pipeline.backends.offer import Offer

    Offer(options.backend, options.threads).require(options.providers)


def validate(path: str | Path, **selection: Unpack[Selection]) -> tuple[PackageSpec | None, tuple[Problem, ...]]:
    """Check a package in layers; gives the typed metadata (None when it cannot be read) and every problem found.

    ``selection``: the load options ``backend`` and ``providers``, by which variants of components are chosen. Raises
    OptionError.
    """
    options = load_options(selection)
    checked = check_package(path, backend=options.backend, providers=options.providers)
    return checked.spec, checked.problems


def compile(spec: PackageSpec) -> ExecutionPlan:
    """The execution plan of checked metadata; ``plan.graph`` is a networkx DiGraph. Raises PackageInvalidError."""
    from genai_pipeline.backends.offer import Offer
    from genai_pipeline.graph.compile import compile_package
    from genai_pipeline.graph.variants import choose_variants
    from genai_pipeline.metadata.model import PackageSpec

    if not isinstance(spec, PackageSpec):
        hint = "spec, problems = validate(package); spec is None where the metadata cannot be read"
        raise OptionError(f"compile takes what validate gives, not {spec!r}", param="spec", hint=hint)
    plan, problems = compile_package(choose_variants(spec, Offer(), Problems()))
    return accept(str(spec.file), plan, problems)


def load(
    package: str | Path,
    *,
    precision: str | None = None,
    progress: Callable[..., None] | None = None,
    **arguments: Unpack[LoadArguments],
) -> Pipeline:
    """Load a package by folder, metadata file or known name, which is pulled on first use.

    ``arguments`` are those of ``config.LoadArguments``, and win over variables of the environment; ``profile`` writes
    a trace of the engine to that file. Raises
    PackageNotFoundError, PackageInvalidError with every problem, ImportRefusedError for what a pull made and does not
    keep, BackendError or OptionError.
    """
    from genai_pipeline.import_checks import check_made
    from genai_pipeline.importers.progress import silent
    from genai_pipeline.importers.pull import lending, resolve
    from genai_pipeline.kv.budget import machine_memory, parse_memory

    options = load_options(arguments)
    parse_memory(options.memory, machine_memory())
    require_runtime(options)
    path = resolve(package, precision=precision, progress=progress or silent, check=check_made)
    checked = check_package(
        path, lending(progress or silent), backend=options.backend, providers=options.providers, precision=precision
    )
    plan = accept(str(path), checked.plan, checked.problems)
    return Pipeline(plan, checked.tokenizers, options, _draft_package(plan, options, progress or silent))


def _draft_package(plan: ExecutionPlan, options: LoadOptions, progress: Callable[..., None]) -> DraftPackage | None:
    """The package that drafts for ``plan``, checked; None where none does."""
    from genai_pipeline.engine.draft_model import DraftPackage
    from genai_pipeline.engine.limits import context_length
    from genai_pipeline.import_checks import check_made
    from genai_pipeline.importers.pull import lending, resolve
    from genai_pipeline.speculative.compatible import check_draft_package, drafted_loop
    from genai_pipeline.speculative.options import PackageDrafts, draft_kind

    kind = draft_kind(options.draft, plan.package.speculative)
    if not isinstance(kind, PackageDrafts):
        return None
    path = resolve(kind.package, precision=None, progress=progress, check=check_made)
    everywhere = None if options.providers is None else options.providers.everywhere()
    checked = check_package(path, lending(progress), backend=options.backend, providers=everywhere)
    draft = accept(str(path), checked.plan, checked.problems)
    own = context_length(draft.package, replace(options, context_length=None))
    loop = check_draft_package(plan, drafted_loop(plan), draft, (context_length(plan.package, options), own))
    return DraftPackage(draft, loop, checked.tokenizers, kind.tokens)
