"""Sites that block: what a crawl takes for a page, what it stores, and what it says then."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, wait_until
from tests.acceptance.test_health import (
    BOUNDED,
    OPEN_ENDED,
    assert_blocked,
    assert_resumes,
)
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.threesites import three_sites
from tests.acceptance.tiers import mostly_on, rarely

LATER = {"RESUME_BACKOFF_BASE": 1000, "RESUME_BACKOFF_MAX": 1000}  # hardly in the same process


@pytest.mark.parametrize(
    "spider",
    [
        pytest.param(CHAIN, id="chain"),
        rarely(BOUNDED, id="bounded"),
        pytest.param(OPEN_ENDED, id="open"),
    ],
)
def test_blk_1_a_captcha_with_status_200_is_no_page(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    """Page 4 still holds its items: the site shows them, but no more than that."""
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "RESUME_SHARDS": 1}
    bench.site.behave(from_page=5, challenge=True)
    bench.write(spider)
    with bench.requests() as asked:
        crawl = bench.crawl()
    assert_blocked(bench, crawl, watermark=4)
    assert asked.total() <= 4 + 5 + 2, asked
    assert_resumes(bench, reference(spider))


def test_blk_1_the_peers_of_a_blocked_shard_stop_too(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "RESUME_SHARDS": 1}
    bench.write(NUMBERED)
    held = bench.site.behave(page={2, 6}, hold=True)
    crawl, other = bench.start(), bench.start(home="other")
    wait_until(lambda: held.hits == 2)
    bench.site.behave(path="/list", challenge=True)
    held.release()
    for one in (crawl.wait(), other.wait()):
        assert one.finish_reason == "resume_blocked", one.tail
    bench.assert_sound()
    assert bench.committed() == {1, 2, 5, 6}
    assert bench.site.hits() <= 4 + 2 * (5 + 2)
    assert all(shard["attempt_count"] == 0 for shard in bench.shards)
    assert_resumes(bench, reference(NUMBERED))


def test_blk_1_one_captcha_is_asked_for_again(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.site.behave(page=5, challenge=True, times=1)
    bench.write(NUMBERED)
    crawl = bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert bench.site.hits(page=5) == 2
    assert crawl.stats["resume/pages/retried"] == 1


LOGIN = """\
    async def warm_up(self):
        await self.fetch(scrapy.Request(SITE + "/start"))
