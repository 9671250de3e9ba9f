"""Blocked and paused sites as a fleet sees them: parked, tried by one worker, and read on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scrapy_resume.store import health
from tests.acceptance.conftest import Reference
from tests.acceptance.harness import NUMBERED, Bench, Crawl, wait_until
from tests.acceptance.tiers import mostly_on

HEARTBEAT = 0.4
SHOP = """
class Rows(Numbered):
    name = 'rows'

    def plan(self):
        for first in range(1, 12, 3):
            site = "bad" if first > 6 else "good"
            yield Shard(f"{first}-{first + 2}", first, first + 2, site=site)
"""
PROBED = (
    SHOP
    + """
    def probe(self, site):
        if site == "bad":
            return Request(SITE + "/list?page=2")
"""
)
SETTINGS: dict[str, Any] = {
    "RESUME_LEASE": 5 * HEARTBEAT,
    "RESUME_HEARTBEAT": HEARTBEAT,
    "RESUME_HEALTH_LEAST": 3,
    "RESUME_HEALTH_WAIT": 1.5,
    "RESUME_PAGE_RETRIES": 0,
    "RETRY_TIMES": 0,
}
WHO: dict[str, Any] = {"actor": "alice@desk", "reason": "they asked us to"}
# What the site does, and what a try costs: an empty page is weighed by a known one.
REFUSED = pytest.mark.parametrize(
    ("what", "costs"), [({"status": 503}, 1), ({"challenge": True}, 2)], ids=["refused", "hidden"]
)


def row(bench: Bench, site: str = "bad") -> health.SiteRow | None:
    return next(iter(health.sites(bench.database, [site])), None)


def bad(bench: Bench) -> list[Mapping[str, Any]]:
    return [shard for shard in bench.shards if shard["site"] == "bad"]


def assert_parked(bench: Bench) -> health.SiteRow:
    """The bad site is blocked, and what is left of it waits without an attempt spent."""
    bench.assert_sound()
    found = row(bench)
    assert found is not None and found.state == "blocked"
    for shard in bad(bench):
        assert (shard["status"], shard["attempt_count"]) == ("pending", 0)
    return found


def blocked(bench: Bench, spider: str = SHOP, **given: Any) -> Crawl:
    """A crawl that ends since the bad site is blocked; the good one was read."""
    bench.write(spider)
    bench.settings = SETTINGS | {"RESUME_HEALTH_WAIT": 900, "RESUME_PAGES_IN_FLIGHT": 1}
    crawl = bench.crawl(**given)
    assert crawl.finish_reason == "resume_blocked", crawl.tail
    assert [s["status"] for s in bench.shards if s["site"] == "good"] == ["done", "done"]
    return crawl


def test_one_worker_at_a_time_tries_a_blocked_site_also_when_it_dies(
    mariadb_bench: Bench, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.write(SHOP)
    bench.settings = SETTINGS | {"RESUME_MAX_WAIT": 60, "RESUME_SHARDS": 2, "RESUME_RUN": "one"}
    rule = bench.site.behave(from_page=7, status=403)
    for number in range(3):
        bench.start(home=f"machine-{number}")
    bench.site.wait_for(page=7)
    wait_until(lambda: (found := row(bench)) is not None and found.state == "blocked")
    wait_until(lambda: not any(shard["status"] == "running" for shard in bad(bench)))
    assert rule.hits >= 3
    bench.site.heal()
    held = bench.site.behave(from_page=7, hold=True)
    held.wait()
    ends = set()  # of the right; it is renewed with every heartbeat
    wait_until(lambda: ends.add(row(bench).probe_until) is None and len(ends) > 4)  # type: ignore[union-attr]
    assert held.hits == 1
    first = row(bench)
    assert first is not None
    (dead,) = [w for w in workers(bench) if w["instance"] == first.probe_instance]
    next(crawl for crawl in bench.crawls if crawl.process.pid == dead["pid"]).kill()
    wait_until(lambda: held.hits == 2)
    second = row(bench)
    assert second is not None and second.probe_instance != first.probe_instance
    bench.site.heal()
    for crawl in bench.crawls:
        crawl.process.wait(60)
    bench.assert_complete(reference(NUMBERED))
    kinds = [act["kind"] for act in bench.snapshot().operations]
    assert (kinds.count("site_blocked"), kinds.count("site_healthy")) == (1, 1)
    assert [shard["failed_pages"] for shard in bad(bench)] == ["", ""]


def workers(bench: Bench) -> list[Mapping[str, Any]]:
    table = bench.database.tables.worker
    return bench.database.look(
        lambda conn: [dict(r) for r in conn.execute(table.select()).mappings()]
    )


@REFUSED
def test_a_blocked_site_is_asked_for_nothing_before_its_time_and_tried_once_then(
    sqlite_bench: Bench, reference: Reference, what: dict[str, Any], costs: int
) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=7, skip=1, **what)
    crawl = blocked(bench)
    assert "the site is blocked: " in crawl.stats["resume/verdict_reason"]
    assert "the next try is due in" in crawl.stats["resume/verdict_reason"]
    first = assert_parked(bench)
    with bench.requests() as asked:
        assert bench.crawl().finish_reason == "resume_blocked"
    assert not asked
    bench.due_at_once()
    with bench.requests() as asked:
        again = bench.crawl(RETRY_TIMES=2)  # of which a try makes no use
    assert again.finish_reason == "resume_blocked"
    assert asked.total() == costs, asked
    assert again.stats["resume/health/probes"] == again.stats["resume/health/probes_failed"] == 1
    second = assert_parked(bench)
    assert first.wait_ms == 900_000 and second.wait_ms == 1_800_000
    assert all(shard["error_kind"] == "blocked" for shard in bad(bench) if shard["version"])
    bench.site.heal()
    bench.due_at_once()
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert set(asked.values()) == {1}


def test_a_process_waits_for_a_blocked_site_and_tries_it_until_it_is_well(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(SHOP)
    bench.settings = SETTINGS | {"RESUME_MAX_WAIT": 30, "RESUME_HEALTH_WAIT": 0.3}
    bench.site.behave(from_page=7, status=403)
    crawl = bench.start()
    bench.site.wait_for(page=7)
    wait_until(lambda: (found := row(bench)) is not None and (found.wait_ms or 0) >= 600)
    bench.site.heal()
    crawl.wait()
    bench.assert_complete(reference(NUMBERED))
    assert crawl.stats["resume/health/probes"] == crawl.stats["resume/health/probes_failed"] + 1


def test_what_probe_says_is_asked_for_and_not_stored(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=7, status=403)
    blocked(bench, PROBED)
    bench.due_at_once()
    bench.site.behave(page=2, no_rows=True, times=1)
    with bench.requests() as asked:
        assert bench.crawl().finish_reason == "resume_blocked"
    assert asked == {2: 1}
    bench.due_at_once()
    bench.site.heal()
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert asked == {2: 1} | dict.fromkeys(range(7, 13), 1)


def test_an_empty_page_is_no_sign_that_a_site_is_well(sqlite_bench: Bench) -> None:
    """It is doubted: a page known to have items is asked for before the site passes."""
    bench = sqlite_bench
    bench.site.behave(from_page=8, status=403)
    blocked(bench)
    assert 7 in bench.committed()
    bench.due_at_once()
    bench.site.heal()
    bench.site.behave(from_page=7, no_rows=True)
    with bench.requests() as asked:
        assert bench.crawl().finish_reason == "resume_blocked"
    assert asked.total() == 2 and asked[7] == 1, asked
    assert_parked(bench)


@mostly_on("mariadb")
def test_the_shards_of_a_paused_site_are_given_back_and_the_others_read(
    bench: Bench, reference: Reference
) -> None:
    bench.write(SHOP)
    bench.settings = SETTINGS | {"RESUME_PAGES_IN_FLIGHT": 1}
    held = bench.site.behave(page={7, 10}, hold=True)
    crawl = bench.start()
    wait_until(lambda: held.hits == 2)
    health.pause_site(bench.database, "bad", **WHO)
    beats = set()
    wait_until(lambda: beats.add(workers(bench)[0]["heartbeat_at"]) is None and len(beats) > 3)
    bench.site.heal()  # the pages in flight are stored
    crawl.wait()
    assert crawl.finish_reason == "resume_incomplete", crawl.tail
    bench.assert_sound()
    assert bench.committed() == {1, 2, 3, 4, 5, 6, 7, 10}
    assert bench.site.hits(page=8) == bench.site.hits(page=11) == 0
    assert all(shard["attempt_count"] == 0 for shard in bad(bench))
    assert "parked with their site" in crawl.stats["resume/verdict_reason"]
    assert crawl.log.count("The site bad is paused (") == 1
    health.unpause_site(bench.database, "bad", **WHO)
    bench.crawl()
    bench.assert_complete(reference(NUMBERED))


def test_a_process_without_health_takes_a_blocked_site_once_its_time_is_over(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=7, status=403)
    blocked(bench)
    bench.site.heal()
    with bench.requests() as asked:
        bench.crawl(RESUME_HEALTH=False)
    assert not asked
    bench.due_at_once()
    bench.crawl(RESUME_HEALTH=False)
    bench.assert_complete(reference(NUMBERED))
