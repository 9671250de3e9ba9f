"""What one snapshot must look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scrapy_resume.store.quarantine import READ_AGAIN
from scrapy_resume.testing.snapshot import Pages, Row, Snapshot
from scrapy_resume.testing.violation import Violation
from scrapy_resume.watermark import PageRanges

FINAL = ("done", "failed")

# Acts that leave a shard's position as it was.
GENTLE = frozenset({"reclaim", "supersede", "pause", "unpause", "cancel", "resolve", "salvage"})


def wrong_in(now: Snapshot, served: Mapping[str | None, Pages]) -> Iterator[Violation]:
    """Every violation in *now*; *served* is pages by shard key, None for every shard."""
    for task in now.tasks.values():
        yield from _wrong_task(now, task)
    for row in now.shards.values():
        shard = _Shard.of(row)
        if isinstance(shard, Violation):
            yield shard
            continue
        yield from shard.wrong_owner()
        yield from shard.wrong_state()
        yield from shard.wrong_position(now)
        yield from shard.wrong_ends()
        yield from shard.wrong_records(now)
        pages = served.get(row["shard_key"], served.get(None))
        if pages:
            yield from shard.missing_items(now, pages)
    yield from _stray_items(now)


def _wrong_task(now: Snapshot, task: Row) -> Iterator[Violation]:
    shards = [row for row in now.shards.values() if row["task_id"] == task["id"]]
    over, verdict = task["finished_at"] is not None, task["verdict"]
    if over != (verdict is not None) or over != (task["status"] in FINAL):
        text = f"is {task['status']!r} with the verdict {verdict!r}, finished: {over}"
        yield Violation("I3", text, task["id"])
    if not task["reason"]:
        yield Violation("I7", "has no reason", task["id"])
    left = [row["shard_no"] for row in shards if row["status"] not in FINAL]
    if over and left:
        yield Violation("I3", f"is over while its shards {left} are not", task["id"])
    if task["planned_at"] is None and any(row["fencing_token"] for row in shards):
        yield Violation("I5", "has shards claimed before it was planned", task["id"])
    if verdict in ("complete", "complete_with_rejects"):
        yield from _untrue_verdict(now, task, shards)


def _untrue_verdict(now: Snapshot, task: Row, shards: list[Row]) -> Iterator[Violation]:
    verdict = task["verdict"]
    left = [row["shard_no"] for row in shards if row["status"] != "done"]
    if left:
        text = f"says {verdict!r} while its shards {left} are not done"
        yield Violation("I3", text, task["id"])
    if task["planned_at"] is None or not sum(row["page_count"] for row in shards):
        yield Violation("I3", f"says {verdict!r} and read nothing", task["id"])
    rejects = [row for row in _rejects(now) if row["task_id"] == task["id"]]
    if verdict == "complete" and rejects:
        text = f"says 'complete' with {len(rejects)} records in quarantine"
        yield Violation("I3", text, task["id"])


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard's row with its ranges read."""

    row: Row
    ahead: PageRanges
    failed: PageRanges

    @classmethod
    def of(cls, row: Row) -> _Shard | Violation:
        try:
            return cls(row, PageRanges.parse(row["ahead"]), PageRanges.parse(row["failed_pages"]))
        except ValueError as error:
            return Violation("I3", str(error), row["task_id"], row["shard_no"])

    def bad(self, invariant: str, text: str, page: int | None = None) -> Violation:
        return Violation(invariant, text, self.row["task_id"], self.row["shard_no"], page)

    def committed(self, page: int) -> bool:
        first, current = self.row["first_page"], self.row["cur_page"]
        return bool(first <= page <= current) or page in self.ahead

    def wrong_owner(self) -> Iterator[Violation]:
        row, running = self.row, self.row["status"] == "running"
        for name in ("worker", "instance", "lease_until"):
            if running != (row[name] is not None):
                yield self.bad("I5", f"is {row['status']!r} and its {name} is {row[name]!r}")
        if row["fencing_token"] < int(running or row["page_count"] > 0):
            yield self.bad("I6", f"was claimed and its token is {row['fencing_token']}")

    def wrong_state(self) -> Iterator[Violation]:
        row, status = self.row, self.row["status"]
        if row["due"] not in (0, 1) or (row["due"] and status != "pending"):
            yield self.bad("I5", f"is {status!r} and due is {row['due']}")
        waits = status == "pending" and not row["due"]
        # What waits has a time, or waits for the spider's code to be mended.
        lost = waits and row["next_run_at"] is None and row["error_kind"] != "code"
        if lost or (row["next_run_at"] is not None and not waits):
            yield self.bad("I3", f"is {status!r}, due {row['due']}, next at {row['next_run_at']}")
        if row["attempt_count"] > row["max_attempts"]:
            yield self.bad("I3", f"had {row['attempt_count']} of {row['max_attempts']} attempts")
        if not row["reason"]:
            yield self.bad("I7", "has no reason")

    def wrong_position(self, now: Snapshot) -> Iterator[Violation]:
        row, current = self.row, self.row["cur_page"]
        pages = current - row["first_page"] + 1 + len(self.ahead)
        if row["page_count"] != pages:
            yield self.bad("I3", f"counts {row['page_count']} pages where its ranges hold {pages}")
        unread = row["version"] > 0 and not row["page_count"] and not _rewound(now, row)
        if unread or (row["page_count"] > 0 and not row["version"]):
            yield self.bad("I5", f"has {row['page_count']} pages at version {row['version']}")
        if self.ahead and self.ahead.ranges[0][0] <= current + 1:
            yield self.bad("I4", f"stands at {current} with {self.ahead} ahead")
        for page in self.failed:
            if self.committed(page):
                yield self.bad("I3", "holds a page as failed that is committed", page)

    def wrong_ends(self) -> Iterator[Violation]:
        current, last = self.row["cur_page"], self.row["last_page"]
        if last is not None and max(current, self.ahead.highest or 0) > last:
            yield self.bad("I3", f"ends at {last}, has {current} and ahead {self.ahead or 'none'}")
        holes = self.ahead or self.failed or (last is not None and current != last)
        if self.row["status"] == "done" and holes:
            text = f"is done at {current} of {last}, ahead '{self.ahead}', failed '{self.failed}'"
            yield self.bad("I3", text)

    def wrong_records(self, now: Snapshot) -> Iterator[Violation]:
        records = [row for row in _rejects(now) if row["shard_id"] == self.row["id"]]
        if len(records) != self.row["quarantined_count"]:
            counted = self.row["quarantined_count"]
            yield self.bad("I3", f"counts {counted} in quarantine where {len(records)} are")
        if not _rewound(now, self.row):
            for page in sorted({row["page"] for row in records}):
                if not self.committed(page):
                    yield self.bad("I3", "has a record in quarantine without its page", page)

    def missing_items(self, now: Snapshot, pages: Pages) -> Iterator[Violation]:
        source = now.tasks[self.row["task_id"]]["spider"]
        rejects = [row for row in _rejects(now) if row["shard_id"] == self.row["id"]]
        whole = {row["page"] for row in rejects if row["kind"] == "page"}
        known = Counter((row["page"], row["item_key"]) for row in rejects)
        lost: list[tuple[int, str]] = []
        for page, keys in sorted(pages.items()):
            if page in whole or not self.committed(page):
                continue
            gone = [key for key in keys if not now.has_item(source, key)]
            gone = [key for key in gone if (page, key) not in known]
            nameless = sum(n for (on, key), n in known.items() if on == page and key not in keys)
            lost += [(page, key) for key in gone[nameless:]]
        if len(lost) > self.row["dropped_count"]:
            for page, key in lost:
                yield self.bad("I1", f"{key!r} of a committed page is not stored", page)


