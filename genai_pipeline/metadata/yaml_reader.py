"""Reads one YAML 1.2 document into nodes that know their line, column and path; the only module that imports yaml.

Hostile files are ordinary input: size, depth, nodes, aliases and the lengths of keys are bounded before they can
cost time or memory, and every fault becomes a Problem with a place.

| bound | value |
|---|---|
| bytes of the file | 1 MiB |
| depth of nesting | 64 |
| nodes, with aliases expanded | 20 000 |
| aliases | 100 |
| characters of a key, of a path | 256, 2048 |
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.yaml_tree import StopReadingError, TreeBuilder
from genai_pipeline.problems import Location, Problem, Problems

MAX_BYTES: Final = 1 << 20

# What YAML does not allow in a document, and what only YAML 1.1 counts as line breaks (lines would disagree).
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]")
_LINE_BREAK = re.compile("\r\n|\r|\n")
_ARCHIVE: Final = b"PK\x03\x04"  # how zip files start, which archives of packages are
_BOM: Final = "\ufeff"

_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")  # refused like all tags, but the value is clearly meant as text

# What PyYAML says -> what a person can act on: (a piece of its message, message, hint).
_CLEARER: Final = (
    ("mapping values are not allowed here", "a ':' is not allowed here", "put a value that has ': ' in it in quotes"),
    ("could not find expected ':'", "a ':' is missing after this key", "write 'key: value'"),
    ("found unexpected end of stream", "the quoted text is never closed", "add the closing quote"),
    ("but found '<block mapping start>'", "the indentation fits no level above", "align it with its neighbours"),
    ("but found '<block sequence start>'", "the indentation fits no level above", "align it with its neighbours"),
    ("but found '?'", "a list and a mapping are mixed at one level", "indent one of them"),
    ("but found '-'", "a list and a mapping are mixed at one level", "indent one of them"),
    ("expected ',' or ']'", "the list in [ ] is not closed, or a ',' is missing", "add ',' or ']'"),
    ("expected ',' or '}'", "the mapping in { } is not closed, or a ',' is missing", "add ',' or '}'"),
    ("that cannot start any token", "this character cannot start a value", "put the value in quotes"),
)


def read(path: Path, *, name: str = "") -> tuple[Node | None, list[Problem]]:
    """The document of a file and every problem found; no document when reading had to stop.

    ``name`` is the file as problems show it, where that is not the path read.
    """
    problems = Problems()
    name = name or str(path)
    text = _read_text(path, name, problems)
    return (None if text is None else _tree(text, name, problems)), list(problems)


def read_text(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """Like ``read``, for text that is in memory; ``file`` is the name problems carry."""
    problems = Problems()
    return _tree(text, file, problems), list(problems)


def _read_text(path: Path, name: str, problems: Problems) -> str | None:
    """The file's text, if it is a regular file of bounded size in UTF-8."""
    whole = Location(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            problems.error(whole, "yaml.unreadable", "not a regular file")
            return None
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "its name is not valid"
        problems.error(whole, "yaml.unreadable", f"cannot be read: {reason}")
        return None
    if data.startswith(_ARCHIVE):
        hint = f"genai-pipeline unpack {name} first, and name the folder that it makes"
        problems.error(whole, "yaml.unreadable", "is an archive, not a metadata file", hint)
        return None
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES} bytes"
        problems.error(whole, "yaml.size", message, "keep tables and vocabularies in data files")
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        problems.error(_place(before, name), "yaml.encoding", message, "save the file as UTF-8")
        return None


def _place(before: str, file: str) -> Location:
    """The line and column right after some text."""
    breaks = list(_LINE_BREAK.finditer(before))
    start = breaks[-1].end() if breaks else 0
    return Location(file, len(breaks) + 1, len(before) - start + 1)


def _tree(text: str, file: str, problems: Problems) -> Node | None:
    text = text.removeprefix(_BOM)
    refused = _REFUSED.search(text)
    if refused:
        at = _place(text[: refused.start()], file)
        name = f"U+{ord(refused.group()):04X}"
        hint = "write it as an escape in double quotes, or remove it"
        problems.error(at, "yaml.character", f"the character {name} is not allowed", hint)
        return None
    builder = TreeBuilder(file, problems)
    try:
        for event in _events(text, file, problems):
            _feed(builder, event)
    except StopReadingError:
        return builder.root if builder.complete else None
    if builder.root is None and not problems.failed:
        problems.error(Location(file, 1, 1), "yaml.empty", "the file holds no document")
    return builder.root


def _events(text: str, file: str, problems: Problems) -> Iterator[yaml.Event]:
    """PyYAML's events, one at a time so that bounds hold while reading; raises StopReadingError after a fault."""
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_event():
            yield loader.get_event()  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        _report_syntax(error, file, problems)
        raise StopReadingError from None
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" that is no character
        at = Location(file, loader.line + 1, loader.column + 1)
        problems.error(at, "yaml.syntax", "the escape is no Unicode character")
        raise StopReadingError from None
    finally:
        loader.dispose()


def _report_syntax(error: yaml.MarkedYAMLError, file: str, problems: Problems) -> None:
    mark = error.problem_mark or error.context_mark
    at = Location(file, mark.line + 1, mark.column + 1) if mark else Location(file, 1, 1)
    said = str(error.problem or error.context or "syntax error")
    if "'\\t' that cannot start any token" in said:
        problems.error(at, "yaml.tab", "a tab stands where YAML takes only spaces", "indent and align with spaces")
        return
    known = next(((message, hint) for piece, message, hint in _CLEARER if piece in said), None)
    message, hint = known or (said, "")
    start = error.context_mark
    if start and start.line + 1 < at.line and "closed" in message:
        message += f" (it starts on line {start.line + 1})"
    problems.error(at, "yaml.syntax", message, hint)


def _feed(builder: TreeBuilder, event: yaml.Event) -> None:
    """Hand one event to the builder, free of PyYAML's types."""
    mark = event.start_mark
    assert mark is not None  # events of a parser have their place
    line, column = mark.line + 1, mark.column + 1
    match event:
        case yaml.DocumentStartEvent():
            builder.document(line, column, event.version)
        case yaml.AliasEvent():
            builder.alias(line, column, str(event.anchor))
        case yaml.ScalarEvent():
            plain = event.style is None and event.tag not in _TEXT_TAGS
            builder.scalar(line, column, event.value, plain=plain, anchor=event.anchor, tag=event.tag)
        case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            builder.open(line, column, is_mapping=is_mapping, anchor=event.anchor, tag=event.tag)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            builder.close()
        case _:
            pass  # stream and document ends carry nothing


__all__ = ["MAX_BYTES", "Node", "read", "read_text"]
