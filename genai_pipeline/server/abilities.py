"""What packages can do, told by their metadata alone, loaded or not: modalities in and out, and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.config import Served
from genai_pipeline.tasks import Task, can, embedding, speech, transcription

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import PackageSpec

MEDIA: Final = frozenset({"image", "audio"})  # that come in messages
TASKS: Final[Mapping[str, Callable[[PackageSpec], Task]]] = {
    "embed": embedding,
    "transcribe": transcription,
    "speak": speech,
}
_WORK: Final = {
    "generate": "generates text",
    "embed": "makes embeddings",
    "transcribe": "transcribes audio",
    "speak": "makes speech",
    "draw": "makes images",
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """Modalities that a package takes and gives, and its tasks: ``generate``, ``embed``, ``transcribe``, ``speak``."""

    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def takes_media(self) -> bool:
        """Whether bodies for it may hold images or sounds."""
        return bool(MEDIA & set(self.takes))

    @staticmethod
    def of(package: PackageSpec) -> Abilities:
        """Those of a package."""
        takes = tuple(dict.fromkeys(spec.modality for spec in package.inputs.values()))
        gives = tuple(dict.fromkeys(spec.modality for spec in package.outputs.values()))
        loops = any(stage.decode is not None for stage in package.stages)
        tasks = ("generate",) if loops and "text" in takes and "text" in gives else ()
        return Abilities(takes, gives, (*tasks, *(name for name, task in TASKS.items() if can(package, task))))


def abilities_of(served: Served) -> Abilities:
    """Those of a package that need not be loaded; none where its metadata cannot be read, which loading it tells."""
    from genai_pipeline.errors import GenaiError
    from genai_pipeline.importers.pull import metadata_of
    from genai_pipeline.metadata.load import load_package

    try:
        spec, _ = load_package(metadata_of(served.package, served.precision))
    except GenaiError:
        return Abilities()
    return Abilities() if spec is None else Abilities.of(spec)


def unsupported_task(model: str, task: str, known: Mapping[str, Abilities]) -> ApiError:
    """A 400 for work that a model does not do, with those that do it."""
    able = [name for name, abilities in known.items() if task in abilities.tasks]
    others = f"models that do: {', '.join(able)}" if able else "no model that is served here does"
    message = f"the model '{model}' is none that {_WORK[task]}; {others}"
    return bad_request(message, "model", code="unsupported_task")
