"""What can be wrong with the table itself and with its columns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import exact_collation
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import smallids
from scrapy_resume.store.items.findings import Finding, quoted
from scrapy_resume.store.items.table import ItemTable
from scrapy_resume.store.items.tablefacts import ColumnFacts, TableFacts
from scrapy_resume.store.items.targets import named


def missing_table(conn: Connection, db: Database, declared: ItemTable) -> Finding:
    """There is no such table: a sketch of the one that would do."""
    table = quoted(db.dialect, declared.name)
    columns = [f"{quoted(db.dialect, name)} VARCHAR(190) NOT NULL" for name in declared.key]
    more = [name for name in dict.fromkeys(named(declared)) if name not in declared.key]
    columns += [f"{quoted(db.dialect, name)} TEXT" for name in more]
    key = f", PRIMARY KEY ({quoted(db.dialect, *declared.key)})" if declared.key else ""
    exact = f" CHARACTER SET {_exact(conn)}" if db.dialect == "mysql" else ""
    mend = f"CREATE TABLE {table} ({', '.join(columns)}{key}){exact}" if columns else None
    return Finding("missing_table", declared.name, None, "it does not exist; create it first", mend)


def of_names(db: Database, declared: ItemTable, facts: TableFacts) -> Iterator[Finding]:
    """What makes every other question useless."""
    table = declared.name
    if facts.is_view:
        what = "it is a view, which cannot say whether a key is there; name its table instead"
        yield Finding("view", table, None, what)
    if not declared.key:
        which = [index.shown for index in facts.unique]
        hint = f"; its unique indexes are of ({'), ('.join(which)})" if which else ""
        yield Finding("no_key", table, None, f"its ItemTable names no key{hint}")
    for name in dict.fromkeys(named(declared)):
        column = facts.columns.get(name)
        if column is None:
            yield _missing_column(db, facts, name)
        elif column.generated:
            what = "the database generates its values, so that no item can set it"
            yield Finding("generated_column", table, name, what)


def of_columns(
    conn: Connection, db: Database, declared: ItemTable, facts: TableFacts
) -> Iterator[Finding]:
    """What may go wrong with single columns."""
    for name in declared.key:
        column = facts.columns.get(name)
        if column is not None and column.nullable and not column.generated:
            mend = _modify(conn, facts, name, of_key=True) if db.dialect == "mysql" else None
            what = "a key column must be NOT NULL, since rows without a key are never the same"
            yield Finding("nullable_key", facts.name, name, what, mend)
    for name, column in facts.columns.items():
        if column.charset not in (None, "utf8mb4", "binary", "utf16", "utf32", "utf16le"):
            what = f"{column.charset} cannot hold every character; what it cannot is rejected"
            # MODIFY would make an ordinary column of a generated one.
            can = not column.generated
            mend = _modify(conn, facts, name, of_key=name in declared.key) if can else None
            yield Finding("charset", facts.name, name, what, mend)
        if name in declared.key and column.collation:
            yield from _collation(conn, db, facts, column)
    yield from _small_id(facts)


def _missing_column(db: Database, facts: TableFacts, name: str) -> Finding:
    alike = [one for one in facts.columns if one.casefold() == name.casefold()]
    what = "there is no such column" + (f"; there is {alike[0]}" if alike else "")
    table, column = quoted(db.dialect, facts.name), quoted(db.dialect, name)
    kind = "TEXT CHARACTER SET utf8mb4" if db.dialect == "mysql" else "TEXT"
    mend = None if alike or facts.is_view else f"ALTER TABLE {table} ADD COLUMN {column} {kind}"
    return Finding("missing_column", facts.name, name, what, mend)


def _collation(
    conn: Connection, db: Database, facts: TableFacts, column: ColumnFacts
) -> Iterator[Finding]:
    collation = str(column.collation)
    exact = "bin" in collation.lower()
    can = db.dialect == "mysql" and collation != exact_collation(conn.dialect)
    can = can and not column.generated
    mend = _modify(conn, facts, column.name, of_key=True) if can else None
    if not exact:
        what = f"the collation {collation} takes different keys for one, as A and a"
        yield Finding("collation", facts.name, column.name, what, mend)
    elif collation.endswith("_bin") and not ("nopad" in collation or "0900" in collation):
        what = f"the collation {collation} takes keys that end in spaces for those without"
        yield Finding("padding", facts.name, column.name, what, mend)


def _small_id(facts: TableFacts) -> Iterator[Finding]:
    column = smallids.small_id(facts)
    if column is None:
        return
    last = smallids.last_id(column)
    what = f"every upsert may use up an id of {column.type}, which ends at {last}"
    what += f" and is at {facts.next_id or 1} now"
    table, name = quoted("mysql", facts.name), quoted("mysql", column.name)
    mend = f"ALTER TABLE {table} MODIFY {name} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
    yield Finding("small_id", facts.name, column.name, what, mend)


def _modify(conn: Connection, facts: TableFacts, name: str, *, of_key: bool) -> str:
    """The column as it is and of every character; one of the key also exact and never NULL.

    A key column may have several findings: whichever mend comes last mends them all.
    """
    column = facts.columns[name]
    text = f"ALTER TABLE {quoted('mysql', facts.name)} MODIFY {quoted('mysql', name)} {column.type}"
    if column.charset is not None:
        text += f" CHARACTER SET {_exact(conn) if of_key else 'utf8mb4'}"
    text += "" if column.nullable and not of_key else " NOT NULL"
    default = column.default
    if default is None or default.upper() == "NULL":
        return text
    plain = getattr(conn.dialect, "is_mariadb", False) or "(" in default
    escaped = default.replace("'", "''")
    return text + (f" DEFAULT {default}" if plain else f" DEFAULT '{escaped}'")


def _exact(conn: Connection) -> str:
    return f"utf8mb4 COLLATE {exact_collation(conn.dialect)}"
