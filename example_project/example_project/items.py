"""What the spiders collect. Text is exactly what the site serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Character:
    """A Unicode character; the last four fields come from its detail page."""

    code: str
    char: str
    name: str
    block: str
    category: str
    digit: int | None
    bidirectional: str | None = None
    combining: int | None = None
    mirrored: bool | None = None
    decomposition: str | None = None


@dataclass
class Book:
    """A book; *price* is the amount as text, so that no digit is lost."""

    upc: str
    title: str
    price: str
    currency: str
    availability: str
    stock: int
    rating: int
    url: str
