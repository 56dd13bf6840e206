r"""Regular expressions: read in a syntax that Python and ECMAScript share, written for the grammar library.

What the two read differently is narrowed to what both accept, so that ``re`` and a browser agree about every output:
``\d``, ``\w`` and ``\s`` are ASCII, and ``\D``, ``\W``, ``\S`` and negated classes leave out what is a digit, word
character or space to either; ``.`` is no line end of any kind. Anchors may stand only at the ends of the whole pattern
or of an alternative at its top. Lookaround, back references, flags and word boundaries are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

MAX_LENGTH: Final = 65_536  # characters of a pattern
MAX_REPEAT: Final = 100_000  # of a counted repetition
MAX_GROUPS: Final = 32  # inside each other

# class -> (what both libraries take for it, what either takes for it), as inner text of a class
_DIGIT = ("0-9", r"\p{Nd}")
_WORD = ("0-9A-Za-z_", r"\p{Alphabetic}\p{M}\p{N}\p{Pc}\x{200C}\x{200D}")
_SPACES = r"\x{85}\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_SPACE = (r"\t-\r\x{20}", rf"\t-\r\x{{1C}}-\x{{20}}{_SPACES}")
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_DOT: Final = r"[^\n\r\x{2028}\x{2029}]"
_ANYTHING: Final = r"(?:.|\n)*"
_MOST_DIGITS: Final = 18  # more than any count that is allowed
_QUANTIFIER: Final = re.compile(r"[*+?]|\{(\d+)(,?)(\d*)\}", re.ASCII)
_PUNCTUATION: Final = re.compile(r"[^\w\s]", re.ASCII)
_REFUSED: Final = {
    "(?=": "lookahead",
    "(?!": "lookahead",
    "(?<=": "lookbehind",
    "(?<!": "lookbehind",
    "(?>": "an atomic group",
    "(?P=": "a back reference",
    "(?(": "a conditional group",
    "(?#": "a comment",
}


class PatternError(ValueError):
    """A pattern that cannot be read or enforced; the message says what and at which character."""


@dataclass(frozen=True, slots=True)
class _Alternative:
    """One alternative at the top of a pattern, in the grammar library's syntax."""

    text: str
    starts: bool  # with ^
    ends: bool  # with $


def full_match(pattern: str) -> str:
    """The pattern of whole texts that ``re.fullmatch`` accepts. Raises PatternError."""
    return "|".join(alternative.text for alternative in _Reader(pattern).read())


def found_anywhere(pattern: str) -> str:
    """The pattern of whole texts in which ``re.search`` finds the pattern, anchored. Raises PatternError."""

    def whole(alternative: _Alternative) -> str:
        before, after = ("" if bound else _ANYTHING for bound in (alternative.starts, alternative.ends))
        return f"{before}(?:{alternative.text}){after}"

    return f"^(?:{'|'.join(map(whole, _Reader(pattern).read()))})$"


def literal(text: str) -> str:
    """The pattern of one text."""
    return "".join(map(_character, text))


def _count(digits: str | None) -> int:
    """The number of repetitions; Python reads no number of thousands of digits, and beyond some all are too many."""
    return int((digits or "0").lstrip("0")[:_MOST_DIGITS] or 0)


def _character(character: str) -> str:
    """A character as the grammar library reads it, anywhere in a pattern."""
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{{{ord(character):X}}}"


