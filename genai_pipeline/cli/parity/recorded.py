"""The file of recorded answers in a package: what a reference said once, small enough to travel with it."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from genai_pipeline.cli.parity.answers import TOP, Answered, Reference, Top
from genai_pipeline.errors import OutputError, PackagePathError, ReferenceFileError
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.types import TokenLogprob

REFERENCE_FILE: Final = "reference.json"
_FORMAT: Final = "genai-pipeline reference"
_VERSION: Final = 1
_MOST_BYTES: Final = 16 << 20
_DIGITS: Final = 6  # of a log probability


def write_recorded(root: Path, reference: Reference) -> Path:
    """Keep a reference's answers in the package. Raises OutputError."""
    value = {
        "format": _FORMAT,
        "version": _VERSION,
        "reference": reference.source,
        "versions": dict(reference.versions),
        "package": dict(reference.package),
        "answers": [_written(answer) for answer in reference.answers],
    }
    path = root / REFERENCE_FILE
    try:
        handle, name = tempfile.mkstemp(prefix=f".{REFERENCE_FILE}.", dir=root)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(value, ensure_ascii=False) + "\n")
            Path(name).chmod(0o644)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}", hint="see to access rights"
        ) from error
    return path


def has_recorded(root: Path) -> bool:
    """Whether the package has recorded answers, readable or not."""
    return os.path.lexists(root / REFERENCE_FILE)


def read_recorded(root: Path) -> Reference:
    """The recorded answers of a package. Raises ReferenceFileError naming the field at fault."""
    try:
        path = resolve_inside(root, REFERENCE_FILE)
        if path.stat().st_size > _MOST_BYTES:
            raise _damaged(f"it has more than {_MOST_BYTES} bytes")
        value = json.loads(path.read_bytes())
    except PackagePathError as error:
        raise ReferenceFileError(error.message, hint=error.hint) from None
    except OSError as error:
        raise _damaged(error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise _damaged("it is no JSON") from None
    root_value = _mapping(value, "it")
    if root_value.get("format") != _FORMAT or root_value.get("version") != _VERSION:
        raise _damaged(f"it is not of the format '{_FORMAT}', version {_VERSION}")
    answers = root_value.get("answers")
    if not isinstance(answers, list) or not answers:
        raise _damaged("answers is no list with something in it")
    source = root_value.get("reference")
    return Reference(
        source if isinstance(source, str) else "",
        _texts(root_value.get("versions"), "versions"),
        tuple(_read(answer, f"answers[{index}]") for index, answer in enumerate(answers)),
        _texts(root_value.get("package"), "package"),
    )


def _written(answer: Answered) -> dict[str, Any]:
    tops = [
        [[other.token, round(other.logprob, _DIGITS)] for other in top if math.isfinite(other.logprob)]
        for top in answer.top
    ]
    return {"text": answer.text, "prompt": list(answer.prompt), "tokens": list(answer.tokens), "top": tops}


def _read(value: Any, where: str) -> Answered:
    entry = _mapping(value, where)
    prompt, tokens = (_ids(entry.get(key), f"{where}.{key}") for key in ("prompt", "tokens"))
    text, tops = entry.get("text"), entry.get("top")
    if not isinstance(text, str):
        raise _damaged(f"{where}.text is no text")
    if not isinstance(tops, list) or len(tops) not in (0, len(tokens)):
        raise _damaged(f"{where}.top is no list with an entry for each token")
    return Answered(text, prompt, tokens, tuple(_top(top, f"{where}.top[{place}]") for place, top in enumerate(tops)))


def _top(value: Any, where: str) -> Top:
    if not isinstance(value, list) or not 1 <= len(value) <= TOP or not all(map(_is_pair, value)):
        raise _damaged(f"{where} is no list of at most {TOP} pairs of token and log probability")
    return tuple(TokenLogprob(token, float(logprob)) for token, logprob in value)


def _is_pair(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not _is_id(value[0]):
        return False
    return isinstance(value[1], int | float) and not isinstance(value[1], bool) and -1e9 < value[1] <= 1e-3


def _ids(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(map(_is_id, value)):
        raise _damaged(f"{where} is no list of token ids")
    return tuple(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _texts(value: Any, where: str) -> Mapping[str, str]:
    entry = _mapping(value, where)
    if not all(isinstance(text, str) for text in entry.values()):
        raise _damaged(f"{where} has something that is no text")
    return entry


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _damaged(f"{where} is no JSON object")
    return value


def _damaged(what: str) -> ReferenceFileError:
    hint = "record it again: genai-pipeline verify PACKAGE --record --reference ..."
    return ReferenceFileError(f"{REFERENCE_FILE} cannot be used: {what}", hint=hint)
