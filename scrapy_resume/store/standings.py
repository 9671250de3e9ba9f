"""How shards stand now, for somebody who still has records of them from before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from scrapy_resume.store.claims import in_lists, position_of
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import Position


@dataclass(frozen=True, slots=True)
class Standing:
    """A shard as its row says; *read_again_at* is when pages of its run were last put back."""

    id: int
    task_id: int
    shard_no: int
    shard_key: str
    status: str
    worker: str | None
    fencing_token: int
    last_page: int | None
    position: Position
    read_again_at: datetime | None

    def is_held(self, token: int, worker: str | None) -> bool:
        """Is it still held under *token* by *worker*, or by whom it may be for None?

        A database that was restored from a backup may give a token, and even the id of a
        shard, a second time; so the token alone does not tell.
        """
        ours = self.status == "running" and self.fencing_token == token
        return ours and worker in (None, self.worker)


def standings(db: Database, shard_ids: Iterable[int]) -> dict[int, Standing]:
    """The shards *shard_ids* by their ids, those that there are."""
    shard, task = db.tables.task_shard, db.tables.task
    query = select(shard, task.c.read_again_at).join(task, task.c.id == shard.c.task_id)
    parts = in_lists(set(shard_ids))
    rows = db.look(
        lambda conn: [
            row for ids in parts for row in conn.execute(query.where(shard.c.id.in_(ids)))
        ]
    )
    return {
        row.id: Standing(
            id=row.id,
            task_id=row.task_id,
            shard_no=row.shard_no,
            shard_key=row.shard_key,
            status=row.status,
            worker=row.worker,
            fencing_token=row.fencing_token,
            last_page=row.last_page,
            position=position_of(row),
            read_again_at=row.read_again_at,
        )
        for row in rows
    }
