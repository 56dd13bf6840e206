"""A short request made up of what a package declares, where nobody gives one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from genai_pipeline.errors import MediaError, OptionError

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import InputSpec, PackageSpec, ParameterSpec

T = TypeVar("T")

TEXT: Final = "The quick brown glorbix."  # one word that no dictionary has
SECONDS: Final = (2.0, 0.1)  # lengths of the sample sound, the first one that a package takes
_RATE: Final = 16_000


def samples(package: PackageSpec) -> Iterator[dict[str, Any]]:
    """Inputs and parameters by name: the same once for each length of the sound, for want of a declared one."""
    for seconds in SECONDS:
        inputs = {spec.name: sample_of(spec, seconds) for spec in package.inputs.values()}
        parameters = {one.name: parameter_of(one) for one in package.parameters.values() if one.default is None}
        yield {**inputs, **parameters}


def first_that_fits(package: PackageSpec, ask: Callable[[dict[str, Any]], T]) -> T:
    """What ``ask`` gives for the first sample that it does not refuse. Raises MediaError when it refuses all."""
    missed: MediaError | None = None
    for sample in samples(package):
        try:
            return ask(sample)
        except MediaError as error:
            missed = error
    assert missed is not None
    raise missed


def with_fitting_options(options: Mapping[str, Any], ask: Callable[[dict[str, Any]], T]) -> T:
    """What ``ask`` gives for the options, without those that a package has no use for. Raises OptionError."""
    rest = dict(options)
    while True:
        try:
            return ask(dict(rest))
        except OptionError as error:
            if error.param not in rest:
                raise
            del rest[error.param]  # it makes no tokens, or has a say in them


def described(spec: InputSpec) -> str:
    """What the sample of an input is, for people to read."""
    if spec.modality == "text":
        return f"{TEXT!r}" if spec.default is None else f"{spec.default!r} (its default)"
    if spec.modality == "image":
        return "a picture of dark bars"
    if spec.modality == "audio":
        return "a sound of 120 Hz and its harmonics"
    return "zeros"


def sample_of(spec: InputSpec, seconds: float) -> Any:
    """A value for an input; one that takes a list gets one item."""
    from genai_pipeline.graph.values import is_list

    if spec.modality == "text":
        one: Any = TEXT if spec.default is None else spec.default
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


def parameter_of(spec: ParameterSpec) -> Any:
    """A value for a parameter that a request must give."""
    if spec.type in ("integer", "number"):
        return spec.minimum if spec.minimum is not None else 1
    if spec.type == "choice":
        return spec.values[0] if spec.values else None
    return True if spec.type == "boolean" else TEXT
