"""Pages that hold nothing, sites that refuse, and what becomes of a run that meets them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, DETAILS, NUMBERED, Bench, Crawl
from tests.acceptance.test_pag import OPEN_ENDED
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.test_spiders import REACTORS
from tests.acceptance.tiers import mostly_on, rarely

BOUNDED = NUMBERED + "    shard_pages = 12\n"
WAYS = {"chain": CHAIN, "bounded": BOUNDED, "open": OPEN_ENDED}
ALL_WAYS = pytest.mark.parametrize("spider", WAYS.values(), ids=WAYS)


def assert_blocked(bench: Bench, crawl: Crawl, *, watermark: int) -> None:
    """The run is blocked at *watermark*, spent no attempt, and holds no page beyond it."""
    bench.assert_sound()
    assert crawl.finish_reason == "resume_blocked", crawl.tail
    assert bench.task["verdict"] is None
    assert bench.committed() == set(range(1, watermark + 1))
    for shard in bench.shards:
        if shard["status"] != "done":
            assert (shard["status"], shard["error_kind"]) == ("pending", "blocked")
            assert shard["attempt_count"] == 0


def assert_resumes(bench: Bench, reference: dict[str, str]) -> None:
    """Once the site is well the run goes on where it stopped, and reads no page twice."""
    done = bench.committed()
    bench.site.heal()
    bench.due_at_once()
    with bench.requests() as asked:
        bench.crawl(RESUME_MAX_WAIT=5)
    bench.assert_complete(reference)
    assert not done & set(asked), (done, asked)


@pytest.mark.parametrize(
    ("what", "spider"),
    [
        *(pytest.param("no_rows", spider, id=f"no_rows-{way}") for way, spider in WAYS.items()),
        pytest.param("challenge", BOUNDED, id="challenge-bounded"),
        pytest.param("renamed", OPEN_ENDED, id="renamed-open"),
        rarely("challenge", CHAIN, id="challenge-chain"),
        rarely("challenge", OPEN_ENDED, id="challenge-open"),
        rarely("renamed", CHAIN, id="renamed-chain"),
        rarely("renamed", BOUNDED, id="renamed-bounded"),
    ],
)
def test_a_site_that_hides_its_list_from_some_moment_on(
    sqlite_bench: Bench, reference: Reference, spider: str, what: str
) -> None:
    """By time: also the pages read before look so when they are asked for again."""
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "RESUME_SHARDS": 1}
    bench.site.behave(path="/list", skip=4, **{what: True, "no_next": what == "no_rows"})
    bench.write(spider)
    with bench.requests() as asked:
        crawl = bench.crawl()
    assert_blocked(bench, crawl, watermark=4)
    assert asked.total() <= 4 + 5 + 2, asked
    again = bench.crawl() if bench.due_at_once() is None else None
    assert again is not None
    assert_blocked(bench, again, watermark=4)
    assert_resumes(bench, reference(spider))


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_list_that_is_hidden_is_noticed_in_every_event_loop(
    sqlite_bench: Bench, reference: Reference, reactor: str
) -> None:
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, **REACTORS[reactor]}
    bench.site.behave(path="/list", skip=4, no_rows=True, no_next=True)
    bench.write(OPEN_ENDED)
    assert_blocked(bench, bench.crawl(), watermark=4)
    assert_resumes(bench, reference(OPEN_ENDED))


@pytest.mark.parametrize("spider", [CHAIN, BOUNDED], ids=["chain", "bounded"])
@mostly_on("mariadb")
def test_a_true_empty_page_is_stored_once_the_site_is_known_to_be_well(
    bench: Bench, reference: Reference, spider: str
) -> None:
    bench.site.behave(page=12, no_rows=True)
    bench.write(spider)
    bench.crawl(**ONE_BY_ONE)
    expected = {k: v for k, v in reference(spider).items() if k not in bench.served[12]}
    bench.assert_sound({page: keys for page, keys in bench.served.items() if page != 12})
    assert (bench.task["verdict"], bench.items) == ("complete", expected)
    assert bench.committed() == set(range(1, 13))
    assert bench.site.pages()[-1] == 11  # the page known to have items was asked for again


def test_a_list_shorter_than_stated_ends_with_its_true_empty_pages(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.listing.rows = bench.site.listing.rows[:30]
    bench.write(NUMBERED + "    last_page = 30\n    shard_pages = 15\n")
    crawl = bench.crawl()
    assert bench.task["verdict"] == "complete", crawl.tail
    assert len(bench.items) == 30
    assert set(range(1, 31)) == bench.committed()
    assert bench.site.hits() <= 30 + 30 // 5 + 2


def test_an_empty_page_that_says_that_the_list_ends_is_believed(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=9, challenge=True)  # that is how this list ends
    bench.write(
        OPEN_ENDED
        + """
    def parse(self, response):
        yield from rows(response)
        if response.css("#challenge-form"):
            yield self.end_of_shard("no more rows")
