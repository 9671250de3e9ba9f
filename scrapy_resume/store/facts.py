"""Facts about the tables themselves, by name: their id, and who upgraded them last."""

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
    """The fact *name*, None if it is not known."""
    meta = db.tables.meta
    return conn.execute(select(meta.c.value).where(meta.c.name == name)).scalar()


def write(conn: Connection, db: Database, name: str, value: str) -> None:
    """Set the fact *name*."""
    meta = db.tables.meta
    if read(conn, db, name) is None:
        conn.execute(insert(meta).values(name=name, value=value))
    else:
        conn.execute(update(meta).where(meta.c.name == name).values(value=value))
