"""All layers of checks over one package: metadata, borrowed components, graphs, tokenizers and templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.errors import OptionError, PackageInvalidError
from genai_pipeline.option_values import package_path
from genai_pipeline.problems import Problem, Problems, nearest, one_of, sort_problems

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import Backend
    from genai_pipeline.graph.plan import ExecutionPlan
    from genai_pipeline.metadata.model import PackageSpec
    from genai_pipeline.metadata.provider_names import AskedProviders
    from genai_pipeline.preprocess.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class CheckedPackage:
    """What the checks found: ``plan`` None when there is an error among the problems."""

    spec: PackageSpec | None
    plan: ExecutionPlan | None
    tokenizers: Mapping[str, Tokenizer]
    problems: tuple[Problem, ...]


def check_package(
    path: str | Path,
    lend: Callable[[str], Path] | None = None,
    *,
    backend: str | Backend = "auto",
    providers: AskedProviders | None = None,
    precision: str | None = None,
) -> CheckedPackage:
    """Check a package on disk.

    ``lend`` gives the folders of packages that it borrows components from; by default only those in the cache.
    ``backend``, ``providers`` and ``precision`` choose among variants of components, as the load options of these names
    do. Raises OptionError for providers of a component that there is not.
    """
    from genai_pipeline.backends.offer import Offer
    from genai_pipeline.graph.borrowing import borrow
    from genai_pipeline.graph.compile import compile_package
    from genai_pipeline.graph.variants import choose_variants
    from genai_pipeline.importers.pull import cached
    from genai_pipeline.metadata.load import load_package
    from genai_pipeline.metadata.places import placed
    from genai_pipeline.preprocess.text_checks import check_text
    from genai_pipeline.sampling.params import check_declared_options, loop_generations

    spec, found = load_package(package_path(path))
    problems = Problems()
    problems.extend(found)
    if spec is None:
        return CheckedPackage(None, None, {}, problems.sorted())
    spec = borrow(spec, lend or cached, problems)
    if providers is not None:
        _check_components(providers, spec)
    spec = choose_variants(spec, Offer(backend), problems, asked=providers, precision=precision)
    plan, more = compile_package(spec, tuple(problems))
    problems.extend(more)
    for generation in (spec.generation, *loop_generations(spec.stages)):
        check_declared_options(generation, problems)
    tokenizers = check_text(spec, plan.facts["vocab_sizes"] if plan is not None else {}, problems)
    found = sort_problems(placed(problems, spec.places))
    return CheckedPackage(spec, None if problems.failed else plan, tokenizers, found)


def _check_components(asked: AskedProviders, spec: PackageSpec) -> None:
    """Refuse providers for a component that the package does not have. Raises OptionError."""
    for name in asked.components:
        if name not in spec.components:
            hint = nearest(name, spec.components) or f"its components are: {one_of(spec.components)}"
            message = f"providers are given for '{name}', which is no component of '{spec.name}'"
            raise OptionError(message, param="providers", hint=hint)


def accept(name: str, plan: ExecutionPlan | None, problems: tuple[Problem, ...]) -> ExecutionPlan:
    """The plan of a package without errors. Raises PackageInvalidError with all problems."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if plan is not None and not errors:
        return plan
    first = errors[0]
    raise PackageInvalidError(
        f"{name} has {len(errors)} problem{'s' if len(errors) > 1 else ''}; first: {first.message}",
        problems,
        hint=f"genai-pipeline validate {name}",
    )
