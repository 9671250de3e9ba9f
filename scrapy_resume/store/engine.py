"""One database: its engine, its connections and everything that differs by dialect.

SQLite begins every write with BEGIN IMMEDIATE, since a deferred transaction that
reads and then writes fails at once whatever the timeout. MySQL and MariaDB run at
READ COMMITTED: under REPEATABLE READ an open claim blocks the insertion of shards.
Every session speaks UTC, utf8mb4 and strict mode whatever the server's defaults,
and every wait on the network has an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import QueuePool

from scrapy_resume import clock
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import accesspath, address, connections, schema
from scrapy_resume.store.connections import STATEMENT_BYTES
from scrapy_resume.store.cutoff import Cutoff
from scrapy_resume.store.repeats import ATTEMPTS, Repeats

T = TypeVar("T")

NETWORK_TIMEOUT = 15.0  # seconds without an answer until a connection counts as dead
_MARIADB, _MYSQL = (10, 6), (8, 0, 17)  # the first with SKIP LOCKED and an exact collation
_STATEMENT_TEXT = 8192  # bytes of a statement besides its values


class Database:
    """One database, reached lazily by at most *max_connections* connections."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        self.engine = engine
        self.prefix = prefix
        self.dialect = "sqlite" if engine.dialect.name == "sqlite" else "mysql"
        self.tables = schema.build(prefix)
        self.redacted_url = address.redacted(engine.url)
        self.statement_bytes = STATEMENT_BYTES
        self.row_bytes: int | None = None  # what the server takes in one packet
        self.statements: dict[str, Any] = {}  # built once each
        self.deadline = math.inf  # monotonic; after it no transaction is repeated
        self._writer = engine.execution_options(resume_begin="BEGIN IMMEDIATE")
        self._reader = engine.execution_options(resume_begin="BEGIN")
        self._cutoff = Cutoff(engine)
        connections.listen(engine, self._fit_packet)
        accesspath.enable(engine)

    @classmethod
    def connect(
        cls,
        url: str | URL,
        *,
        prefix: str = "resume_",
        max_connections: int = 2,
        network_timeout: float = NETWORK_TIMEOUT,
    ) -> Database:
        """Describe the database at *url*; nothing is sent yet.

        Raises ConfigurationError for a URL that cannot work. *network_timeout* is
        in seconds; migrations need a longer one.
        """
        parsed = address.parse(url)
        engine = create_engine(
            parsed,
            hide_parameters=True,
            poolclass=QueuePool,
            pool_size=max_connections,
            max_overflow=0,
            pool_timeout=address.BUSY_TIMEOUT,
            pool_use_lifo=True,
            pool_reset_on_return=None,  # transaction() and read() always end theirs
            # Positional, so that a row of many is a tuple; SQLite's driver is so by itself.
            **({} if parsed.get_backend_name() == "sqlite" else {"paramstyle": "format"}),
            connect_args=address.connect_args(parsed, network_timeout),
        )
        return cls(engine, prefix)

    @property
    def address(self) -> str:
        """What tells it from others before it was asked for its id; holds no secret."""
        return address.digest(self.engine.url, self.prefix)

    def __repr__(self) -> str:
        return f"<Database {self.redacted_url}>"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A write transaction: committed at the end, rolled back on any error."""
        with self._writer.connect() as conn, conn.begin():
            yield conn

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction for reading; it never blocks a writer and writes nothing.

        Raises StoreUnavailable, with the cause, if the database cannot be reached.
        """
        try:
            with self._snapshot() as conn:
                yield conn
        except Exception as exc:
            self.repeats(1).after(exc)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with self._reader.connect() as conn:
            conn.begin()  # closing the connection rolls back
            yield conn

    def run(self, work: Callable[[Connection], T], *, attempts: int = ATTEMPTS) -> T:
        """Do *work* in a transaction; on deadlocks, timeouts and lost servers do all of it again.

        *work* must bear being repeated, also after a COMMIT whose reply was lost.
        Raises StoreUnavailable, with the cause, when *attempts* are used up or the server
        stays away, ConfigurationError if it refuses us, and other errors as they are.
        """
        return self._repeat(self.transaction, work, self.repeats(attempts))

    def look(self, work: Callable[[Connection], T], *, attempts: int = ATTEMPTS) -> T:
        """Do *work*, which only reads, in a transaction for reading; repeated as by :meth:`run`."""
        return self._repeat(self._snapshot, work, self.repeats(attempts))

    def repeats(self, attempts: int = ATTEMPTS) -> Repeats:
        """For a transaction that is begun now: what becomes of it when it fails."""
        return Repeats(self.redacted_url, attempts, lambda: self.deadline)

    def _repeat(
        self,
        begin: Callable[[], AbstractContextManager[Connection]],
        work: Callable[[Connection], T],
        repeats: Repeats,
    ) -> T:
        while True:
            try:
                with begin() as conn:
                    return work(conn)
            except Exception as exc:
                repeats.after(exc)

    def require_claims(self) -> None:
        """Raise ConfigurationError for a server that is too old to hand out shards.

        Batches of items of no page are content with less.
        """
        if self.dialect == "sqlite":
            return
        self.look(lambda conn: None)  # the version is known once a connection was made
        dialect: Any = self.engine.dialect
        known, mariadb = dialect.server_version_info, dialect.is_mariadb
        if known < (_MARIADB if mariadb else _MYSQL):
            raise ConfigurationError(
                f"{self.redacted_url} is {'MariaDB' if mariadb else 'MySQL'}"
                f" {'.'.join(map(str, known))}; a crawl that resumes needs MariaDB 10.6 or"
                " MySQL 8.0.17, or newer"
            )

    def now(self, conn: Connection) -> datetime:
        """The database's clock: UTC, naive, microseconds."""
        if self.dialect == "sqlite":  # the database is this machine
            return clock.utc_now()
        now: datetime = conn.execute(_UTC_NOW).scalar_one()
        return now

    def _fit_packet(self, size: int) -> None:
        self.statement_bytes = min(STATEMENT_BYTES, size // 2)
        self.row_bytes = size - _STATEMENT_TEXT

    def cut(self) -> None:
        """Wait for the server no longer: what is under way fails at once, and so does what
        comes. For any thread; nothing can be undone by it that the server has committed."""
        self._cutoff.make()

    def close(self) -> None:
        """Give every connection back to the server."""
        self.engine.dispose()


_UTC_NOW = text("SELECT UTC_TIMESTAMP(6)")
