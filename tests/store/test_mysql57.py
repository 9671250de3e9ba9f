"""MySQL 5.7: enough for the pipeline alone. There is none to test on: the texts are looked at."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, String, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateIndex, CreateTable

from scrapy_resume.store import schema
from scrapy_resume.store.items.upserts import Rule, upsert

NEWER = re.compile(
    r"0900|SKIP LOCKED|NOWAIT|\bRETURNING\b|\bAS new\b|INVISIBLE|\bDEFAULT \(|JSON_TABLE|^WITH\b"
)


def dialect(*version: int) -> Any:
    made = mysql.dialect()
    made.server_version_info = version
    made._requires_alias_for_on_duplicate_key = version >= (8, 0, 20)
    return made


@pytest.mark.parametrize("version", [(5, 7, 44), (8, 0, 16)])
def test_tables_are_made_of_what_it_knows(version: tuple[int, ...]) -> None:
    tables = schema.build("resume_").metadata.sorted_tables
    made = [str(CreateTable(table).compile(dialect=dialect(*version))) for table in tables]
    made += [
        str(CreateIndex(index).compile(dialect=dialect(*version)))
        for table in tables
        for index in table.indexes
    ]
    assert [text for text in made if NEWER.search(text)] == []
    assert all("COLLATE utf8mb4_bin" in text for text in made if "CREATE TABLE" in text)


def test_newer_servers_compare_exactly() -> None:
    item = schema.build("resume_").item
    made = str(CreateTable(item).compile(dialect=dialect(8, 0, 17)))
    assert "item_key VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin" in made


@pytest.mark.parametrize("guard", [None, "seen"])
def test_upserts_are_made_of_what_it_knows(guard: str | None) -> None:
    table = Table("book", MetaData(), *(Column(name, String) for name in ("isbn", "title", "seen")))
    made = upsert("mysql", table, Rule(("isbn",), ("title", "seen"), guard))
    text = " ".join(str(made.compile(dialect=dialect(5, 7, 44))).split())
    assert "ON DUPLICATE KEY UPDATE" in text
    assert "VALUES(title)" in text
    assert not NEWER.search(text)


def test_keys_fit_into_an_index_of_5_7() -> None:
    """InnoDB's DYNAMIC format takes 3,072 bytes, 4 for a character."""
    for table in schema.build("resume_").metadata.sorted_tables:
        indexes = [list(table.primary_key.columns), *(list(i.columns) for i in table.indexes)]
        for columns in indexes:
            lengths = [getattr(column.type, "length", None) or 2 for column in columns]
            assert sum(lengths) * 4 <= 3072, (table.name, columns)
