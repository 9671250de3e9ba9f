"""What a replay would do, for whoever wants to know before."""

from __future__ import annotations

from scrapy_resume.lostpages import is_unwanted, same_shard
from scrapy_resume.recordreplay import GROUP, Replay
from scrapy_resume.replayed import Replayed
from scrapy_resume.store.fences import fold
from scrapy_resume.store.records import PageRecord
from scrapy_resume.store.standings import Standing, standings
from scrapy_resume.watermark import Position


class Survey(Replay):
    """A replay that only looks. What the database would refuse it cannot know."""

    def result(self) -> Replayed:
        """What :meth:`steps` would do."""
        after, total, stands = 0, Replayed(), dict[int, Position]()
        while entries := self.journal.entries(after, GROUP):
            after = entries[-1].seq
            records = [one for entry in entries if (one := self.read(entry))]
            total += Replayed(unread=len(entries) - len(records))
            now = standings(self.db, {one.shard_id for one in records})
            for record in records:
                if isinstance(record, PageRecord):
                    total += self._outlook(record, now.get(record.shard_id), stands)
        return total

    def _outlook(
        self, page: PageRecord, now: Standing | None, stands: dict[int, Position]
    ) -> Replayed:
        base = self.base(page.shard_id, page.fencing_token)
        now = same_shard(now, base)
        position = stands.get(page.shard_id, now.position) if now is not None else None
        if position is not None and position.has(page.page):
            return Replayed(stored=1)
        if position is not None and self.is_ours(page, now):
            folded = fold(position, [page], ())
            stands[page.shard_id] = folded.position
            if folded.pages:
                return Replayed(pages=1, items=len(page.rows))
        unwanted = is_unwanted(now, base, page.fencing_token)
        return Replayed(dropped=1) if unwanted else Replayed(salvaged=1)
