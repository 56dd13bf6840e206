"""What ``run`` does with packages that do more than answer in text: inputs by modality, outputs where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.output import write, write_json
from genai_pipeline.errors import OptionError, OutputError, RequestError
from genai_pipeline.problems import one_of

if TYPE_CHECKING:
    from genai_pipeline.graph.plan import ExecutionPlan

_SUFFIXES = {"audio": (".wav",), "image": (".png", ".jpg", ".jpeg")}
_OPTIONS = {"images": "image", "audio": "audio"}
_TEXT_ONLY = ("system", "raw", "suffix", "chat_template_kwargs", "session")


def answers_in_text(plan: ExecutionPlan) -> bool:
    """Whether a package answers a text in text, token by token, as a conversation does."""
    loops = {f"{stage.id}.text" for stage in plan.root.stages if stage.spec.kind == "decode"}
    takes = any(spec.modality == "text" for spec in plan.package.inputs.values())
    return takes and bool(loops & set(plan.outputs.values()))


def check_out(plan: ExecutionPlan, out: str | None) -> Path | None:
    """Where the sound or picture of a package goes. Raises OptionError where that is not said, or cannot be."""
    media = {name: spec.modality for name, spec in plan.package.outputs.items() if spec.modality in _SUFFIXES}
    if not media:
        if out is not None:
            raise OptionError(f"'{plan.package.name}' gives no sound and no picture", param="out", hint="leave it out")
        return None
    if out is None:
        what = one_of(f"{modality} '{name}'" for name, modality in media.items())
        raise OptionError(f"'{plan.package.name}' gives {what}, which needs a file", param="out", hint="add --out FILE")
    path, wanted = Path(out), sorted({suffix for modality in media.values() for suffix in _SUFFIXES[modality]})
    if path.suffix.lower() not in wanted or not path.absolute().parent.is_dir():
        raise OptionError(f"--out {out} is no file that can be made", param="out", hint=f"end it with {one_of(wanted)}")
    return path


def run_inputs(
    plan: ExecutionPlan, text: str | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of ``Pipeline.run`` by name, and the other options. Raises RequestError for what has no place."""
    from genai_pipeline.graph.values import is_list

    rest = dict(options)
    for name in _TEXT_ONLY:
        if rest.pop(name, None) is not None:
            raise RequestError(f"'{plan.package.name}' has no conversation that {name} could be for", param=name)
    inputs: dict[str, Any] = {} if text is None else {_only(plan, "text", "prompt"): text}
    for option, modality in _OPTIONS.items():
        given = rest.pop(option, None)
        if given is not None:
            name = _only(plan, modality, option)
            inputs[name] = [Path(path) for path in given] if is_list(plan.package.inputs[name]) else _one(given, option)
    return {**inputs, **rest.pop("parameters", {})}, rest


def show_outputs(outputs: Mapping[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Save sounds and pictures, print the rest: texts as they are, everything as JSON where asked for."""
    from genai_pipeline.ops.media import Audio, Image

    saved = {name: value for name, value in outputs.items() if isinstance(value, Audio | Image)}
    if len(saved) > 1:
        raise OutputError(f"--out is one file, and there are {len(saved)}: {one_of(saved)}", hint="use the Python API")
    for value in saved.values():
        assert out is not None
        _save(value, out)
    rest = {name: value for name, value in outputs.items() if name not in saved}
    texts = [value for value in rest.values() if isinstance(value, str)]
    if as_json:
        write_json({**{name: str(out) for name in saved}, **{name: plain(value) for name, value in rest.items()}})
    elif texts:
        write("\n".join(texts) + "\n")
    elif rest:
        write_json({name: plain(value) for name, value in rest.items()})


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, segments and the like as objects."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _only(plan: ExecutionPlan, modality: str, param: str) -> str:
    """The one input of a modality."""
    names = [name for name, spec in plan.package.inputs.items() if spec.modality == modality]
    if len(names) != 1:
        has = f"several: {one_of(names)}" if names else "none"
        hint = "use the Python API, with names" if names else "leave it out"
        raise RequestError(f"'{plan.package.name}' has {has} for {modality}", param=param, hint=hint)
    return names[0]


def _one(given: list[str], option: str) -> Path:
    if len(given) > 1:
        raise RequestError(f"one file is taken, and {len(given)} were given", param=option)
    return Path(given[0])


def _save(value: Any, out: Path) -> None:
    try:
        value.save(out)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}", hint="name another file") from error
