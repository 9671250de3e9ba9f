"""The facts about a run, told in sentences: what is left, who has it, since when and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.mends import Mends, missing
from scrapy_resume.commands.obstacles import Obstacles, span_text
from scrapy_resume.commands.screen import moment
from scrapy_resume.commands.status import name_of, pages_of, silence
from scrapy_resume.watermark import PageRanges

if TYPE_CHECKING:
    from scrapy_resume.settings import ResumeSettings

_MOST = 20  # shards, and pages of a shard, that are told one by one
_LONGEST = 200  # characters of a list of pages
_ERROR_OF_PAGE = re.compile(r"page (\d+): (.*)", re.DOTALL)


class Account:
    """Tells one run's facts, as :func:`scrapy_resume.commands.why.gather` has them."""

    def __init__(self, facts: dict[str, Any], settings: ResumeSettings) -> None:
        self._facts, self._lease = facts, settings.lease
        self._obstacles = Obstacles(facts, settings)
        self._now = facts["now"]
        self._workers = {one["instance"]: one for one in facts["workers"]}

    def sentences(self) -> Iterator[str]:
        """Everything, the most general first."""
        yield self._headline()
        shards = self._facts["shards"]
        for shard in shards[:_MOST]:
            yield from self._shard(shard)
        if len(shards) > _MOST:
            yield f"And {len(shards) - _MOST} more shards; --json has them all."
        yield from self._idle()
        yield from self._quarantine()
        for act in self._facts["acts"]:
            yield f"{moment(act['at'])}: {act['kind']} by {act['actor']}: {act['reason']}."
        yield from Mends(self._facts).sentences()
        yield self.advice()

    def advice(self) -> str:
        """The command that would help, if one would."""
        facts, shards = self._facts, self._facts["shards"]
        command = f"`{Mends(facts).crawl}`"
        if facts["status"] == "paused":
            return "It is paused; nothing of it is read until its pause is ended."
        if facts["finished_at"]:
            if facts["verdict"] == "complete":
                return f"Nothing is left to do; {command} starts a new run."
            if facts["verdict"] == "complete_with_rejects":
                again = f"{command} starts a new run, which reads all again."
                return f"Mend what the reasons say; {again}"
            return f"This run is over; {command} starts a new one."
        if silence(facts, self._lease) and any(one["status"] == "running" for one in shards):
            return (
                f"Its workers are silent; {command} goes on with it: at once on the machine where"
                " they died, elsewhere when the leases have ended."
            )
        if any(shard["error_kind"] == "code" for shard in shards):
            return f"Mend the spider's code, then {command} reads what is held by its errors."
        free = [shard for shard in shards if shard["status"] == "pending"]
        if shards and not free:
            watch = f"`scrapy resume status {facts['task_id']} --watch`"
            return f"Nobody needs to do anything while workers hold the rest; {watch} follows them."
        due = [shard["next_run_at"] for shard in free if shard["next_run_at"]]
        if due and len(due) == len(free) and min(due) > self._now:
            left = span_text(min(due), self._now)
            return f"The next try is due in {left}; then {command} makes it."
        return f"{command} goes on with it, here or on another machine."

    def _headline(self) -> str:
        facts, counts = self._facts, self._facts["shard_counts"]
        run = f"Run {facts['run_no']} of {facts['name']} (id {facts['task_id']})"
        done = f"{counts['done']} of {sum(counts.values())} shards done"
        read = f"{facts['pages']} pages and {facts['items']} items stored"
        if facts["finished_at"]:
            return f"{run} is over, {facts['verdict']}: {facts['reason']} ({done}, {read})."
        if facts["status"] == "planning":
            return f"{run} is not planned yet, so nothing of it can be read: {facts['reason']}."
        if silent := silence(facts, self._lease):
            return f"{run} is unfinished, with {silent}: {done}, {read}."
        if not sum(counts.values()) - counts["done"] - counts["failed"]:
            return f"{run} has no shard left, but nobody declared it over yet: {done}, {read}."
        if facts["status"] == "running" and not facts["workers"]:
            return f"{run} is unfinished, and nobody works on it: {done}, {read}."
        return f"{run} is {facts['status']}: {done}, {read}."

    def _shard(self, shard: dict[str, Any]) -> Iterator[str]:
        where = f"Shard {shard['shard_no']} ({shard['site']}, {_progress(shard)})"
        since = f"since {moment(shard['updated_at'])}"
        state = shard["status"]
        if state == "running":
            yield f"{where} is held by {self._holder(shard)}."
        elif state == "pending":
            yield f"{where} waits {since}: {shard['reason']}; {self._when(shard)}."
        else:
            name = "has failed" if state == "failed" else f"is {state}"
            yield f"{where} {name} {since}: {shard['reason']}."
        yield from _pages(shard)

    def _holder(self, shard: dict[str, Any]) -> str:
        who = f"worker {name_of(shard['worker'])}"
        worker = self._workers.get(shard["instance"])
        if worker:
            who += f" ({_whereabouts(worker)})"
        until, heard = shard["lease_until"], f"last written {moment(shard['updated_at'])}"
        left = span_text(until, self._now)
        if until < self._now:
            who += f", whose lease ended {left} ago; any crawl takes it over"
        else:
            who += f" for {left} more unless it renews, until {moment(until)}"
        if worker and worker["heartbeat_age"] > self._lease:
            who += f"; no heartbeat since {moment(worker['heartbeat_at'])}"
        return f"{who}; {heard}"

    def _when(self, shard: dict[str, Any]) -> str:
        tries = f"{shard['attempt_count']} of {shard['max_attempts']} tries spent"
        obstacle, remark = self._obstacles.of(shard), self._obstacles.remark(shard)
        if obstacle is not None:
            return f"{obstacle}, {tries}"
        return f"it may be claimed now{f', {remark}' if remark else ''}, {tries}"

    def _idle(self) -> Iterator[str]:
        """Workers that hold nothing: they wait for something to come back."""
        holders = {shard["instance"] for shard in self._facts["shards"]}
        for one in self._facts["workers"]:
            if one["instance"] not in holders:
                who = f"Worker {name_of(one['worker'])} ({_whereabouts(one)})"
                age = one["heartbeat_age"]
                heard = f"last heard of {age:.0f} s ago"
                if age > self._lease:
                    heard = f"no heartbeat since {moment(one['heartbeat_at'])}"
                yield f"{who} holds nothing; {heard}."

    def _quarantine(self) -> Iterator[str]:
        """What was set aside and is not resolved."""
        count, first = self._facts["unresolved"], self._facts["quarantine"]
        if not count:
            return
        yield f"{count} in quarantine:"
        for one in first:
            what = one["url"] or one["item_key"] or ""
            place = f"shard {one['shard_no']}, page {one['page']}"
            if one["shard_no"] is None:
                place = "of no page"
            column = f" in column {one['column_name']}" if one["column_name"] else ""
            column += f" of table {one['item_table']}" if one["item_table"] else ""
            value = one.get("value")
            value = "" if value is None else f"; its value: {value!r}"
            error = f"{one['error_class']}{column}: {one['error']}{value}"
            yield f"  record {one['id']}: {one['kind']} {what} ({place}): {error}"
        if count > len(first):
            yield f"  and {count - len(first)} more"