"""


def test_blk_2_a_redirect_to_the_login_is_no_page(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=5, redirect="/login")
    bench.write(CHAIN)
    crawl = bench.crawl(**ONE_BY_ONE)
    assert_blocked(bench, crawl, watermark=5)
    assert "/login" in crawl.stats["resume/verdict_reason"]
    assert_resumes(bench, reference(CHAIN))


@pytest.mark.parametrize("spider", [CHAIN, NUMBERED], ids=["chain", "bounded"])
def test_blk_2_a_spider_that_logs_in_does_so_again(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", redirect="/login", unless_cookie="session", views=5)
    bench.write(spider + LOGIN)
    bench.crawl(RESUME_PAGE_RETRIES=4)  # several pages may be on their way at each logout
    bench.assert_complete(reference(spider))
    assert bench.site.hits(path="/start") >= 3


def test_blk_2_a_login_that_does_not_help_is_not_repeated(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=5, redirect="/login")
    bench.write(CHAIN + LOGIN)
    crawl = bench.crawl(**ONE_BY_ONE)
    assert_blocked(bench, crawl, watermark=5)
    assert bench.site.hits(path="/start") == 2


def test_blk_3_a_429_with_retry_after_is_waited_for(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(page=6, status=429, retry_after=1, times=3)
    bench.write(CHAIN)
    crawl = bench.crawl(RESUME_PAGE_RETRIES=3, RESUME_MAX_WAIT=60)
    bench.assert_complete(reference(CHAIN))
    times = [r.time for r in bench.site.requests if r.page == 6]
    assert len(times) == 4 and all(b - a >= 0.9 for a, b in pairwise(times))
    assert crawl.stats["resume/pages/retried"] == 3
    assert bench.site.hits() == 12 + 3


@pytest.mark.parametrize("status", [rarely(403), rarely(503), 999])
def test_blk_3_a_site_that_refuses_everything_is_blocked_and_left_alone(
    sqlite_bench: Bench, reference: Reference, status: int
) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=2, status=status)
    bench.write(BOUNDED)
    crawl = bench.crawl(RESUME_HEALTH_LEAST=4, RESUME_PAGE_RETRIES=0, RETRY_TIMES=0)
    bench.assert_sound()
    assert crawl.finish_reason == "resume_blocked"
    assert f"HTTP {status}" in crawl.stats["resume/verdict_reason"]
    assert (bench.shard["attempt_count"], bench.shard["error_kind"]) == (0, "blocked")
    assert bench.site.hits() <= 2 + 4 + 4
    assert crawl.stats["resume/health/blocked"] == 1
    assert_resumes(bench, reference(NUMBERED))


@pytest.mark.parametrize("status", [403, rarely(999)])
def test_blk_3_one_page_that_is_always_refused_is_its_own_fault(
    sqlite_bench: Bench, reference: Reference, status: int
) -> None:
    """A page known to hold items is asked for once more, and is well."""
    bench = sqlite_bench
    bench.write(CHAIN)
    bench.crawl_killed("commit.after:5", **ONE_BY_ONE)
    bench.site.behave(page=6, status=status)
    with bench.requests() as asked:
        crawl = bench.crawl(**ONE_BY_ONE, **LATER)
    bench.assert_sound()
    assert (bench.watermark, crawl.finish_reason) == (5, "resume_incomplete")
    assert f"page 6: HttpError: HTTP {status}" in crawl.stats["resume/verdict_reason"]
    assert (bench.shard["attempt_count"], bench.shard["failed_pages"]) == (1, "6")
    assert asked[1] == 1 and set(asked) == {1, 6} and asked[6] <= 2
    assert_resumes(bench, reference(CHAIN))


def assert_refused(bench: Bench, reference: dict[str, str], *, known: int) -> None:
    """A chain that reads pages 6 and on, of a site that refuses everything, spends nothing."""
    crawl = bench.crawl(**ONE_BY_ONE, **LATER)
    assert_blocked(bench, crawl, watermark=5)
    assert bench.shard["failed_pages"] == ""
    said = crawl.stats["resume/verdict_reason"]
    assert f"page {known} of shard" in said and "which held items before, failed" in said
    assert_resumes(bench, reference)


@pytest.mark.parametrize("refusal", [{"status": 403}, {"reset": True}], ids=["403", "reset"])
def test_blk_3_a_lone_chain_that_is_refused_everything_spends_no_attempt(
    sqlite_bench: Bench, reference: Reference, refusal: dict[str, Any]
) -> None:
    """Only its own page is seen to fail, until the one before it is asked for once more."""
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=5, **refusal)
    bench.write(CHAIN)
    assert_refused(bench, reference(CHAIN), known=5)


@mostly_on("mariadb")
def test_blk_3_nor_does_a_chain_of_a_process_that_has_read_nothing_itself(
    bench: Bench, reference: Reference
) -> None:
    bench.write(CHAIN)
    bench.settings = {"RESUME_JOURNAL": False}
    bench.crawl_killed("commit.after:5", **ONE_BY_ONE)
    bench.site.behave(path="/list", status=503)
    assert_refused(bench, reference(CHAIN), known=1)


@pytest.mark.parametrize("spider", [CHAIN, OPEN_ENDED], ids=["chain", "open"])
def test_blk_3_a_list_that_is_refused_from_the_first_page_on_is_tried_again(
    sqlite_bench: Bench, spider: str
) -> None:
    """Nothing that could be asked for instead is known: attempts are spent."""
    bench = sqlite_bench
    bench.write(spider)
    bench.crawl()  # what an earlier run stored is no page of this one
    bench.site.behave(path="/list", status=503)
    crawl = bench.crawl(**LATER, RETRY_TIMES=0)
    assert crawl.finish_reason == "resume_nothing_read"
    assert bench.shard["attempt_count"] >= 1 and bench.shard["error_kind"] == "retryable"


@mostly_on("mariadb")
def test_blk_4_retries_used_up_on_one_page_leave_a_hole_on_record(
    bench: Bench, reference: Reference
) -> None:
    bench.site.behave(page=5, reset=True)
    bench.write(BOUNDED)
    crawl = bench.crawl(**LATER, RESUME_PAGES_IN_FLIGHT=4)
    bench.assert_sound()
    assert crawl.finish_reason == "resume_incomplete"
    assert (bench.watermark, bench.shard["failed_pages"]) == (4, "5")
    assert bench.committed() == set(range(1, 13)) - {5}
    assert "page 5" in crawl.stats["resume/verdict_reason"]
    bench.site.heal()
    bench.due_at_once()
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {5: 1}
    bench.assert_complete(reference(BOUNDED))


SAYS_NO = """\
    def check_page(self, response, page):
        if response.headers.get("Content-Type") == b"application/json":
            if "error" in response.json():
                raise NotAPage(response.json()["error"]["code"])
        elif b"400 bad request" in response.body:
            raise NotAPage("the proxy refused")