class _Reader:
    """Reads one pattern from left to right by recursive descent."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_LENGTH:
            raise PatternError(f"has {len(pattern)} characters, at most {MAX_LENGTH} are read")
        self._pattern = pattern
        self._at = 0
        self._groups = 0

    def read(self) -> list[_Alternative]:
        """The alternatives at the top of the pattern."""
        alternatives = [self._alternative()]
        while self._take("|"):
            alternatives.append(self._alternative())
        if self._at < len(self._pattern):
            self._fail("there is a ) without its (")
        return alternatives

    def _alternative(self) -> _Alternative:
        starts = self._take("^")
        text = self._sequence()
        ends = self._take("$")
        if ends and self._peek() not in ("", "|"):
            self._fail("$ may stand only at the end of the pattern or of an alternative at its top", back=1)
        return _Alternative(text, starts, ends)

    def _sequence(self) -> str:
        parts = []
        while self._peek() not in ("", "|", ")", "$"):
            parts.append(self._quantified())
        return "".join(parts)

    def _quantified(self) -> str:
        atom = self._atom()
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            return atom
        self._check_counts(found)
        self._at = found.end()
        self._take("?")  # lazy or not, the whole text is the same
        if self._peek() == "+" or _QUANTIFIER.match(self._pattern, self._at):
            self._fail("a repetition of a repetition is not supported; put the inner one into a group")
        return f"(?:{atom}){found.group()}"

    def _check_counts(self, found: re.Match[str]) -> None:
        low, _, high = found.groups()
        if any(_count(digits) > MAX_REPEAT for digits in (low, high)):
            self._fail(f"repetitions are counted up to {MAX_REPEAT}")
        if high and _count(high) < _count(low):
            self._fail(f"the repetition {found.group()} has its bounds the wrong way round")

    def _atom(self) -> str:
        character = self._next()
        special: dict[str, Callable[[], str]] = {
            "(": self._group,
            "[": self._class,
            "\\": self._escape,
            ".": lambda: _DOT,
        }
        if character in special:
            return special[character]()
        if character == "^":
            self._fail("^ may stand only at the start of the pattern or of an alternative at its top", back=1)
        if character in "*+?":
            self._fail(f"there is nothing to repeat by {character}", back=1)
        if character == "{" and _QUANTIFIER.match(self._pattern, self._at - 1):
            self._fail("there is nothing to repeat by the counts", back=1)
        return _character(character)

    def _group(self) -> str:
        for opening, name in _REFUSED.items():
            if self._pattern.startswith(opening, self._at - 1):
                self._fail(f"{name} is not supported", back=1)
        if self._peek() == "?":
            named = re.compile(r"\?(?::|P?<[A-Za-z_]\w*>)").match(self._pattern, self._at)
            if named is None:
                self._fail("flags and this kind of group are not supported", back=1)
            self._at = named.end()
        self._groups += 1
        if self._groups > MAX_GROUPS:
            self._fail(f"groups nest deeper than {MAX_GROUPS}")
        alternatives = [self._sequence()]
        while self._take("|"):
            alternatives.append(self._sequence())
        if self._peek() == "$":
            self._fail("$ may stand only at the end of the pattern or of an alternative at its top")
        if not self._take(")"):
            self._fail("a group has no end")
        self._groups -= 1
        return f"(?:{'|'.join(alternatives)})"

    def _escape(self) -> str:
        letter = self._next("\\")
        if letter.lower() in _CLASSES:
            narrow, wide = _CLASSES[letter.lower()]
            return f"[{narrow}]" if letter.islower() else f"[^{wide}]"
        return _character(self._escaped(letter))

    def _escaped(self, letter: str) -> str:
        """The character that an escape stands for."""
        if letter in _CONTROLS and not (letter == "0" and self._peek().isdigit()):
            return _CONTROLS[letter]
        if letter in ("x", "u"):
            digits = self._pattern[self._at : self._at + (2 if letter == "x" else 4)]
            if not re.fullmatch(r"[0-9A-Fa-f]{2}|[0-9A-Fa-f]{4}", digits) or 0xD800 <= int(digits, 16) < 0xE000:
                self._fail(f"\\{letter} needs the number of a character", back=2)
            self._at += len(digits)
            return chr(int(digits, 16))
        if _PUNCTUATION.fullmatch(letter) and letter.isascii():
            return letter
        names = {"b": "a word boundary", "B": "a word boundary", "p": "a Unicode property", "P": "a Unicode property"}
        name = names.get(letter, "a back reference" if letter.isdigit() or letter == "k" else f"the escape \\{letter}")
        self._fail(f"{name} is not supported", back=2)

    def _class(self) -> str:
        negated = self._take("^")
        if self._peek() == "]":
            self._fail("a class without characters is not supported", back=1)
        parts = []
        while not self._take("]"):
            parts.append(self._class_item(negated))
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _class_item(self, negated: bool) -> str:
        low = self._class_end(negated)
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return low if len(low) > 1 else _character(low)
        self._at += 1
        high = self._class_end(negated)
        if len(low) > 1 or len(high) > 1 or ord(low) > ord(high):
            self._fail("a range in a class goes from a character to a later one", back=1)
        return f"{_character(low)}-{_character(high)}"

    def _class_end(self, negated: bool) -> str:
        """One character of a class, or the inner text of a class within it, which is longer."""
        character = self._next("]")
        if character != "\\":
            if character == "[" and self._peek() in (":", "."):
                self._fail("named classes are not supported", back=1)
            return character
        letter = self._next("\\")
        if letter.lower() not in _CLASSES:
            return self._escaped(letter)
        narrow, wide = _CLASSES[letter.lower()]
        if letter.islower():
            return wide if negated else narrow
        return f"[^{narrow if negated else wide}]"

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        taken = self._peek() == character
        self._at += taken
        return taken

    def _next(self, wanted: str = "") -> str:
        character = self._peek()
        if not character:
            self._fail(f"it ends where {'a character' if wanted == chr(92) else wanted} should follow")
        self._at += 1
        return character

    def _fail(self, why: str, back: int = 0) -> NoReturn:
        raise PatternError(f"at character {max(self._at - back, 0)}: {why}")
