"""Patterns against Python's re: the same whole texts over an alphabet, and nothing that re would not take."""

from __future__ import annotations

import itertools
import re

import pytest

from genai_pipeline.constraints.patterns import PatternError, found_anywhere, full_match
from genai_pipeline.errors import ConstraintError

ALPHABET = "ab1_ -"

PATTERNS = [
    "a",
    "a|b",
    "ab*",
    "a+b?",
    "(?:a|b){2}",
    "(a)(b)?",
    "(?P<x>a)b",
    "(?<x>a)b",
    "[ab]{1,3}",
    "[^a]",
    "[a-b1]+",
    "[-a]",
    "[a-]",
    "[a\\-b]",
    r"\d",
    r"\w+",
    r"\s",
    r"\D",
    r"\W",
    r"\S{2}",
    r"[\w-]",
    r"[^\w]",
    r"[^\W]",
    r"[\d\s]",
    "a.b",
    ".{0,2}",
    "a*?b",
    "a{2}",
    "a{1,}",
    "a{0}b",
    "a{,2}",
    "^ab$",
    "^a|b$",
    "|a",
    "(|a)b",
    r"\x61\u0062",
    r"a\-b",
    "(a|(b|1)+)_",
]


def texts(most: int):
    for length in range(most + 1):
        yield from map("".join, itertools.product(ALPHABET, repeat=length))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_regex_takes_exactly_what_fullmatch_takes(bench, pattern):
    taken = {text for text in texts(4) if reached(bench, pattern, text)}
    python = pattern.replace("(?<", "(?P<")
    assert taken == {text for text in texts(4) if re.fullmatch(without_counts_from_nothing(python), text)}


def without_counts_from_nothing(pattern: str) -> str:
    """In ECMAScript, and so here, {,2} is text."""
    return pattern.replace("{,2}", r"\{,2\}")


_STATES: dict[str, object] = {}


def reached(bench, pattern: str, text: str) -> bool:
    """Whether a text is a whole answer, by a matcher that is copied at the start."""
    constraint = _STATES.setdefault(pattern, bench.compiler.compile(bench.spec({"regex": pattern})))
    matcher = constraint.start_matcher.copy()
    tokens = bench.tokenizer.encode_text(text, allow_special=False)
    return all(matcher.consume(token) for token in tokens) and matcher.accepts_end()


@pytest.mark.parametrize(
    "pattern", [r"\W{3}", r"[^a-z]{3}", r"\S\D\S", r".{3}", r"[^\d\s]{3}", "é|[α-ω]+|😀?", r"[\W\d]{2}"]
)
def test_random_unicode_outputs_match(bench, pattern):
    constraint = bench.compiler.compile(bench.spec({"regex": pattern}))
    for seed in range(200):
        tokens, ended = bench.run(constraint.start(), seed, 60)
        if ended:
            assert re.fullmatch(pattern, bench.text(tokens))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "no end"),
        (")", "without its ("),
        ("[a", "ends where ]"),
        ("[]", "without characters"),
        ("*a", "nothing to repeat"),
        ("{2}", "nothing to repeat"),
        ("a**", "repetition of a repetition"),
        ("a++", "repetition of a repetition"),
        ("a{3,1}", "wrong way round"),
        ("a{100001}", "counted up to"),
        ("a\\", "ends where a character"),
        ("(?=a)", "lookahead"),
        ("(?!a)", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        ("(?>a)", "atomic"),
        ("(?i)a", "flags"),
        ("(?i:a)", "flags"),
        ("(?#x)", "comment"),
        (r"(a)\1", "back reference"),
        (r"(?P<n>a)(?P=n)", "back reference"),
        (r"\bword", "word boundary"),
        (r"\p{L}", "Unicode property"),
        (r"\q", "escape"),
        (r"\x6", "number of a character"),
        (r"\ud800", "number of a character"),
        ("a^b", "^ may stand only"),
        ("a$b", "$ may stand only"),
        ("(^a)", "^ may stand only"),
        ("(a$)", "$ may stand only"),
        ("[z-a]", "to a later one"),
        (r"[\d-z]", "to a later one"),
        ("[[:alpha:]]", "named classes"),
    ],
)
def test_what_is_not_shared_is_refused_by_name(bench, pattern, why):
    for read in (full_match, found_anywhere):
        with pytest.raises(PatternError, match=re.escape(why)):
            read(pattern)
    with pytest.raises(ConstraintError, match=re.escape(why)) as caught:
        bench.start({"regex": pattern})
    assert caught.value.param == "regex"


def test_the_place_of_a_fault_is_counted_in_characters():
    with pytest.raises(PatternError, match="at character 4"):
        full_match("é{1}(?=a)")
