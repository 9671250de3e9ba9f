"""A crawl whose pages go into the journal first."""

from __future__ import annotations

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import DETAILS, NUMBERED, Bench
from tests.acceptance.test_txn import QUICK, of_ours, relayed
from tests.proxy import Proxy

__all__ = ["relayed"]  # a fixture


def test_a_crawl_on_a_server_goes_through_the_journal(
    mariadb_bench: Bench, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.write(DETAILS)
    crawl = bench.crawl()
    bench.assert_complete(reference(DETAILS))
    assert crawl.stats["resume/journal/pages"] == crawl.stats["resume/pages/committed"] == 12
    assert 1 <= crawl.stats["resume/journal/syncs"] <= 14
    assert crawl.stats["resume/journal/left"] == crawl.stats["resume/journal/pending"] == 0


def test_at_the_quota_nothing_is_asked_for_until_half_of_it_is_stored(
    relayed: Bench, proxy: Proxy, reference: Reference
) -> None:
    """In an outage, and what is on its way when it is reached comes on top."""
    bench, spider = relayed, NUMBERED + "    last_page = 40\n    shard_pages = 40\n"
    bench.site.listing.__init__(pages=40, rows=10)  # type: ignore[misc]
    bench.write(spider, settings=QUICK)
    held = bench.site.behave(page=5, hold=True)
    crawl = bench.start(RESUME_JOURNAL_MAX_PAGES=8, RESUME_PAGES_IN_FLIGHT=2)
    held.wait()
    proxy.leave()
    bench.site.heal()
    crawl.wait_until_logged("The journal is full")
    crawl.wait_until_logged("The database is away")
    # Eight are in the journal and two on their way; how many were stored before is chance.
    assert len(bench.site.requests) < 32
    proxy.come_back()
    crawl.wait()
    bench.assert_complete(reference(spider, pages=40))
    assert "The journal has room again" in crawl.log
    assert sorted(bench.site.pages()) == list(range(1, 41))


def test_a_journal_that_cannot_be_written_for_a_moment(
    mariadb_bench: Bench, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.write(NUMBERED)
    crawl = bench.crawl(RESUME_FAULT="journal.append:2:raise", RESUME_PAGES_IN_FLIGHT=1)
    bench.assert_complete(reference(NUMBERED))
    assert crawl.finish_reason == "finished"
    (line,) = of_ours(crawl, "ERROR")
    assert "nothing more is asked for until it can be written" in line
    assert "can be written again: the crawl goes on" in crawl.log
    assert crawl.stats["resume/journal/failed"] == 1
    assert crawl.stats["resume/journal/left"] == 0
