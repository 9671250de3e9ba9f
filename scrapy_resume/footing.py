"""Where the earlier instance of this worker stood, as far as this machine and Redis know.

Looked at while the database cannot be asked. The journal says most: how its shards stood
when the last of them were committed, and what was read since. If it is gone, or knows a
shard less well, the mirror in Redis says how far its commits came. Of two claims of a shard
the later one counts, and of two positions under one claim the one further on.

Only shards of the task that this crawl would resume are of use, and only what an instance
left that did not end in order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from scrapy_resume import journalcodec
from scrapy_resume.journal import Entry, Journal
from scrapy_resume.journalnotes import STARTS, TASK
from scrapy_resume.redismirror import Mirrored
from scrapy_resume.store.fences import fold
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.tasks import Task

_IN_VAIN = 3  # provisional starts in a row that appended nothing


@dataclass(frozen=True, slots=True)
class Wanted:
    """What this crawl would resume: the run *run* (a name, or the last one) of a *task*.

    *address* is its database's, *earlier* are the instances that left its slot without
    ending in order. Of other *sites* than these, if there are any, nothing is read.
    """

    task: str
    run: str
    address: str
    earlier: Collection[str]
    sites: Collection[str] = ()

    def shards(self, task: str | None, bodies: Iterable[bytes]) -> list[ClaimedShard]:
        """The shards that *bodies* are, if *task* is the one that is wanted, and goes on."""
        try:
            told = journalcodec.load_task((task or "").encode())
        except ValueError:
            return []
        wanted = told.name == self.task and self.run in ("auto", "resume", told.run_name)
        if not (wanted and told.finished_at is None and told.desired == "run"):
            return []
        sites = self.sites
        return [
            shard for shard in _loaded(bodies)
            if shard.task_id == told.id and (not sites or shard.site in sites)
        ]  # fmt: skip


def origin(address: str, instance: str, task: Task) -> bytes:
    """What a mirror is for, as the mirror says it."""
    told = {
        "address": address,
        "instance": instance,
        TASK: journalcodec.dump_task(task).decode(),
    }
    return json.dumps(told, sort_keys=True).encode()


def find(
    journal: Journal, mirror: tuple[bytes, Sequence[Mirrored]], wanted: Wanted
) -> list[ClaimedShard]:
    """The shards to read on, where they stand. The journal knows them all afterwards."""
    meta, bases = journal.meta, journal.bases()
    kept = wanted.shards(meta.get(TASK), bases.values()) if wanted.earlier else []
    mirrored = of_mirror(*mirror, wanted)
    unknown = {one.id: journalcodec.dump_shard(one) for one in mirrored if one.id not in bases}
    if unknown:
        journal.trim(0, unknown)
        journal.set_meta(TASK, str(json.loads(mirror[0])[TASK]))
    return _advanced(journal, [*kept, *mirrored])


def of_mirror(of: bytes, shards: Iterable[Mirrored], wanted: Wanted) -> list[ClaimedShard]:
    """The shards of a mirror, if it is what an instance before us wrote of our task."""
    try:
        told = json.loads(of)
        ours = told["address"] == wanted.address and told["instance"] in wanted.earlier
        task = str(told[TASK]) if ours else None
    except (ValueError, KeyError, TypeError):
        return []
    return wanted.shards(task, (one.position for one in shards))


def obstacle(journal: Journal, ours: Mapping[str, str]) -> str | None:
    """Why pages of this process, which *ours* describes, may not join those in the journal.

    They may be for other tables. And after several starts that kept nothing more a page may be
    what kills the process; only the database counts the attempts. This start is counted.
    """
    meta = journal.meta
    if journal.records and any(meta.get(name) != value for name, value in ours.items()):
        return "the pages in the journal are for other item tables or RESUME_ON_FAILED_RECORD"
    last, _, count = meta.get(STARTS, "").partition(":")
    starts = int(count) + 1 if last == str(journal.last) else 1
    for name, value in {**ours, STARTS: f"{journal.last}:{starts}"}.items():
        journal.set_meta(name, value)
    journal.flush()
    return f"the last {_IN_VAIN} starts kept no page" if starts > _IN_VAIN else None


def _advanced(journal: Journal, known: Iterable[ClaimedShard]) -> list[ClaimedShard]:
    """The *known* shards where the journal's records leave them, without those that ended.

    Left out too are shards of which something in the journal cannot be understood, and those
    with a page that may have killed its process: those are read under the database's eye.
    """
    shards: dict[int, ClaimedShard] = {}
    for shard in known:
        have = shards.get(shard.id)
        if have is None or _rank(shard) > _rank(have):
            shards[shard.id] = replace(shard, resumed=True)
    for entry in _entries(journal):
        have = shards.get(entry.shard_id)
        if have is not None and entry.token >= have.fencing_token:
            moved = _moved(have, entry)
            if moved is None:
                del shards[entry.shard_id]
            else:
                shards[entry.shard_id] = moved
    return [shard for _, shard in sorted(shards.items()) if not shard.suspect]


def _rank(shard: ClaimedShard) -> tuple[int, int]:
    return shard.fencing_token, shard.position.version


def _loaded(bodies: Iterable[bytes]) -> Iterator[ClaimedShard]:
    for body in bodies:
        with suppress(ValueError):  # a newer version wrote it
            yield journalcodec.load_shard(body)


def _entries(journal: Journal) -> Iterator[Entry]:
    after = 0
    while entries := journal.entries(after):
        yield from entries
        after = entries[-1].seq


def _moved(shard: ClaimedShard, entry: Entry) -> ClaimedShard | None:
    """The shard once the record is told; None if it ended, or nobody knows where it stands."""
    if entry.token != shard.fencing_token:
        return None  # of a later claim
    try:
        record = journalcodec.load(entry.kind, entry.body)
    except ValueError:
        return None
    folded = fold(shard.position, [record], ())
    if folded.ending is not None or folded.behind:
        return None
    if folded.nothing_new:
        return replace(shard, position=folded.position)
    last_page = folded.last_page or shard.shard.last_page
    return replace(
        shard,
        shard=replace(shard.shard, last_page=last_page),
        position=replace(folded.position, version=shard.position.version + 1),
        suspect=False,
    )
