"""English numbers, amounts, ordinals and common abbreviations as words.

Rules are applied in the order of ``_RULES``, each to what the ones before have left. Numbers of more digits than
``_LARGEST`` are read digit by digit, as are those that begin with a zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GROUPS: Final = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_LARGEST: Final = 3 * len(_GROUPS)
_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_MONEY: Final = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "\u20ac": ("euro", "euros", "cent", "cents"),
    "\u00a3": ("pound", "pounds", "penny", "pence"),
}
_SHORT: Final = {
    "mr.": "mister",
    "mrs.": "missis",
    "ms.": "miz",
    "dr.": "doctor",
    "prof.": "professor",
    "jr.": "junior",
    "vs.": "versus",
    "etc.": "et cetera",
    "e.g.": "for example",
    "i.e.": "that is",
}
_SIGNS: Final = {"&": "and", "+": "plus", "=": "equals", "@": "at"}


def english(text: str) -> str:
    """The text with words for what is written in digits, signs and abbreviations."""
    for pattern, words in _RULES:
        text = pattern.sub(words, text)
    return text


def cardinal(digits: str) -> str:
    """A whole number without sign or commas."""
    if len(digits) > _LARGEST or (digits.startswith("0") and len(digits) > 1):
        return " ".join(_ONES[int(digit)] for digit in digits)
    value, parts = int(digits), []
    for group in _GROUPS:
        value, rest = divmod(value, 1000)
        if rest:
            parts.append(f"{_below_thousand(rest)} {group}".rstrip())
    return " ".join(reversed(parts)) or _ONES[0]


def ordinal(digits: str) -> str:
    """The place in an order: first, twenty second."""
    front, _, last = cardinal(digits).rpartition(" ")
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    place = _ORDINALS.get(last, regular)
    return f"{front} {place}".lstrip()


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    parts = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        parts.append(_TENS[rest // 10] + (f" {_ONES[rest % 10]}" if rest % 10 else ""))
    elif rest:
        parts.append(_ONES[rest])
    return " ".join(parts)


def _year(digits: str) -> str:
    """Four digits as two pairs: nineteen eighty four, nineteen hundred, nineteen oh five; two thousand seven."""
    century, rest = int(digits[:2]), int(digits[2:])
    if century % 10 == 0 and rest < 10:
        return cardinal(digits)
    if rest == 0:
        return f"{_below_thousand(century)} hundred"
    return f"{_below_thousand(century)} {'oh ' if rest < 10 else ''}{_below_thousand(rest)}"


def _amount(found: re.Match[str]) -> str:
    one, many, small_one, small_many = _MONEY[found["sign"]]
    whole, part, scale = _digits(found["whole"]), found["part"] or "", found["scale"]
    if scale:
        return f"{_decimal(whole, part)} {scale} {many}"
    if part and len(part) != 2:
        return f"{_decimal(whole, part)} {many}"
    said = [f"{cardinal(whole)} {one if int(whole) == 1 else many}"] if int(whole) or not int(part or 0) else []
    if int(part or 0):
        said.append(f"{cardinal(str(int(part)))} {small_one if int(part) == 1 else small_many}")
    return " and ".join(said)


def _decimal(whole: str, part: str) -> str:
    return f"{cardinal(whole)} point {' '.join(_ONES[int(d)] for d in part)}" if part else cardinal(whole)


def _digits(text: str) -> str:
    return text.replace(",", "")


_NUMBER: Final = r"\d{1,3}(?:,\d{3})+|\d+"
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
_RULES: Final[tuple[_Rule, ...]] = (
    (
        re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, _SHORT))})(?!\w)", re.IGNORECASE),
        lambda found: _SHORT[found.group().lower()],
    ),
    (re.compile(r"\bno\.\s?(?=\d)", re.IGNORECASE), lambda found: "number "),
    (
        re.compile(
            rf"(?P<sign>[$\u20ac\u00a3])(?P<whole>{_NUMBER})(?:\.(?P<part>\d+))?(?: (?P<scale>(?:m|b|tr)illion)\b)?"
        ),
        _amount,
    ),
    (re.compile(rf"({_NUMBER})(?:st|nd|rd|th)\b", re.IGNORECASE), lambda found: f" {ordinal(_digits(found[1]))} "),
    (re.compile(rf"({_NUMBER})\.(\d+)"), lambda found: f" {_decimal(_digits(found[1]), found[2])} "),
    (re.compile(r"(?<=\d)\s?%"), lambda found: " percent "),
    (re.compile(r"(?<![\w.,])[-\u2212](?=\d)"), lambda found: "minus "),
    (re.compile(r"(?<![\d,])(1[1-9]\d\d|20\d\d)(?![\d,]\d|\d)"), lambda found: f" {_year(found[1])} "),
    (re.compile(_NUMBER), lambda found: f" {cardinal(_digits(found.group()))} "),
    (re.compile("[&+=@]"), lambda found: f" {_SIGNS[found.group()]} "),
)
