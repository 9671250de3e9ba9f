"""What an open page came to, once nothing of it is outstanding.

Its rows, its troubles and what asks for the page after it become a PageEnd, with the record to
be stored if it is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_resume import cursor
from scrapy_resume.exceptions import ConfigurationError, ResumeError
from scrapy_resume.loopguard import digest
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where, judge
from scrapy_resume.paging import PageEnd, Walk
from scrapy_resume.store.checkpoints import PageRecord
from scrapy_resume.store.items import Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.walks import ChainWalk, OpenEndedWalk

if TYPE_CHECKING:
    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.mixins import ResumeSpiderMixin


class PageJudge:
    """Judges the pages of one spider; with *hold_records* a failed record fails its page."""

    def __init__(self, spider: ResumeSpiderMixin, *, hold_records: bool) -> None:
        self._spider, self._hold_records = spider, hold_records
        self._end_statuses = _statuses(spider.end_statuses)

    def end(self, shard: HeldShard, number: int, page: OpenPage) -> PageEnd:
        """What became of page *number*, with the record to be stored if it is complete."""
        walk = shard.walk
        open_ended = isinstance(walk, OpenEndedWalk)
        decision, trouble = judge(
            page.troubles,
            hold_records=self._hold_records,
            end_statuses=self._end_statuses if open_ended else frozenset(),
        )
        try:
            next_cursor = self.next_cursor(shard, page)
        except ResumeError as error:
            next_cursor, decision, trouble = None, Decision.FAILED, own_fault(error)
        rows = tuple(row for _, row in sorted(page.rows, key=lambda numbered: numbered[0]))
        record = None
        content = "" if page.yielded == 0 else _content(shard, number, page, rows)
        if decision is Decision.COMPLETE:
            _place(rows, walk, number)
            apart = tuple(aside(walk, number, t, page.page.attempt) for t in page.troubles)
            record = PageRecord(shard.id, shard.token, number, rows, apart, page.items_dropped)
        return PageEnd(
            number, decision, trouble, record,
            rows=page.items_in,
            empty=page.yielded == 0,
            content=content,
            next_cursor=next_cursor,
            end_reason=page.end_reason,
            stated_total=shard.stated.pop(number, None),
        )  # fmt: skip

    def next_cursor(self, shard: HeldShard, page: OpenPage) -> str | None:
        """The cursor of the page after this one, as text. Raises ResumeError for a wrong one."""
        if not page.has_next or not isinstance(shard.walk, ChainWalk):
            if page.has_next:
                raise ResumeError("next_page() in a numbered shard, whose pages need no cursor")
            return None
        if page.next_request is not None:
            return cursor.dump(cursor.of_request(page.next_request, self._spider))
        return cursor.dump(page.next_cursor)


def aside(walk: Walk, number: int, trouble: Trouble, tries: int) -> QuarantineRecord:
    """The record of what of a page is set aside because of *trouble*, after so many *tries*."""
    claimed = walk.claimed
    return QuarantineRecord(
        task_id=claimed.task_id, shard_id=claimed.id, shard_no=claimed.shard_no, page=number,
        kind=trouble.where.value, url=trouble.url, item_key=trouble.item_key,
        error_class=trouble.error_class, error=trouble.error, attempts=tries,
        item_table=trouble.item_table, column_name=trouble.column, value=trouble.value,
    )  # fmt: skip


def own_fault(error: Exception) -> Trouble:
    """An error of the spider's own code."""
    return Trouble(Where.PAGE, ErrorKind.CODE, type(error).__name__, str(error)[:200])


def _content(shard: HeldShard, number: int, page: OpenPage, rows: tuple[Row, ...]) -> str:
    """What the page yielded, to be compared with other pages of its list.

    Keys and requests tell pages apart where each item has a key of its own and all of
    them were kept. Else the whole page counts: a page is not another one because
    what is left of it looks the same.
    """
    body = shard.body_digest.pop(number, "")
    if not isinstance(shard.walk, (OpenEndedWalk, ChainWalk)) or not (rows or page.seen):
        return body
    keys = {f"{row.table}\x1f{row.key!r}" for row in rows}
    requests = [fingerprint.hex() for fingerprint in page.seen]
    whole = len(keys) == len(rows) == page.items_in
    if whole and len(rows) + len(requests) > 1:
        return digest([*keys, *requests])
    values = [repr(sorted(row.values.items())) for row in rows]
    return digest([*values, *requests, *([] if whole else [body])])


def _statuses(declared: Any) -> frozenset[int]:
    """The spider's ``end_statuses``; one number will do, and so will text given by ``-a``."""
    if isinstance(declared, int):
        return frozenset({declared})
    parts = declared.replace(",", " ").split() if isinstance(declared, str) else declared or ()
    try:
        return frozenset(int(status) for status in parts)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"end_statuses is {declared!r}; it must be HTTP statuses such as (404, 410)"
        ) from None


def _place(rows: tuple[Row, ...], walk: Walk, number: int) -> None:
    """Tell the rows of the default item table where they were found."""
    claimed = walk.claimed
    where = {"task_id": claimed.task_id, "shard_no": claimed.shard_no, "page": number}
    for row in rows:
        if row.table is None:
            row.values.update(where)
