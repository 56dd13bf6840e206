"""What ``transcribe``, ``speak`` and ``embed`` are asked for, checked before a package is fetched or loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.run_options import CHOOSING, LOADING, PROMPT, QUEUE
from genai_pipeline.cli.written import pairs
from genai_pipeline.errors import RequestError
from genai_pipeline.problems import nearest, one_of

if TYPE_CHECKING:
    from genai_pipeline.cli.output import Output
    from genai_pipeline.metadata.model import PackageSpec


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """Declared parameters and options of a request, and options of ``gp.load``."""

    parameters: Mapping[str, Any]
    request: Mapping[str, Any]
    loading: Mapping[str, Any]

    @staticmethod
    def of(given: Mapping[str, Any]) -> TaskRequest:
        """Read what was given, by the names of the API. Raises OptionError."""
        from genai_pipeline.config import LoadOptions
        from genai_pipeline.engine.request import Queueing
        from genai_pipeline.sampling.params import resolve_options

        queue, choosing = QUEUE.given(given), CHOOSING.given(given)
        Queueing.of(**queue)
        resolve_options(choosing)
        loading = LOADING.given(given)
        LoadOptions.of(**{name: value for name, value in loading.items() if name != "precision"})
        parameters = pairs("--param", PROMPT.given(given).get("parameters", []))
        return TaskRequest(parameters, {**choosing, **queue}, loading)

    def options(self, package: PackageSpec) -> dict[str, Any]:
        """Options of one request, as methods of the pipeline take them. Raises RequestError for unknown parameters."""
        for name in self.parameters:
            if name not in package.parameters:
                known = package.parameters
                hint = nearest(name, known) or (f"it has: {one_of(known)}" if known else "it has none")
                raise RequestError(f"'{package.name}' has no parameter '{name}'", param=name, hint=hint)
        return {**self.parameters, **self.request}


def note_factor(output: Output, took: float, seconds: float, more: str = "") -> None:
    """Say how long the work took, and that per second of sound."""
    factor = f", {took / seconds:.2f} of its length" if seconds else ""
    output.note(f"{seconds:.1f} s of sound in {took:.1f} s{factor}{more}")
