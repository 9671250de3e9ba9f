"""Lost pages: what was read of a shard that its reader does not hold any more.

They are never committed. Their items are salvaged, unless nobody wants them: an operator
had the pages of the run read again after they were read, or forgot its plan. Then what
was read before must not come back, and a record says what was dropped. Pages that somebody
has committed meanwhile need nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scrapy_resume.store.engine import Database
from scrapy_resume.store.fences import fold
from scrapy_resume.store.items import ItemTable
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.records import PageRecord, Record
from scrapy_resume.store.salvage import Loss, Salvaged, drop, salvage
from scrapy_resume.store.standings import Standing, standings

_GONE = "its shard is no more: the run was reset, or the database is older than the journal"
_PUT_BACK = "pages of its run were put back to be read again after it was read"
_BEHIND = "the page before it is not stored"


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of lost pages: *salvaged*, *dropped*, or *stored* by somebody already."""

    salvaged: int = 0
    dropped: int = 0
    stored: int = 0
    items: Salvaged = field(default_factory=Salvaged)


def settle_lost(
    db: Database,
    pages: Sequence[PageRecord],
    base: ClaimedShard | None,
    *,
    tables: Iterable[ItemTable],
    actor: str,
) -> Settled:
    """Salvage or drop *pages*, of one shard and token, which cannot be committed.

    *base* is the shard as their reader claimed it, if that is known. May be repeated. Raises
    StoreUnavailable, ConfigurationError for a table that is not as it was declared.
    """
    if not pages:
        return Settled()
    shard_id, token = pages[0].shard_id, pages[0].fencing_token
    base = base if base is not None and base.fencing_token == token else None
    now = same_shard(standings(db, [shard_id]).get(shard_id), base)
    left = [page for page in pages if now is None or not now.position.has(page.page)]
    stored = len(pages) - len(left)
    if not left:
        return Settled(stored=stored)
    loss = _loss(now, base, shard_id, token)
    if is_unwanted(now, base, token):
        drop(db, left, loss, actor=actor)
        return Settled(dropped=len(left), stored=stored)
    done = salvage(db, left, loss, tables=tables, actor=actor)
    return Settled(salvaged=len(left), stored=stored, items=done)


def same_shard(now: Standing | None, base: ClaimedShard | None) -> Standing | None:
    """*now* if it is the shard that *base* was; a database restored from a backup may have
    given its id to another one."""
    if now is None or base is None:
        return now
    known = (base.task_id, base.shard_no, base.shard.key)
    return now if known == (now.task_id, now.shard_no, now.shard_key) else None


def is_unwanted(now: Standing | None, base: ClaimedShard | None, token: int) -> bool:
    """Whether pages read under *token* must not come back, by an operator's act since then.

    Every such act raises the token. Where it is not known what the reader knew of, any act on
    the run counts as later: nothing is lost by it, since the pages are read again.
    """
    if now is None:
        return True
    known = None if base is None else base.read_again_at
    return now.fencing_token != token and now.read_again_at not in (None, known)


def misses_pages(now: Standing, base: ClaimedShard | None, records: Sequence[Record]) -> bool:
    """Whether a shard of ours has not all its pages once *records* are committed on top of it.

    *base* is where it stood when its owner last knew; a database that is behind it lacks pages
    that nobody has any more.
    """
    older = base is not None and base.position.version > now.position.version
    folded = fold(now.position, records, ())
    last = folded.last_page if folded.last_page is not None else now.last_page
    short = last is not None and folded.position.cur_page < last
    return older or short or bool(folded.behind) or bool(folded.position.ahead)


def _loss(now: Standing | None, base: ClaimedShard | None, shard_id: int, token: int) -> Loss:
    if now is None:
        run = (None, None) if base is None else (base.task_id, base.shard_no)
        return Loss(_GONE, shard_id, token, *run)
    return Loss(_reason(now, base, token), shard_id, token, now.task_id, now.shard_no)


def _reason(now: Standing, base: ClaimedShard | None, token: int) -> str:
    if is_unwanted(now, base, token):
        return _PUT_BACK
    if now.fencing_token < token:
        return "the database is older than the journal"
    if now.status == "running":
        return _BEHIND if now.fencing_token == token else f"worker {now.worker} has its shard now"
    return f"its shard is {now.status} now"
