"""What ``run`` does with packages that do more than answer in text: inputs by modality, outputs where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.media_in import FLAGS
from genai_pipeline.cli.media_out import check_place
from genai_pipeline.cli.output import write, write_json
from genai_pipeline.errors import OptionError, OutputError, RequestError
from genai_pipeline.problems import one_of

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import PackageSpec

_SUFFIXES: Final = {"audio": (".wav",), "image": (".png", ".jpg", ".jpeg")}
_CALLED: Final = {"audio": "sound", "image": "picture"}
_TEXT_ONLY: Final = {
    "system": "--system",
    "raw": "--raw",
    "suffix": "--suffix",
    "chat_template_kwargs": "--chat-template-kwargs",
}
_STREAMED_ONLY: Final = {"n": "--n", "logprobs": "--logprobs", "prompt_logprobs": "--prompt-logprobs"}


def answer_of(package: PackageSpec | None) -> str | None:
    """The one output that is the text of a decode loop of the root, and comes token by token; None without one."""
    if package is None:
        return None
    loops = {f"{stage.id}.text" for stage in package.stages if stage.kind == "decode"}
    found = [name for name, output in package.outputs.items() if output.value in loops]
    return found[0] if len(found) == 1 else None


def check_out(package: PackageSpec | None, out: str | None) -> Path | None:
    """Where the sound or picture of a package goes. Raises OptionError where that is not said, or cannot be."""
    if package is None:
        return None  # its metadata cannot be read, which loading it will say
    media = {name: spec.modality for name, spec in package.outputs.items() if spec.modality in _SUFFIXES}
    if not media:
        if out is not None:
            raise OptionError(f"'{package.name}' gives no sound and no picture", param="out", hint="leave --out out")
        return None
    what = one_of(f"the {_CALLED[modality]} '{name}'" for name, modality in media.items())
    if len(media) > 1:
        raise OptionError(f"'{package.name}' gives {what}, and --out is one file", param="out", hint="use pipe.run()")
    if out is None:
        raise OptionError(f"'{package.name}' gives {what}, which needs a file", param="out", hint="add --out FILE")
    path, wanted = Path(out), _SUFFIXES[next(iter(media.values()))]
    if path.suffix.lower() not in wanted:
        hint = f"'{package.name}' gives {what}: end the name with {one_of(wanted)}"
        raise OptionError(f"--out {out} is no name for it", param="out", hint=hint)
    check_place(out)
    return path


def run_inputs(
    package: PackageSpec, text: str | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of ``Pipeline.run`` by name, and the other options. Raises RequestError for what has no place."""
    from genai_pipeline.graph.values import is_list

    rest = dict(options)
    for name, flag in _TEXT_ONLY.items():
        if rest.pop(name, None) is not None:
            raise RequestError(f"'{package.name}' holds no conversation that {flag} could be for", param=name)
    inputs: dict[str, Any] = {} if text is None else {_only(package, "text", "prompt", "a prompt"): text}
    for option, (modality, flag) in FLAGS.items():
        given = rest.pop(option, None)
        if given is not None:
            name = _only(package, modality, option, flag)
            many = is_list(package.inputs[name])
            if len(given) > 1 and not many:
                raise RequestError(f"{flag} takes one file here, and {len(given)} were given", param=option)
            inputs[name] = [Path(path) for path in given] if many else Path(given[0])
    return {**inputs, **rest.pop("parameters", {})}, rest


def check_whole(package: PackageSpec, options: Mapping[str, Any]) -> None:
    """Refuse options for answers that come token by token. Raises RequestError."""
    for name, flag in _STREAMED_ONLY.items():
        if options.get(name, False) is not False and (name, options[name]) != ("n", 1):
            raise RequestError(f"{flag} is for an answer in text, which '{package.name}' does not give", param=name)


def show_outputs(outputs: Mapping[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Save sounds and pictures, print the rest: texts as they are, everything as JSON where asked for."""
    shown = plain_outputs(outputs, out)
    if as_json:
        write_json(shown)
        return
    rest = {name: value for name, value in shown.items() if not _is_media(outputs[name])}
    texts = [value for value in rest.values() if isinstance(value, str)]
    if texts:
        write("\n".join(texts) + "\n")
    elif rest:
        write_json(rest)


def plain_outputs(outputs: Mapping[str, Any], out: Path | None) -> dict[str, Any]:
    """Outputs as JSON has them; sounds and pictures are saved, and are the names of their files."""
    return {
        name: _saved(value, out) if out is not None and _is_media(value) else plain(value)
        for name, value in outputs.items()
    }


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, segments and the like as objects."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _only(package: PackageSpec, modality: str, param: str, given: str) -> str:
    """The one input of a modality."""
    names = [name for name, spec in package.inputs.items() if spec.modality == modality]
    if len(names) == 1:
        return names[0]
    if names:
        message = f"'{package.name}' has the {modality} inputs {one_of(names)}, and {given} does not say which"
        raise RequestError(message, param=param, hint="use pipe.run(), with names")
    takes = one_of(sorted({spec.modality for spec in package.inputs.values()})) or "nothing"
    message = f"'{package.name}' takes no {modality}, so {given} has no place"
    raise RequestError(message, param=param, hint=f"it takes: {takes}")


def _is_media(value: Any) -> bool:
    from genai_pipeline.ops.media import Audio, Image

    return isinstance(value, Audio | Image) or (isinstance(value, list) and any(map(_is_media, value)))


def _saved(value: Any, out: Path) -> str | list[str | None]:
    """Save one sound or picture as ``out``; several as ``out-1``, ``out-2``, ... Gives the names of the files."""
    if not isinstance(value, list):
        return _save(value, out)
    names = [out.with_stem(f"{out.stem}-{number}") for number in range(1, len(value) + 1)]
    return [None if one is None else _save(one, name) for one, name in zip(value, names, strict=True)]


def _save(value: Any, out: Path) -> str:
    try:
        value.save(out)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}", hint="name another file") from error
    return str(out)
