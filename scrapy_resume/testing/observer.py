"""The checker: one look, or many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from scrapy_resume.store.errors import error_kind
from scrapy_resume.testing.rules import wrong_in
from scrapy_resume.testing.snapshot import Served, Snapshot, by_shard, opened, read_snapshot
from scrapy_resume.testing.steps import wrong_between
from scrapy_resume.testing.violation import Violation


def check(
    database_url: str,
    *,
    prefix: str = "resume_",
    served: Served | None = None,
    table: str | None = None,
    key: str = "key",
) -> list[Violation]:
    """Every violation in one consistent snapshot of the database; [] if all is well.

    *served* says what the site serves, so that I1 can be checked item by item: in the
    product's own item table, or in your *table* with its *key* column. Raises
    ConfigurationError for a URL or a table that cannot work.
    """
    return Observer(database_url, prefix=prefix, served=served, table=table, key=key).look()


def stored_items(
    database_url: str, *, prefix: str = "resume_", source: str | None = None
) -> dict[tuple[str, str], str]:
    """The payloads in the product's own item table by (source, key), to compare two runs (I2).

    *source* (a spider's name) selects. Times and pages are left out on purpose.
    """
    with opened(database_url, prefix) as db:
        items = read_snapshot(db).items
    wanted = {key: row["payload"] for key, row in items.items() if source in (None, key[0])}
    return dict(sorted(wanted.items()))


class Observer:
    """Looks at a database several times, for what only two looks can show.

    *violations* are all that were found, each once; *looks*, *tasks* and *shards* count
    what was looked at, *missed* the looks that an unreachable database cost. *latest* holds
    the rows of the last look. The arguments are those of :func:`check`.
    """

    def __init__(
        self,
        database_url: str,
        *,
        prefix: str = "resume_",
        served: Served | None = None,
        table: str | None = None,
        key: str = "key",
    ) -> None:
        self.violations: list[Violation] = []
        self.looks = self.missed = self.tasks = self.shards = 0
        self._url, self._prefix = database_url, prefix
        self._table, self._key = table, key
        self._served = by_shard(served)
        self.latest: Snapshot | None = None

    def look(self) -> list[Violation]:
        """Take a snapshot: what is wrong in it, and with the way from the last one to it."""
        with opened(self._url, self._prefix) as db:
            return self._compare(read_snapshot(db, self._table, self._key))

    @contextmanager
    def watching(self, interval: float = 0.1, *, patient: bool = False) -> Iterator[Observer]:
        """Look every *interval* seconds from a thread of its own, and once more at the end.

        An error of the database ends the watch and is raised at the end. With *patient* an
        unreachable database only costs looks, but for the last one.
        """
        over = threading.Event()
        errors: list[Exception] = []
        given = (over, interval, patient, errors)
        thread = threading.Thread(target=self._watch, args=given, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
        for error in errors:
            raise error

    def _watch(
        self, over: threading.Event, interval: float, patient: bool, errors: list[Exception]
    ) -> None:
        last = False
        while not last:
            try:
                with opened(self._url, self._prefix) as db:
                    while not last:
                        last = over.wait(interval)
                        self._compare(read_snapshot(db, self._table, self._key))
            except Exception as error:
                if last or not patient or error_kind(error) not in ("retry", "reconnect"):
                    errors.append(error)
                    return
                self.missed += 1

    def _compare(self, now: Snapshot) -> list[Violation]:
        found = list(wrong_in(now, self._served))
        if self.latest is not None:
            found += wrong_between(self.latest, now)
        self.latest = now
        self.looks += 1
        self.tasks, self.shards = len(now.tasks), len(now.shards)
        self.violations += [one for one in found if one not in self.violations]
        return found
