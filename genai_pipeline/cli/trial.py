"""``validate --run``: one short request, made up of what a package declares, and which components it did not reach.

Where the package has answers of a reference recorded, it must still give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import GenaiError, MediaError, OptionError, ReferenceFileError
from genai_pipeline.problems import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from genai_pipeline.metadata.model import InputSpec, PackageSpec, ParameterSpec
    from genai_pipeline.pipeline import Pipeline

_TEXT: Final = "The quick brown glorbix."  # one word that no dictionary has
_SECONDS: Final = (2.0, 0.1)  # lengths of the sample sound, the first one that a package takes
_RATE: Final = 16_000
_TOKENS: Final = 2  # the first comes of a prefill run, the second of a decode run
_MACHINE: Final = 5  # exit code of errors that are the machine's, not the package's


def problems_of(spec: PackageSpec, path: Path) -> list[Problem]:
    """Load a package and run one request. Raises errors of the machine: no runtime, no provider, a missing extra."""
    import genai_pipeline as gp

    try:
        with gp.load(path) as pipe:
            found = [*_run(pipe), *_diverging(pipe)]
            ran = pipe.stats().get("graph_seconds", {})
    except GenaiError as error:
        if error.exit_code == _MACHINE:
            raise
        return [Problem(spec.at, "trial.failed", f"a request fails: {error.message}", error.hint)]
    return [*found, *_not_reached(pipe, ran)]


def _run(pipe: Pipeline) -> list[Problem]:
    """Run the first sample that the package takes; a note where it takes none."""
    package = pipe.plan.package
    missed: MediaError | None = None
    for seconds in _SECONDS:
        inputs = {spec.name: _sample(spec, seconds) for spec in package.inputs.values()}
        parameters = {one.name: _parameter(one) for one in package.parameters.values() if one.default is None}
        try:
            _ask(pipe, {**inputs, **parameters})
        except MediaError as error:
            missed = error
        else:
            return []
    assert missed is not None
    hint = "run it with a picture or a sound of your own: genai-pipeline run PACKAGE --image FILE --audio FILE"
    return [Problem(package.at, "trial.no_sample", f"no sample fits: {missed.message}", hint, "note")]


def _diverging(pipe: Pipeline) -> Iterator[Problem]:
    """Answers that differ from those recorded in the package, or a record that cannot be read."""
    from genai_pipeline.cli.parity.compare import Tolerance, compare
    from genai_pipeline.cli.parity.recorded import REFERENCE_FILE, has_recorded, read_recorded

    package = pipe.plan.package
    if not has_recorded(package.root):
        return
    try:
        reference = read_recorded(package.root)
    except ReferenceFileError as error:
        yield Problem(package.at, "trial.reference", error.message, error.hint)
        return
    for result in compare(pipe, reference):
        for fault in result.faults(Tolerance()):
            message = f"other answers than in {REFERENCE_FILE} ({reference.source}): {result.text!r}: {fault}"
            yield Problem(package.at, "trial.diverges", message, "genai-pipeline verify PACKAGE shows all of it")


def _ask(pipe: Pipeline, inputs: Mapping[str, Any]) -> None:
    """One request, as short as the package lets it be."""
    try:
        pipe.run(inputs, max_new_tokens=_TOKENS)
    except OptionError as error:
        if error.param != "max_new_tokens":
            raise
        pipe.run(inputs)  # it makes no tokens, or has a say in how many


def _not_reached(pipe: Pipeline, ran: Mapping[str, float]) -> Iterator[Problem]:
    """Components that have spent no time."""
    hint = "it is not checked by this: run the package with an input of your own"
    for name, component in pipe.plan.components.items():
        if not ran.get(name):
            message = f"the sample does not reach the component '{name}'"
            yield Problem(component.spec.at, "trial.not_reached", message, hint, "note")


def _sample(spec: InputSpec, seconds: float) -> Any:
    """A value for an input; one that takes a list gets one item."""
    from genai_pipeline.graph.values import is_list

    if spec.modality == "text":
        one: Any = _TEXT if spec.default is None else spec.default
        return [one] if is_list(spec) and isinstance(one, str) else one
    if spec.modality == "image":
        one = _picture()
    elif spec.modality == "audio":
        one = _sound(seconds)
    else:
        one = _array(spec)
    return [one] if is_list(spec) else one


def _picture() -> Any:
    """Dark bars on white, uint8 [480, 640, 3]: edges and lines for whatever looks for them."""
    import numpy as np

    pixels = np.full((480, 640, 3), 255, np.uint8)
    for row in range(60, 420, 60):
        pixels[row : row + 24, 60:580] = (20, 20, 20)
    return pixels


def _sound(seconds: float) -> tuple[Any, int]:
    """Harmonics of 120 Hz that swell four times a second, as loud as a voice: (samples, rate)."""
    import numpy as np

    times = np.arange(round(seconds * _RATE)) / _RATE
    voice = sum(np.sin(2 * np.pi * 120 * number * times) / number for number in range(1, 20))
    return (0.2 * voice * (1 + np.sin(2 * np.pi * 4 * times)) / 2).astype(np.float32), _RATE


def _array(spec: InputSpec) -> Any:
    """Zeros of the declared type and shape, an axis without a size being 1; a list of one number for items."""
    import numpy as np

    from genai_pipeline.types import numpy_dtype

    shape = [size if isinstance(size, int) else 1 for size in spec.options.get("shape") or (1,)]
    values = np.zeros(shape, numpy_dtype(spec.options.get("dtype", "float32")))
    return values.tolist() if spec.modality == "items" and "dtype" not in spec.options else values


def _parameter(spec: ParameterSpec) -> Any:
    """A value for a parameter that a request must give."""
    if spec.type in ("integer", "number"):
        return spec.minimum if spec.minimum is not None else 1
    if spec.type == "choice":
        return spec.values[0] if spec.values else None
    return True if spec.type == "boolean" else _TEXT
