"""The journal: a worker's own file of what the database does not hold yet.

This is what the rest of the package sees of it. Inside: the journal itself (``journal``), what it
holds as values (``contents``), its SQLite file (``file``) and how that is written (``writer``), and
what is done about a file that is not sound (``repair``, ``copying``), its log (``wal``) and the
files that lie ``beside`` it.
"""

from __future__ import annotations

from scrapy_resume.journal.beside import FOREIGN, REFUSED, aside_for, is_there
from scrapy_resume.journal.contents import Entry, Given
from scrapy_resume.journal.journal import Journal
from scrapy_resume.journal.repair import Damage

__all__ = [
    "FILE",
    "FOREIGN",
    "REFUSED",
    "Damage",
    "Entry",
    "Given",
    "Journal",
    "aside_for",
    "is_there",
]

FILE = "journal.db"  # in the slot's directory