"""


def test_blk_5_a_200_that_means_no_is_asked_for_again(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    limited, json = '{"error": {"code": "rate_limited"}}', "application/json"
    bench.site.behave(page=5, body=limited, content_type=json, times=2)
    bench.site.behave(page=8, body="400 bad request", times=2)
    bench.site.behave(page=9, body='{"rows": [', content_type=json, times=2)
    bench.write(NUMBERED + SAYS_NO)
    crawl = bench.crawl(RESUME_PAGE_RETRIES=2)
    bench.assert_complete(reference(NUMBERED))
    assert [bench.site.hits(page=page) for page in (5, 8, 9)] == [3, 3, 3]
    assert crawl.stats["resume/pages/retried"] == 6


def test_blk_6_a_redesign_overwrites_nothing_and_is_no_success(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    bench.crawl()
    before = bench.items
    bench.site.behave(path="/list", renamed=True)
    bench.settings = {**bench.settings, "RESUME_PAGES_IN_FLIGHT": 1}
    with bench.requests() as asked:
        _, *words = bench.words("rows")
        crawl = bench.run_scrapy("resume", "run", *words).wait()
    assert bench.items == before == reference(NUMBERED)
    assert asked.total() <= 5 + 3, asked  # kept back, and one in flight of each shard
    assert_blocked(bench, crawl, watermark=0)
    assert "unhealthy" in crawl.stats["resume/verdict_reason"]
    assert crawl.code == 12
    assert_resumes(bench, before)


ROBOTS = {"ROBOTSTXT_OBEY": True, **LATER}


@pytest.mark.parametrize(
    ("spider", "page"),
    [
        pytest.param(CHAIN, 1, id="chain-1"),
        rarely(CHAIN, 7, id="chain-7"),
        rarely(NUMBERED, 1, id="numbered-1"),
        pytest.param(NUMBERED, 7, id="numbered-7"),
    ],
)
def test_blk_7_what_robots_txt_forbids_is_said_with_its_page(
    sqlite_bench: Bench, reference: Reference, spider: str, page: int
) -> None:
    bench = sqlite_bench
    path = "/list" if page == 1 else f"/list?page={page}"
    bench.site.access.robots = f"User-agent: *\nDisallow: {path}\n"
    bench.write(spider)
    crawl = bench.crawl(**ROBOTS)
    bench.assert_sound()
    verdict = "nothing_read" if page == 1 else "incomplete"
    assert crawl.finish_reason == f"resume_{verdict}"
    said = f"page {page}: IgnoreRequest: Forbidden by robots.txt"
    assert said in crawl.stats["resume/verdict_reason"]
    assert bench.site.hits(page=page) == 0 and page not in bench.committed()
    assert {shard["error_kind"] for shard in bench.shards} <= {None, "permanent"}
    bench.site.access.robots = "User-agent: *\nAllow: /\n"
    bench.due_at_once()
    bench.crawl(**ROBOTS)
    bench.assert_complete(reference(spider))


@pytest.mark.parametrize("what", ["redirect to a 404", "time out"])
def test_blk_7_without_a_robots_txt_everything_is_allowed(
    sqlite_bench: Bench, reference: Reference, what: str
) -> None:
    """As Scrapy has it, and as the documentation says."""
    bench = sqlite_bench
    slow = {"hold": True} if what == "time out" else {"redirect": "/nowhere"}
    bench.site.behave(path="/robots.txt", **slow)
    bench.write(NUMBERED)
    bench.crawl(ROBOTSTXT_OBEY=True, DOWNLOAD_TIMEOUT=1)
    assert bench.site.hits(path="/robots.txt") >= 1
    bench.assert_complete(reference(NUMBERED))


FLEET: dict[str, Any] = {
    "RESUME_PAGES_IN_FLIGHT": 1,
    "RESUME_SITE_SHARDS": 3,
    "RESUME_HEARTBEAT": 0.2,
    "RESUME_LEASE": 5,
    "RESUME_MAX_WAIT": 600,
    "RESUME_HEALTH_LEAST": 3,
    "RESUME_HEALTH_WAIT": 0.4,
    "RESUME_HEALTH_WAIT_MAX": 0.8,
    "RETRY_TIMES": 0,
}


def test_a_fleet_reads_two_sites_while_the_third_blocks(mariadb_bench: Bench) -> None:
    """The block is not lifted before the others are read; the real times are a stress test."""
    with three_sites(mariadb_bench, (24, 36, 36), size=6, delay=0.1) as world:
        crawls = world.start(**FLEET)
        wait_until(lambda: len(world.sites[0].requests) > 3)
        block = world.block(delay=0.15)
        wait_until(lambda: any(row["error_kind"] == "blocked" for row in world.shards(0)))
        wait_until(lambda: all(row["status"] != "running" for row in world.shards(0)))
        begun = len(block.on_their_way)
        wait_until(lambda: world.is_read(1) and world.is_read(2))
        wait_until(lambda: len(block.on_their_way) >= begun + 2)
        assert all(row["attempt_count"] == (row["status"] == "running") for row in world.shards(0))
        assert max(block.on_their_way[begun:]) == 1
        block.lift()
        for crawl in crawls:
            assert crawl.wait().finish_reason == "finished", crawl.tail
        world.assert_complete()
        asked = [site.hits() for site in world.sites]
        assert asked[1:] == [36, 36] and asked[0] <= 24 + len(block.on_their_way)
