"""Where a reference comes from: what is recorded in the package, another runtime, the original model, or itself."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.benching.peer import PEER, PeerModel, require_peer
from genai_pipeline.cli.parity.answers import Answered, Reference, answered_by, own_answers
from genai_pipeline.cli.parity.recorded import has_recorded, read_recorded
from genai_pipeline.errors import ExtraMissingError, GenaiError, OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.pipeline import Pipeline

SOURCES: Final = ("recorded", PEER, "transformers", "self")
Prompts = Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command was told: which reference, the original model for transformers, tokens per prompt."""

    source: str
    model: str | None
    count: int


def find_reference(pipe: Pipeline, asked: Asked, prompts: Callable[[], Prompts], *, record: bool) -> Reference:
    """The answers to compare with; "auto" takes the first that is there.

    ``record``: recorded answers are no source then. Raises OptionError, ExtraMissingError, RuntimeMissingError,
    ReferenceFileError.
    """
    _require_tokens(pipe)
    source = _automatic(pipe, asked, record=record) if asked.source == "auto" else asked.source
    if source != "transformers" and asked.model is not None:
        raise OptionError(f"model is for the reference transformers, not {source}", param="model", hint="leave it out")
    if source == "recorded":
        if record:
            raise OptionError(
                "what is recorded cannot be recorded", param="reference", hint=f"name another: {PEER}, self"
            )
        return read_recorded(pipe.plan.package.root)
    answers, names = _ANSWERS[source](pipe, asked, prompts())
    versions = {name: importlib.metadata.version(name) for name in names}
    return Reference(source, versions, answers, dict(pipe.identity))


def _require_tokens(pipe: Pipeline) -> None:
    """Refuse a package that makes no tokens, which is all that a reference is compared in. Raises OptionError."""
    if not pipe.makes_tokens:
        raise OptionError(
            f"{pipe.plan.package.name} makes no tokens, and with a reference packages that make tokens are compared",
            param="package",
            hint="verify --backends A,B compares any package, graph run by graph run",
        )


def _automatic(pipe: Pipeline, asked: Asked, *, record: bool) -> str:
    """The first reference that can be had: recorded, the original model where it is named, another runtime."""
    if not record and has_recorded(pipe.plan.package.root):
        return "recorded"
    if asked.model is not None:
        return "transformers"
    try:
        require_peer()
        PeerModel.check(pipe.plan)
    except GenaiError as error:
        raise OptionError(
            f"there is no reference for this package: nothing is recorded in it, and {error.message}",
            param="reference",
            hint="name the original model with --model (needs transformers and torch), or record what it answers now: "
            "--reference self --record",
        ) from error
    return PEER


def _peer_answers(pipe: Pipeline, asked: Asked, prompts: Prompts) -> tuple[tuple[Answered, ...], Sequence[str]]:
    require_peer()
    longest = max(len(prompt) for _, prompt in prompts)
    with closing(PeerModel(pipe.plan, longest + asked.count)) as model:
        answers = tuple(answered_by(model, text, prompt, asked.count) for text, prompt in prompts)
    return answers, (PEER,)


def _original_answers(pipe: Pipeline, asked: Asked, prompts: Prompts) -> tuple[tuple[Answered, ...], Sequence[str]]:
    if asked.model is None:
        raise OptionError(
            "transformers needs the original model", param="model", hint="name its folder or its name on the hub"
        )
    for name in ("transformers", "torch"):
        if importlib.util.find_spec(name) is None:
            raise ExtraMissingError(f"{name} is not installed", hint="pip install transformers torch")
    model = _OriginalModel(asked.model)
    return tuple(answered_by(model, text, prompt, asked.count) for text, prompt in prompts), ("transformers", "torch")


def _own(pipe: Pipeline, asked: Asked, prompts: Prompts) -> tuple[tuple[Answered, ...], Sequence[str]]:
    return own_answers(pipe, prompts, asked.count), ()


class _OriginalModel:
    """A causal language model of transformers, on the CPU in float32, without a cache: slow and plain."""

    def __init__(self, name: str) -> None:
        transformers, self._torch = (importlib.import_module(module) for module in ("transformers", "torch"))
        try:
            self._model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=self._torch.float32).eval()
        except (OSError, ValueError) as error:
            raise OptionError(
                f"transformers cannot load '{name}': {str(error).splitlines()[0]}",
                param="model",
                hint="name a folder or a model of the hub",
            ) from error
        self._tokens: list[int] = []

    def start(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Begin a sequence; the logits after its last token."""
        self._tokens = list(tokens)
        return self._last()

    def step(self, token: int) -> NDArray[Any]:
        """Add a token; the logits after it."""
        self._tokens.append(token)
        return self._last()

    def _last(self) -> NDArray[Any]:
        with self._torch.no_grad():
            found: NDArray[Any] = self._model(self._torch.tensor([self._tokens])).logits[0, -1].numpy()
        return found


_ANSWERS: Final[Mapping[str, Callable[[Pipeline, Asked, Prompts], tuple[tuple[Answered, ...], Sequence[str]]]]] = {
    PEER: _peer_answers,
    "transformers": _original_answers,
    "self": _own,
}
