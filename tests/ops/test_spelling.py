"""English numbers, amounts, ordinals and abbreviations as words."""

from __future__ import annotations

import pytest

from genai_pipeline.ops.spelling import cardinal, english, ordinal


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 7 12 13 20 21 99", "zero seven twelve thirteen twenty twenty one ninety nine"),
        ("100 101 112 999", "one hundred one hundred one one hundred twelve nine hundred ninety nine"),
        ("1,000,000 and 10,001", "one million and ten thousand one"),
        ("3.14 of 0.5", "three point one four of zero point five"),
        ("-5 but 3-4", "minus five but three - four"),
        ("in 1984, 1900, 1905, 2000, 2007 and 2019", "in nineteen eighty four , nineteen hundred , nineteen oh five ,"
         " two thousand , two thousand seven and twenty nineteen"),
        ("007", "zero zero seven"),
        ("$1", "one dollar"),
        ("$1,250.75", "one thousand two hundred fifty dollars and seventy five cents"),
        ("$0.01 £5.10 €2", "one cent five pounds and ten pence two euros"),
        ("$2.5 million", "two point five million dollars"),
        ("50% off", "fifty percent off"),
        ("the 1st, 2nd, 3rd, 12th, 20th and 101st", "the first , second , third , twelfth , twentieth and"
         " one hundred first"),
        ("Mr. Smith, Dr. No & Mrs. Lee", "mister Smith, doctor No and missis Lee"),
        ("No. 5? No. Never.", "number five ? No. Never."),
        ("e.g. this, i.e. that", "for example this, that is that"),
        ("nothing to do", "nothing to do"),
    ],
)  # fmt: skip
def test_what_is_written_in_digits_and_signs_is_spelled_out(text: str, words: str) -> None:
    assert " ".join(english(text).split()) == words


def test_cardinals_say_what_they_count() -> None:
    """Read back with an independent rule: the words of a number below a million add up to it."""
    values = {cardinal(str(n)): n for n in range(20)} | {cardinal(str(n)): n for n in range(20, 100, 10)}
    for number in (*range(1200), 12345, 99999, 100000, 654321, 999999):
        total = current = 0
        for word in cardinal(str(number)).split():
            if word == "thousand":
                total, current = current * 1000, 0
            else:
                current = current * 100 if word == "hundred" else current + values[word]
        assert total + current == number


def test_numbers_that_are_too_long_are_read_digit_by_digit() -> None:
    assert cardinal("1" * 19) == " ".join(["one"] * 19)
    assert cardinal("1" + "0" * 17) == "one hundred quadrillion"


@pytest.mark.parametrize(
    ("digits", "word"),
    [("1", "first"), ("8", "eighth"), ("9", "ninth"), ("40", "fortieth"), ("1000", "one thousandth")],
)
def test_ordinals(digits: str, word: str) -> None:
    assert ordinal(digits) == word