def _progress(shard: dict[str, Any]) -> str:
    """Its pages, which of them are stored and which are not."""
    pages, ahead = f"pages {pages_of(shard)}", _short(shard["ahead"])
    if shard["cur_page"] >= shard["first_page"]:
        read = f"read up to {shard['cur_page']}" + (f" and {ahead}" if ahead else "")
    elif ahead:
        read = f"read {ahead}"
    else:
        return f"{pages}, nothing read up to now"
    left = _short(missing(shard))
    return f"{pages}, {read}" + (f", missing {left}" if left else "")


def _whereabouts(worker: dict[str, Any]) -> str:
    """Where its process is, and what the scheduler that started it calls it."""
    job = f", job {worker['job']}" if worker["job"] else ""
    return f"{worker['host']}, pid {worker['pid']}{job}"


def _short(ranges: str) -> str:
    """A list of pages that a person still reads; --json has all of it."""
    if len(ranges) <= _LONGEST:
        return ranges
    return ranges[:_LONGEST].rpartition(",")[0] + ",…"


def _pages(shard: dict[str, Any]) -> Iterator[str]:
    """Its failed pages, one by one; of their errors the last one is on record."""
    failed = PageRanges.parse(shard["failed_pages"])
    match = _ERROR_OF_PAGE.fullmatch(shard["last_error"] or "")
    known = match is not None and int(match[1]) in failed
    for page in islice(failed, _MOST):
        mine = match is not None and int(match[1]) == page
        yield f"  page {page} failed" + (f": {match[2]}" if mine and match else "")
    if len(failed) > _MOST:
        yield f"  and {len(failed) - _MOST} more failed pages: {_short(str(failed))}"
    if shard["last_error"] and not known and shard["last_error"] not in (shard["reason"] or ""):
        yield f"  last error: {shard['last_error']}"
