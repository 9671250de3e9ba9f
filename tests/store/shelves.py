"""A user's table, the writer that fills it, what it holds and what was refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scrapy_resume.store import checkpoints
from scrapy_resume.store.checkpoints import CommitResult
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from tests.store.worlds import World


@dataclass
class Shelf:
    """The table ``book`` with the columns of *create*, and rows for it."""

    world: World
    create: str
    key: tuple[str, ...] = ("isbn",)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mysql = self.world.db.dialect == "mysql"
        if mysql:
            self.world.sql("ALTER DATABASE CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
        words = {"{id}": "BIGINT" if mysql else "INTEGER", "{counted}": ""}
        words["{counted}"] = "AUTO_INCREMENT" if mysql else ""
        text = self.create
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        self.world.sql(f"CREATE TABLE book ({text})")
        self.writer = self.another()

    def another(self) -> ItemWriter:
        """A writer that has not seen the table yet."""
        return ItemWriter(self.world.db, [ItemTable("book", self.key, **self.options)])

    def row(self, **values: Any) -> Row:
        return Row("book", tuple(values.get(name) for name in self.key), values)

    def store(self, *items: dict[str, Any]) -> CommitResult:
        """Store *items* in one transaction."""
        rows = [self.row(**one) for one in items]
        return checkpoints.store_rows(self.world.db, rows, writer=self.writer)

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM book ORDER BY {', '.join(self.key)}"
        return [tuple(row) for row in self.world.sql(query)]

    def refused(self) -> list[tuple[Any, ...]]:
        """Key, error class, column and value of the refused rows."""
        query = "SELECT item_key, error_class, column_name, value FROM resume_quarantine"
        return [tuple(row) for row in self.world.sql(f"{query} ORDER BY id")]
