"""Keys that a table may take for one although they are not the same text.

Which texts are equal is up to a collation, and there are hundreds. So more is taken for
alike here than any of them does: case, accents, strokes, ligatures, the two Japanese
syllabaries, characters without a width, spaces at the end, and all that lies beyond
the first 65,536 characters, which MySQL's older collations cannot tell apart.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_LETTERS = str.maketrans(
    {"ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ł": "l", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe",
     "þ": "th", "ĸ": "k", "ŋ": "n"}
)  # fmt: skip
_KATAKANA, _HIRAGANA = "\u30a1\u30f6", "\u3041"
_UNKNOWN = "\ufffd"
_S = re.compile("s+")  # a sharp s is one s or two


def folded(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """*key* so that all keys are equal which any collation may take for one."""
    return tuple([_bare(part) if isinstance(part, str) else part for part in key])


def _bare(text: str) -> str:
    text = text.casefold()
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_sign, unicodedata.normalize("NFKD", text)))
        text = text.translate(_LETTERS)
    return _S.sub("s", text).rstrip()


def _sign(sign: str) -> str:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cc", "Cf"):
        return ""
    if sign > "\uffff":
        return _UNKNOWN
    if _KATAKANA[0] <= sign <= _KATAKANA[1]:
        return chr(ord(sign) - ord(_KATAKANA[0]) + ord(_HIRAGANA))
    return sign.casefold()
