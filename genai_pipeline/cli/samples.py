"""A short request made up of what a package declares, where nobody gives one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from genai_pipeline.errors import MediaError, OptionError

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import InputSpec, PackageSpec, ParameterSpec

T = TypeVar("T")
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

TEXT: Final = "The quick brown glorbix."  # one word that no dictionary has
SECONDS: Final = (2.0, 0.1)  # lengths of the sample sound, the first one that a package takes
_RATE: Final = 16_000


def samples(package: PackageSpec, given: Mapping[str, Any] = NOTHING) -> Iterator[dict[str, Any]]:
    """Inputs and parameters by name: the same once for each length of the sound, for want of a declared one.

    What is ``given`` stays as it is, and the rest goes with it.
    """
    for seconds in SECONDS:
        inputs = {spec.name: sample_of(spec, seconds) for spec in package.inputs.values()}
        parameters = {one.name: parameter_of(one) for one in package.parameters.values() if one.default is None}
        yield with_marks(package, {**inputs, **parameters, **given}, given)


def first_that_fits(package: PackageSpec, ask: Callable[[dict[str, Any]], T], given: Mapping[str, Any] = NOTHING) -> T:
    """What ``ask`` gives for the first sample that it does not refuse. Raises MediaError when it refuses all."""
    missed: MediaError | None = None
    for sample in samples(package, given):
        try:
            return ask(sample)
        except MediaError as error:
            missed = error
    assert missed is not None
    raise missed


def with_marks(package: PackageSpec, sample: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A sample whose prompt tells of its pictures and sounds itself, where no chat template does.

    A prompt that is given stays as it is: what it does not tell of is left out where it is neither given nor required.
    """
    from genai_pipeline.preprocess.package_texts import is_templated, placeholder_texts

    owner, named = placeholder_texts(package)
    text = sample.get(owner) if owner is not None else None
    if owner is None or not isinstance(text, str) or is_templated(package, owner):
        return sample
    for spec in (package.inputs[name] for name in named):
        assert spec.placeholder is not None
        told = text.count(spec.placeholder.token)
        if owner not in given:
            text = spec.placeholder.token * (_number(sample.get(spec.name)) - told) + text
        elif not told and spec.name not in given and not spec.required:
            del sample[spec.name]
    return {**sample, owner: text}


def _number(value: Any) -> int:
    """How many items an input has."""
    return len(value) if isinstance(value, list) else int(value is not None)


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


def described(spec: InputSpec, value: Any) -> str:
    """What ``value``, the sample of an input, is, for people to read."""
    if spec.modality == "text":
        return f"{value!r} (its default)" if value == spec.default else f"{value!r}"
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
