"""Waking workers through Redis after an operator's word, so that they need not find out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_resume.exceptions import ResumeError
from scrapy_resume.store import meta

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.engine import Database


def wake(settings: Settings, ours: ResumeSettings, db: Database, task_ids: Iterable[int]) -> None:
    """Tell the workers of these runs that there may be work for them.

    Without a Redis, or with one that does not answer, they see it at their next heartbeat.
    """
    from scrapy_resume.redisclient import RedisClient  # importing redis-py takes its time
    from scrapy_resume.shardqueue import ShardQueue

    with suppress(ResumeError):
        client = RedisClient.of(ours, settings)
        if client is None:
            return
        try:
            database_id = meta.database_id(db)
            for task_id in task_ids:
                ShardQueue(client, database_id, task_id, uuid.uuid4().hex).wake()
        finally:
            client.close()
