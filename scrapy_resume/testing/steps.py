"""What the way from one snapshot to a later one must look like."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy_resume.testing.rules import FINAL, GENTLE, acts_on, salvaged
from scrapy_resume.testing.snapshot import Row, Snapshot
from scrapy_resume.testing.violation import Violation


def wrong_between(before: Snapshot, now: Snapshot) -> Iterator[Violation]:
    """Every violation that only *before* and *now* together show."""
    known = {act["id"] for act in before.operations}
    fresh = [act for act in now.operations if act["id"] not in known]
    reset = {act["task_id"] for act in fresh if act["kind"] == "reset"}
    for number, old in before.shards.items():
        new = now.shards.get(number)
        if new is None:
            if old["fencing_token"] and old["task_id"] not in reset:
                yield Violation("I4", "is gone", old["task_id"], old["shard_no"])
            continue
        yield from _wrong_step(old, new, {act["kind"] for act in acts_on(fresh, new)})
    yield from _rewritten(before, now)


def _wrong_step(old: Row, new: Row, acts: set[str]) -> Iterator[Violation]:
    def bad(invariant: str, text: str) -> Violation:
        return Violation(invariant, text, new["task_id"], new["shard_no"])

    rewound = bool(acts - GENTLE)
    if not rewound:
        for name in ("cur_page", "page_count", "version", "first_page"):
            if new[name] < old[name]:
                yield bad("I4", f"{name} fell from {old[name]} to {new[name]} without an act")
    tokens = (old["fencing_token"], new["fencing_token"])
    owners = (old["instance"], new["instance"])
    if tokens[1] < tokens[0]:
        yield bad("I6", f"the token fell from {tokens[0]} to {tokens[1]}")
    if tokens[0] == tokens[1] and owners[1] not in (None, owners[0]):
        yield bad("I6", f"went from {owners[0]} to {owners[1]} with the same token {tokens[0]}")
    unowned = tokens[0] == tokens[1] and old["status"] != "running"
    if unowned and not rewound and new["version"] != old["version"]:
        yield bad("I5", f"a page was committed while it was {old['status']!r}")
    if old["status"] in FINAL and new["status"] != old["status"] and not rewound:
        yield bad("I7", f"left {old['status']!r} for {new['status']!r} without an act")


def _rewritten(before: Snapshot, now: Snapshot) -> Iterator[Violation]:
    """An existing item changes only with a page of the shard that it then belongs to, and a new
    one comes with one, or is salvaged."""
    same = {
        (row["task_id"], row["shard_no"]): salvaged(now, row)
        for number, row in now.shards.items()
        if number in before.shards and before.shards[number]["version"] == row["version"]
    }
    for key, item in now.items.items():
        old = before.items.get(key)
        changed = old is None or old["payload"] != item["payload"] or old["page"] != item["page"]
        shard = (item["task_id"], item["shard_no"])
        if changed and shard in same and not (old is None and same[shard]):
            text = f"{item['item_key']!r} was written without a page of its shard"
            yield Violation("I5", text, item["task_id"], item["shard_no"], item["page"])
