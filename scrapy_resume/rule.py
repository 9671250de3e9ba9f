"""What one setting may hold, and how its value is read from text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrapy_resume.exceptions import ConfigurationError


class Switch:
    """The kind of a setting that is true, false, or ``auto``: as the rest suggests."""


@dataclass(frozen=True)
class Rule:
    """What one setting may hold.

    *kind* is what its value is read as: bool, int, float, str, tuple (of texts), frozenset (of
    numbers), Path, dict
    (of any values), :class:`Switch`, or object for a class or its import path. *low* and *high* are
    inclusive. *secret* values appear in no message and no repr.
    """

    kind: type
    meaning: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    allowed: str = ""
    default_text: str = ""
    secret: bool = False

    @property
    def allowed_text(self) -> str:
        """What is allowed, in words."""
        if self.allowed or self.choices:
            return self.allowed or "one of " + ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            noun = "a whole number" if self.kind is int else "a number"
            return f"{noun} from {self.low:.12g} to {self.high:.12g}"
        words = {bool: "true or false", Switch: "true, false or auto", Path: "a directory"}
        return words.get(self.kind, "text")

    def read(self, name: str, value: Any) -> Any:
        """*value* as this kind. Raises ConfigurationError naming *name* and what is allowed."""
        try:
            result = _READERS[self.kind](value)
            if self._fits(result):
                return result
        except (TypeError, ValueError):
            pass
        shown = "not valid" if self.secret else repr(value)[:200]
        raise ConfigurationError(f"{name} is {shown}; allowed is {self.allowed_text}")

    def _fits(self, value: Any) -> bool:
        if self.low is not None and self.high is not None:
            return math.isfinite(value) and self.low <= value <= self.high
        if self.pattern is not None:
            return re.fullmatch(self.pattern, value) is not None
        return not self.choices or value in self.choices


def setting(default: Any, meaning: str, *, kind: type | None = None, **rest: Any) -> Any:
    """Declare a dataclass field with its :class:`Rule`; the kind defaults to the default's."""
    rule = Rule(kind or type(default), meaning, **rest)
    return field(default=default, repr=not rule.secret, metadata={"rule": rule})


def seconds(default: float, meaning: str, low: float, high: float) -> Any:
    """Declare a length of time."""
    return setting(default, meaning, unit="seconds", low=low, high=high)


def number(default: int, meaning: str, unit: str, low: int, high: int) -> Any:
    """Declare a count of *unit*."""
    return setting(default, meaning, unit=unit, low=low, high=high)


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True}
_BOOLEANS |= {"0": False, "false": False, "no": False, "off": False}


def _read_bool(value: Any) -> bool:
    if not isinstance(value, (int, str)):
        raise TypeError
    try:
        return _BOOLEANS[str(value).strip().lower()]
    except KeyError:
        raise ValueError from None


def _read_switch(value: Any) -> bool | str:
    return "auto" if str(value).strip().lower() == "auto" else _read_bool(value)


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return float(value)


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    """A comma-separated text, or any collection of texts; empty ones are left out."""
    parts = value.split(",") if isinstance(value, str) else [_read_text(part) for part in value]
    return tuple(stripped for part in parts if (stripped := part.strip()))


def _read_numbers(value: Any) -> frozenset[int]:
    """A comma-separated text, or any collection of whole numbers."""
    parts = value.split(",") if isinstance(value, str) else value
    return frozenset(_read_int(part) for part in parts if part != "")


def _read_mapping(value: Any) -> Mapping[Any, Any]:
    """A mapping as it is, a JSON object as text, or a text such as ``a=b, c=d``."""
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        pairs = (part.partition("=") for part in _read_texts(value))
        return {_given(name): _given(what) for name, _, what in pairs}
    read = json.loads(value) if isinstance(value, str) else value
    if not isinstance(read, Mapping):
        raise TypeError
    return read


def _given(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


def _read_component(value: Any) -> Any:
    if not isinstance(value, (str, type)):
        raise TypeError
    return value


_READERS: dict[type, Callable[[Any], Any]] = {
    bool: _read_bool,
    Switch: _read_switch,
    int: _read_int,
    float: _read_float,
    str: _read_text,
    tuple: _read_texts,
    frozenset: _read_numbers,
    Path: Path,
    dict: _read_mapping,
    object: _read_component,
}