"""
    )
    bench.crawl()
    assert (bench.task["verdict"], bench.watermark) == ("complete", 8)
    assert max(bench.site.hits(page=page) for page in range(1, 9)) == 1


def test_the_first_run_over_a_list_without_items_is_as_empty_as_the_list(
    sqlite_bench: Bench,
) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", no_rows=True)
    bench.write(NUMBERED)
    bench.crawl()
    assert bench.task["verdict"] == "complete"
    assert bench.committed() == set(range(1, 13)) and bench.site.hits() == 12


def test_a_worker_that_joins_a_blocked_site_believes_no_empty_page(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """It has seen no page with items itself; the run has stored some."""
    bench = sqlite_bench
    bench.write(NUMBERED)
    bench.crawl_killed("commit.after:3", **ONE_BY_ONE)
    done = bench.committed()
    bench.site.behave(path="/list", challenge=True)
    crawl = bench.crawl()
    bench.assert_sound()
    assert (crawl.finish_reason, bench.committed()) == ("resume_blocked", done)
    assert_resumes(bench, reference(NUMBERED))


def test_with_health_off_every_page_is_taken_as_it_comes(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=5, challenge=True)
    bench.write(NUMBERED)
    bench.crawl(RESUME_HEALTH=False)
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 40)


@mostly_on("mariadb")
def test_a_kill_while_pages_are_doubted_loses_none(bench: Bench, reference: Reference) -> None:
    bench.settings = {"RESUME_JOURNAL": False}  # else a page may wait in it for its COMMIT
    bench.site.behave(page={3, 4}, no_rows=True)
    held = bench.site.behave(page=5, hold=True)
    bench.write(CHAIN)
    crawl = bench.start(**ONE_BY_ONE)
    held.wait()
    crawl.kill()
    assert bench.watermark == 2
    bench.site.heal()
    bench.crawl()
    bench.assert_complete(reference(CHAIN))


# Redirects


def test_a_list_that_moved_is_followed(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    for page in range(1, 13):
        bench.site.behave(path=f"/item/p{page}", redirect=f"/list?page={page}")
    bench.write(NUMBERED + "    page_url = SITE + '/item/p{page}'\n")
    crawl = bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert "resume/pages/retried" not in crawl.stats


# Answers


@pytest.mark.parametrize("reactor", REACTORS)
def test_details_wait_too_when_the_site_asks_for_a_pause(
    sqlite_bench: Bench, reference: Reference, reactor: str
) -> None:
    bench = sqlite_bench
    bench.settings = REACTORS[reactor]
    bench.site.behave(path="/item/k015", status=429, retry_after=1, times=1)
    bench.write(DETAILS)
    crawl = bench.crawl(RESUME_MAX_WAIT=60)
    bench.assert_complete(reference(DETAILS))
    assert "resume/pages/held" not in crawl.stats
    times = [r.time for r in bench.site.requests if r.path == "/item/k015"]
    assert len(times) == 2 and times[1] - times[0] >= 0.9


def test_a_site_that_asks_for_more_time_than_is_waited_is_blocked_for_it(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(page=6, status=429, retry_after=3000)
    bench.write(NUMBERED)
    crawl = bench.crawl(RESUME_BACKOFF_MAX=3600)
    assert crawl.finish_reason == "resume_blocked", crawl.tail
    assert "asked for 3000 s of rest" in crawl.stats["resume/verdict_reason"]
    assert bench.site.hits(page=6) == 1
    assert_resumes(bench, reference(NUMBERED))


@pytest.mark.parametrize("spider", [DETAILS], ids=["details"])
def test_details_that_a_blocked_site_refuses_are_not_set_aside(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/item/*", skip=15, status=403)
    bench.write(spider + "    shard_pages = 12\n")
    crawl = bench.crawl(RESUME_HEALTH_LEAST=4, RETRY_TIMES=0, RESUME_PAGES_IN_FLIGHT=1)
    bench.assert_sound()
    assert crawl.finish_reason == "resume_blocked"
    assert len(bench.quarantine) <= 4  # before the site was known to be blocked
    bench.site.heal()
    bench.due_at_once()
    bench.crawl(RESUME_MAX_WAIT=5)
    assert bench.task["verdict"] in ("complete", "complete_with_rejects")


@pytest.mark.parametrize("least", [10, 100], ids=["by its answers", "by a check"])
def test_what_is_refused_before_a_site_is_judged_is_not_set_aside(
    sqlite_bench: Bench, reference: Reference, least: int
) -> None:
    """All is refused from some detail of page 2 on, in fewer answers than block a site."""
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "CONCURRENT_REQUESTS": 1}
    bench.site.behave(skip=11 + 4, status=403)
    bench.write(DETAILS + "    shard_pages = 12\n")
    crawl = bench.crawl(RESUME_HEALTH_LEAST=least)
    assert_blocked(bench, crawl, watermark=1)
    assert not bench.quarantine
    assert bench.site.hits() <= 2 + 5 + 1
    assert_resumes(bench, reference(DETAILS))


@pytest.mark.parametrize("bad", ["k015", "k111"])
def test_one_detail_that_is_refused_costs_no_request_unless_it_is_the_last(
    sqlite_bench: Bench, bad: str
) -> None:
    bench = sqlite_bench
    bench.site.behave(path=f"/item/{bad}", status=403)
    bench.write(DETAILS + "    shard_pages = 12\n")
    bench.crawl(**ONE_BY_ONE, CONCURRENT_REQUESTS=1)
    assert bench.task["verdict"] == "complete_with_rejects"
    assert [row["url"][-4:] for row in bench.quarantine] == [bad]
    assert bench.site.hits() == 12 + (bad == "k111")


def test_a_cached_answer_says_nothing_of_the_site(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    cache: dict[str, Any] = {"HTTPCACHE_ENABLED": True}
    bench.crawl(**cache)
    bench.site.behave(path="/list", status=403)
    with bench.requests() as asked:
        crawl = bench.crawl(**cache)
    assert (crawl.finish_reason, asked.total()) == ("finished", 0)


PROXIES = """\
class ChangesProxies:
    \"\"\"The first proxy of every page is dead.\"\"\"

    def process_request(self, request):
        if "tries" not in request.meta:
            request.meta["proxy"] = "http://127.0.0.1:1"

    def process_exception(self, request, exception):
        again = request.replace(dont_filter=True)
        again.meta.pop("proxy")
        again.meta["tries"] = 1
        return again
"""


def test_a_proxy_that_is_changed_in_time_says_nothing_of_the_site(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """As the documentation has it: closer to the downloader, and only its last word counts."""
    bench = sqlite_bench
    settings = 'DOWNLOADER_MIDDLEWARES = {"bench.proxies.ChangesProxies": 700}\n'
    bench.write(NUMBERED, settings=settings, proxies=PROXIES)
    crawl = bench.crawl(RESUME_HEALTH_LEAST=2, RESUME_PAGE_RETRIES=0, RETRY_TIMES=0)
    bench.assert_complete(reference(NUMBERED))
    assert crawl.stats["downloader/exception_count"] == 12


def test_waiting_for_a_site_is_no_latency_to_autothrottle(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(page=2, status=429, retry_after=1, times=1)
    bench.write(NUMBERED)
    throttled = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.01}
    crawl = bench.crawl(**throttled, RESUME_MAX_WAIT=60, AUTOTHROTTLE_DEBUG=True)
    bench.assert_complete(reference(NUMBERED))
    latencies = [float(ms) for ms in re.findall(r"latency: *(\d+) ms", crawl.log)]
    assert sorted(latencies)[len(latencies) // 2] < 900  # most of them waited