def _rejects(now: Snapshot) -> Iterator[Row]:
    """The records in quarantine but for those whose pages were put back since."""
    return (row for row in now.quarantine if row["resolution"] not in READ_AGAIN)


def _stray_items(now: Snapshot) -> Iterator[Violation]:
    """An item is stored with its page or not at all, but for those that were salvaged."""
    shards: dict[tuple[int, int], _Shard] = {}
    for row in now.shards.values():
        shard = _Shard.of(row)
        if isinstance(shard, _Shard) and not (_rewound(now, row) or salvaged(now, row)):
            shards[row["task_id"], row["shard_no"]] = shard
    for item in now.items.values():
        owner = shards.get((item["task_id"], item["shard_no"]))
        page = item["page"]
        if owner is not None and page is not None and not owner.committed(page):
            text = f"{item['item_key']!r} is stored and its page is not committed"
            yield owner.bad("I5", text, page)


def _rewound(now: Snapshot, shard: Row) -> bool:
    """Was the shard's position ever set back by an act on record?"""
    return any(act["kind"] not in GENTLE for act in acts_on(now.operations, shard))


def salvaged(now: Snapshot, shard: Row) -> bool:
    """Were items of pages that the shard's former owner had read inserted?"""
    return any(act["kind"] == "salvage" for act in acts_on(now.operations, shard))


def acts_on(operations: Iterable[Row], shard: Row) -> Iterator[Row]:
    """The acts among *operations* that concern *shard*."""
    for act in operations:
        if act["task_id"] == shard["task_id"] and act["shard_no"] in (None, shard["shard_no"]):
            yield act
