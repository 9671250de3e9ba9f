"""Reading again what was read: pages put back into their shards, or whole shards.

The watermark goes back before the first of these pages, which only an operator's act may
do; what was read behind it stays ahead of it and is not read again. A chain knows only
the cursors of its first and its next page, so it is read again from its first one. The
fencing token rises, so that nothing an earlier owner still has on its disk is taken for
the new reading. The items stay, and are written again with their pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.intake import RESUMED
from scrapy_resume.store.acting import Act, named
from scrapy_resume.store.claims import in_lists, position_of
from scrapy_resume.store.quarantine import READ_AGAIN, settle_records
from scrapy_resume.store.runs import Task
from scrapy_resume.store.transitions import shard_values
from scrapy_resume.watermark import PageRanges, Position

_FRESH_START = {
    "ahead": "", "failed_pages": "", "digests": None, "page_count": 0, "written_count": 0,
    "dropped_count": 0, "quarantined_count": 0, "checkpoint_at": None, "last_error": None,
}  # fmt: skip


class PutBack:
    """Puts pages of a locked run back, in the transaction of one act.

    The run is one that can be worked on. Raises ActRefused for a shard that is being read.
    """

    def __init__(self, act: Act, conn: Connection, run: Task) -> None:
        self._act, self._conn, self._run = act, conn, run
        self._shard = act.db.tables.task_shard
        self._to = "paused" if run.desired == "pause" else "pending"

    def pages(self, wanted: Mapping[int, PageRanges]) -> None:
        """Have the pages *wanted*, by shard number, read again."""
        operations = []
        for row in self._locked(wanted):
            pages = wanted[row.shard_no]
            values, gone, place = self._put_back(row, pages)
            if not values:
                continue
            settled = self._settle_records(row, None if row.ordered else pages)
            values["quarantined_count"] = row.quarantined_count - settled
            self._conn.execute(update(self._shard).where(self._shard.c.id == row.id).values(values))
            before = f"{row.status} at page {row.cur_page}, token {row.fencing_token}"
            after = f"{self._to} at page {place}, {gone} pages to read again"
            operations.append(self._act.operation(self._run.id, before, after, row.shard_no))
            self._count(row, gone, settled)
        self._act.record_all(self._conn, operations)
        self._note(operations)

    def everything(self) -> None:
        """Have every shard read again from its first page."""
        rows = self._locked(None)
        values = self._moved() | _FRESH_START | {
            "cur_page": self._shard.c.first_page - 1,
            "cursor": self._shard.c.first_cursor,
            "last_page": self._shard.c.planned_last_page,
        }  # fmt: skip
        for ids in in_lists(row.id for row in rows):
            self._conn.execute(update(self._shard).where(self._shard.c.id.in_(ids)).values(values))
        records = self._settle(None, None)
        self._count_the_rest()
        self._forget_manifest([row.id for row in rows], None)
        pages = sum(row.page_count for row in rows)
        self._act.count("shards", len(rows), "1 shard is read again from its first page.",
                        "{} shards are read again from their first page.")  # fmt: skip
        self._act.count("pages", pages)
        self._act.count("records", records)
        before = f"{self._run.status}, {pages} pages read"
        self._act.record(self._conn, self._run.id, before, self._to)
        self._note(rows)

    def _count_the_rest(self) -> None:
        """Records that an operator had closed are still none of the pages' own making."""
        aside = self._act.db.tables.quarantine
        ours = (aside.c.task_id == self._run.id, aside.c.shard_id.is_not(None))
        kept = select(aside.c.shard_id, func.count()).where(
            *ours, aside.c.resolution.not_in(READ_AGAIN)
        )
        for shard_id, count in self._conn.execute(kept.group_by(aside.c.shard_id)).all():
            mine = update(self._shard).where(self._shard.c.id == shard_id)
            self._conn.execute(mine.values(quarantined_count=count))

    def _put_back(self, row: Row[Any], pages: PageRanges) -> tuple[dict[str, Any], int, int]:
        """What to write (nothing: the pages wait already), how many pages are to be read again,
        and where the watermark is then."""
        before = position_of(row)
        known = replace(before, failed=PageRanges())
        if row.ordered:
            if not before.committed(row.first_page).common(pages) and row.status != "failed":
                return {}, 0, 0
            start = {"cur_page": row.first_page - 1, "cursor": row.first_cursor}
            start |= _FRESH_START | {"last_page": row.planned_last_page}
            return self._moved() | start, row.page_count, row.first_page - 1
        after = known.put_back(pages, row.first_page)
        gone = before.page_count - after.page_count
        if not gone and row.status != "failed":
            return {}, 0, 0
        position = {"cur_page": after.cur_page, "ahead": str(after.ahead)}
        position["page_count"] = after.page_count
        if row.status == "done" and row.last_page is None:  # where the list ended is known now
            position["last_page"] = before.highest
        return self._moved() | position, gone, after.cur_page

    def _moved(self) -> dict[str, Any]:
        return shard_values("reread", self._to, self._act.text) | {
            "fencing_token": self._shard.c.fencing_token + 1,
            "lane": RESUMED,
            "attempt_count": 0,
            "error_kind": None,
            "updated_at": self._act.now,
        }

    def _locked(self, wanted: Iterable[int] | None) -> Sequence[Row[Any]]:
        query: Select[Any] = select(self._shard).where(self._shard.c.task_id == self._run.id)
        rows: list[Row[Any]] = []
        if wanted is None:
            rows += self._conn.execute(query.order_by(self._shard.c.id).with_for_update())
        else:
            for numbers in in_lists(wanted):
                some = query.where(self._shard.c.shard_no.in_(numbers))
                rows += self._conn.execute(some.order_by(self._shard.c.id).with_for_update())
        require_idle(self._act, self._run, rows)
        return rows

    def _settle_records(self, row: Row[Any], pages: PageRanges | None) -> int:
        self._forget_manifest([row.id], pages)
        return self._settle(row.shard_no, pages)

    def _settle(self, shard_no: int | None, pages: PageRanges | None) -> int:
        act = self._act
        return settle_records(self._conn, act.db, self._run.id, shard_no, pages, act.done, act.now)

    def _forget_manifest(self, ids: list[int], pages: PageRanges | None) -> None:
        manifest = self._act.db.tables.manifest
        for part in in_lists(ids):
            gone = delete(manifest).where(manifest.c.shard_id.in_(part))
            for low, high in pages.ranges if pages is not None else ((0, None),):
                some = gone.where(manifest.c.page >= low)
                self._conn.execute(some if high is None else some.where(manifest.c.page <= high))

    def _count(self, row: Row[Any], gone: int, records: int) -> None:
        self._act.counts["shards"] = self._act.counts.get("shards", 0) + 1
        self._act.count("pages", gone)
        self._act.count("records", records)
        if row.ordered:
            self._act.sentences.append(
                f"Shard {row.shard_no} is a chain, which is read again from its first page."
            )

    def _note(self, changed: Sequence[Any]) -> None:
        """Tell the workers to forget what they remember of pages that are to be read again."""
        if not changed:
            return
        run = self._act.change(self._conn, self._run, read_again_at=self._act.now)
        pages = self._act.counts.get("pages", 0)
        if not pages:
            self._act.sentences.append(f"{len(changed)} failed shard(s) are tried again.")
        else:
            self._act.sentences.append(
                "1 page is read again; its items stay, and are written again with it."
                if pages == 1
                else f"{pages} pages are read again; their items stay, and are written again."
            )
        if run.desired == "pause":
            self._act.sentences.append("The run stays paused; unpause it to have them read.")


def require_idle(act: Act, run: Task, rows: Iterable[Row[Any]]) -> None:
    """Raise ActRefused if the owner of one of *rows* may still be alive."""
    for row in rows:
        if row.status == "running" and row.lease_until >= act.now:
            raise ActRefused(
                f"shard {row.shard_no} of {named(run)} is being read by worker {row.worker[:8]};"
                f" pause the run first: scrapy resume pause {run.id}"
            )


def highest_known(row: Row[Any]) -> int | None:
    """The last page that *row*'s shard covers; None if nobody knows yet."""
    if row.last_page is not None or row.status != "done":
        last: int | None = row.last_page
        return last
    position: Position = position_of(row)
    return position.highest
