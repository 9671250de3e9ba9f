"""The table ``meta``: what the tables say of themselves, by name: their id, who upgraded them."""

from __future__ import annotations

import secrets

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from scrapy_resume.store.engine import Database

PROTOCOL = "protocol"  # of what workers say to each other; never lowered
PACKAGE = "package"  # the version of scrapy_resume that upgraded the tables last
_ID = "database_id"


def database_id(db: Database) -> str:
    """The id of the tables, 12 hexadecimal digits: made once, the same for every process."""

    def work(conn: Connection) -> str:
        known = read(conn, db, _ID)
        if known is None:
            known = secrets.token_hex(6)  # inserted, since an id must never be changed
            conn.execute(insert(db.tables.meta).values(name=_ID, value=known))
        return known

    known = db.look(lambda conn: read(conn, db, _ID))
    while known is None:
        try:
            known = db.run(work)
        except IntegrityError:  # another process made it in this moment
            known = db.look(lambda conn: read(conn, db, _ID))
    return known


def read(conn: Connection, db: Database, name: str) -> str | None:
    """What is kept under *name*, None if nothing is."""
    table = db.tables.meta
    return conn.execute(select(table.c.value).where(table.c.name == name)).scalar()


def write(conn: Connection, db: Database, name: str, value: str) -> None:
    """Keep *value* under *name*."""
    table = db.tables.meta
    if read(conn, db, name) is None:
        conn.execute(insert(table).values(name=name, value=value))
    else:
        conn.execute(update(table).where(table.c.name == name).values(value=value))
