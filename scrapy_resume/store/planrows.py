"""From the shards that ``plan()`` yields to rows that can be claimed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.intake import FRESH
from scrapy_resume.page import Shard
from scrapy_resume.store.columns import NAME_LENGTH, SHARD_KEY_LENGTH

_COUNTERS = (
    "page_count",
    "written_count",
    "dropped_count",
    "quarantined_count",
    "version",
    "fencing_token",
    "attempt_count",
)


def plan_rows(
    shards: Iterable[Shard],
    task_id: int,
    default_site: str,
    max_attempts: int,
    first_no: int = 1,
) -> Iterator[dict[str, Any]]:
    """Rows of ``task_shard``, numbered from *first_no*.

    Raises ConfigurationError for a shard that cannot be stored.
    """
    for number, shard in enumerate(shards, first_no):
        cursor = _json(shard, "cursor", shard.cursor)
        yield {
            "task_id": task_id,
            "shard_no": number,
            "shard_key": _name(shard, "key", shard.key, SHARD_KEY_LENGTH),
            "site": _name(shard, "site", shard.site or default_site, NAME_LENGTH),
            "lane": FRESH,
            "priority": shard.priority,
            "due": 1,
            "status": "pending",
            "reason": "planned",
            "ordered": int(bool(shard.ordered)),
            **_pages(shard),
            "planned_last_page": shard.last_page,
            "cursor": cursor,
            "first_cursor": cursor,
            "ahead": "",
            "failed_pages": "",
            **dict.fromkeys(_COUNTERS, 0),
            "max_attempts": max_attempts,
            "spec": _json(shard, "spec", shard.spec),
        }


def _pages(shard: Shard) -> dict[str, int | None]:
    last = shard.last_page
    if shard.first_page < 0 or (last is not None and last < shard.first_page - 1):
        raise ConfigurationError(
            f"plan() yields the shard {shard.key!r} with the pages {shard.first_page} to {last};"
            " allowed are pages from 0 on, the last not before the first"
        )
    return {"first_page": shard.first_page, "last_page": last, "cur_page": shard.first_page - 1}


def _name(shard: Shard, what: str, value: str, limit: int) -> str:
    if not value or len(value) > limit:
        raise ConfigurationError(
            f"plan() yields the shard {shard.key[:60]!r} with a {what} of {len(value)} characters;"
            f" allowed are 1 to {limit}"
        )
    return value


def _json(shard: Shard, what: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
        if json.loads(text) != value:
            raise TypeError("a tuple, or a key that is not text, comes back as something else")
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(
            f"plan() yields the shard {shard.key!r} with a {what} that JSON cannot hold: {exc}"
        ) from None
    return text
