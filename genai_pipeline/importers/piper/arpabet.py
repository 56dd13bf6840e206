"""The phonemes of American English: ARPAbet's names, and how they are written in the IPA as espeak does.

Vowels carry a stress digit: 0 none, 1 primary, 2 secondary. espeak writes the mark right before the vowel, and some
vowels differ with their stress.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_CONSONANTS: Final = {
    "B": "b", "CH": "t\u0283", "D": "d", "DH": "\u00f0", "F": "f", "G": "\u0261", "HH": "h", "JH": "d\u0292", "K": "k",
    "L": "l", "M": "m", "N": "n", "NG": "\u014b", "P": "p", "R": "\u0279", "S": "s", "SH": "\u0283", "T": "t",
    "TH": "\u03b8", "V": "v", "W": "w", "Y": "j", "Z": "z", "ZH": "\u0292",
}  # fmt: skip
_VOWELS: Final = {  # with stress, and without where it differs
    "AA": ("\u0251\u02d0",), "AE": ("\u00e6",), "AH": ("\u028c", "\u0259"), "AO": ("\u0254\u02d0",),
    "AW": ("a\u028a",), "AY": ("a\u026a",), "EH": ("\u025b",), "ER": ("\u025c\u02d0", "\u025a"), "EY": ("e\u026a",),
    "IH": ("\u026a",), "IY": ("i\u02d0", "i"), "OW": ("o\u028a",), "OY": ("\u0254\u026a",), "UH": ("\u028a",),
    "UW": ("u\u02d0",),
}  # fmt: skip
_STRESS: Final = {"1": "\u02c8", "2": "\u02cc"}


def spellings() -> Iterator[tuple[str, str]]:
    """(ARPAbet symbol, IPA) of every phoneme; vowels also without a digit, which means no stress."""
    yield from _CONSONANTS.items()
    for name, forms in _VOWELS.items():
        for digit in ("", "0", "1", "2"):
            yield name + digit, _STRESS[digit] + forms[0] if digit in _STRESS else forms[-1]
