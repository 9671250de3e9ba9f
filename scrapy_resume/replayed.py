"""What a replay did, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    *pages* were committed with *items*; *rejected* rows went to quarantine. *stored* pages
    were in the database already, *held* ones are read again. Of lost pages some were
    *salvaged*, by which *inserted* items came into their tables, and some *dropped*. *unread*
    records could not be understood.
    """

    pages: int = 0
    items: int = 0
    rejected: int = 0
    stored: int = 0
    held: int = 0
    salvaged: int = 0
    inserted: int = 0
    dropped: int = 0
    unread: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        names = [one.name for one in fields(self)]
        return Replayed(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        parts = [f"{self.pages} page(s) with {self.items} item(s) committed"]
        for count, what in (
            (self.stored, "page(s) stored already"),
            (self.rejected, "row(s) in quarantine"),
            (self.held, "page(s) to be read again because of a row"),
            (self.salvaged, f"page(s) salvaged, with {self.inserted} new item(s)"),
            (self.dropped, "page(s) dropped, which nobody wants any more"),
            (self.unread, "record(s) not understood"),
        ):
            parts += [f"{count} {what}"] if count else []
        return ", ".join(parts)
