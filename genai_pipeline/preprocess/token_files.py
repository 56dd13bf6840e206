"""The JSON files that lie beside a tokenizer and what they declare: special tokens, end tokens, chat templates.

``special_tokens_map.json``, ``tokenizer_config.json`` and ``generation_config.json`` come with most published models.
Only what is read here counts; later files in ``_SOURCES`` win over earlier ones for texts, end tokens are united.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from genai_pipeline.metadata.paths import check_inside
from genai_pipeline.problems import Location, Problems

TOKENIZER_CONFIG = "tokenizer_config.json"
_SOURCES = ("special_tokens_map.json", TOKENIZER_CONFIG)
_TEXT_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MAX_BYTES = 64 << 20  # a tokenizer_config.json that lists its added tokens reaches a few MB


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """What the files beside a tokenizer declare; empty where there are none."""

    texts: Mapping[str, str] = field(default_factory=dict)  # bos_token, eos_token, ... as transformers names them
    end_texts: tuple[str, ...] = ()
    end_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    config: Mapping[str, Any] = field(default_factory=dict)  # tokenizer_config.json as it is


def read_json_object(root: Path, relative: str, named_in: Location, problems: Problems) -> dict[str, Any] | None:
    """A JSON object from a file of the package; None when the file is not there, a problem when it is not usable."""
    at = place_in(named_in, relative)
    if not os.path.lexists(root / relative):
        return None
    file = check_inside(root, relative, at, problems)
    if file is None:
        return None
    if file.stat().st_size > _MAX_BYTES:
        problems.error(at, "tokenizer.file", f"{relative} is larger than {_MAX_BYTES >> 20} MiB")
        return None
    try:
        value = json.loads(file.read_bytes())
    except json.JSONDecodeError as error:
        spot = Location(at.file, error.lineno, error.colno)
        problems.error(spot, "tokenizer.file", f"{relative} is not valid JSON: {error.msg}", "fetch the file again")
        return None
    except (OSError, ValueError, RecursionError) as error:
        problems.error(at, "tokenizer.file", f"{relative} cannot be read as JSON: {error}", "fetch the file again")
        return None
    if not isinstance(value, dict):
        problems.error(at, "tokenizer.file", f"{relative} must hold a JSON object, not a {type(value).__name__}")
        return None
    return value


def read_token_files(root: Path, tokenizer: str, named_in: Location, problems: Problems) -> TokenFiles:
    """Read the files beside a tokenizer's own; whatever is wrong with one becomes a problem."""
    texts: dict[str, str] = {}
    ends: list[str] = []
    config: dict[str, Any] = {}
    for name in _SOURCES:
        found = read_json_object(root, beside(tokenizer, name), named_in, problems)
        if found is None:
            continue
        texts.update({key: text for key in _TEXT_NAMES if (text := _text(found.get(key))) is not None})
        ends.extend(text for item in _as_list(found.get("eos_token")) if (text := _text(item)) is not None)
        config = found if name == TOKENIZER_CONFIG else config
    generation = read_json_object(root, beside(tokenizer, "generation_config.json"), named_in, problems) or {}
    end_ids = tuple(item for item in _as_list(generation.get("eos_token_id")) if isinstance(item, int))
    add_bos = config.get("add_bos_token")
    return TokenFiles(
        texts=texts,
        end_texts=tuple(dict.fromkeys(ends)),
        end_ids=end_ids,
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        config=config,
    )


def beside(file: str, name: str) -> str:
    """The path of a file in the folder of another, relative to the package."""
    return PurePosixPath(file).with_name(name).as_posix()


def place_in(named_in: Location, relative: str) -> Location:
    """A file of the package as a place, written like the metadata file that names it."""
    return Location(str(Path(named_in.file).parent / relative))


def _text(value: Any) -> str | None:
    """A token's text: a string, or an added token object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
