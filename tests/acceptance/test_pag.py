"""Page shapes: where a list ends, and where it only seems to."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on, rarely

OPEN_ENDED = """\
class Rows(Numbered):
    name = 'rows'
    last_page = None
"""


def shorten(bench: Bench, pages: int) -> None:
    bench.site.listing.rows = bench.site.listing.rows[: pages * 10]


@mostly_on("sqlite")
def test_pag_1_past_the_end_the_site_shows_page_1_again(bench: Bench, reference: Reference) -> None:
    shorten(bench, 5)
    bench.site.listing.past_end = "first"
    bench.site.listing.next_links = False
    bench.write(OPEN_ENDED)
    for run_no in (1, 2):
        with bench.requests() as asked:
            bench.crawl()
        assert bench.task["run_no"] == run_no
        assert asked.total() <= 7 and set(asked) >= {1, 2, 3, 4, 5, 6}
        assert bench.watermark == 5
        bench.assert_complete(reference(OPEN_ENDED, pages=5))


def test_pag_2_an_empty_page_with_a_next_link_is_a_page(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.behave(page=5, no_rows=True)
    bench.write(CHAIN)
    bench.crawl()
    expected = {k: v for k, v in reference(CHAIN).items() if k not in bench.served[5]}
    assert (bench.watermark, bench.task["verdict"], bench.items) == (12, "complete", expected)


@mostly_on("mariadb")
def test_pag_2_empty_pages_in_the_middle_of_a_counted_list_are_crossed(
    bench: Bench, reference: Reference
) -> None:
    bench.site.listing.next_links = False
    bench.site.behave(page={5, 8, 9}, no_rows=True)
    bench.write(OPEN_ENDED)
    with bench.requests() as asked:
        bench.crawl("rows", "stop_on_empty=3")
    gone = {key for page in (5, 8, 9) for key in bench.served[page]}
    expected = {k: v for k, v in reference(OPEN_ENDED).items() if k not in gone}
    assert (bench.watermark, bench.task["verdict"], bench.items) == (12, "complete", expected)
    assert max(asked) <= 15


def test_pag_2_stopping_at_the_first_empty_page_says_so(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(page=5, no_rows=True)
    bench.write(OPEN_ENDED)
    bench.crawl("rows", "stop_on_empty=1")
    assert (bench.watermark, len(bench.items)) == (4, 40)
    assert "page 5" in bench.shard["reason"] and "empty" in bench.shard["reason"]


@mostly_on("sqlite")
def test_pag_3_a_404_past_the_last_page_is_the_end(bench: Bench, reference: Reference) -> None:
    bench.site.listing.past_end = "404"
    bench.write(OPEN_ENDED)
    crawl = bench.crawl()
    assert bench.watermark == 12
    bench.assert_complete(reference(OPEN_ENDED))
    assert crawl.finish_reason == "finished"
    assert max(bench.site.pages()) <= 14


STATED = """\
class Rows(Numbered):
    name = 'rows'
    last_page = None

    def stated_total(self, response):
        text = response.css("p.total::text").re_first(r"\\d+")
        return int(text) if text else None
"""


@pytest.mark.parametrize(
    ("database_url", "spider"),
    [
        pytest.param("sqlite", CHAIN, id="sqlite-chain"),
        pytest.param("sqlite", NUMBERED, id="sqlite-bounded"),
        pytest.param("sqlite", STATED, id="sqlite-stated"),
        pytest.param("mariadb", CHAIN, id="mariadb-chain"),
        rarely("mariadb", NUMBERED, id="mariadb-bounded"),
        rarely("mariadb", STATED, id="mariadb-stated"),
    ],
    indirect=["database_url"],
)
def test_pag_3_a_404_in_the_middle_is_not_the_end(
    bench: Bench, reference: Reference, spider: str
) -> None:
    bench.site.listing.totals = True
    bench.site.behave(page=5, status=404)
    bench.write(spider)
    crawl = bench.crawl(RESUME_BACKOFF_MAX=60)
    bench.assert_sound()
    assert bench.task["verdict"] is None
    assert crawl.finish_reason == "resume_incomplete"
    assert "page 5" in crawl.stats["resume/verdict_reason"]
    assert "404" in crawl.stats["resume/verdict_reason"]
    assert 5 not in bench.committed() and bench.committed() >= {1, 2, 3, 4}
    bench.site.heal()
    bench.due_at_once()
    bench.crawl()
    bench.assert_complete(reference(spider))


@pytest.mark.parametrize("spider", [CHAIN, OPEN_ENDED], ids=["chain", "open"])
def test_pag_3_a_404_on_the_first_page_is_nothing_read(sqlite_bench: Bench, spider: str) -> None:
    bench = sqlite_bench
    bench.site.behave(page=1, status=404)
    bench.site.behave(from_page=2, status=404)
    bench.write(spider)
    crawl = bench.crawl()
    bench.assert_sound()
    assert crawl.finish_reason == "resume_nothing_read"
    assert crawl.stats["resume/verdict"] == "nothing_read"
    assert bench.committed() == set()


BOUNDED = NUMBERED + "    shard_pages = 12\n"
TOO_DEEP = '{"error": "Result window is too large"}'


@pytest.mark.parametrize(
    ("spider", "refused"),
    [(CHAIN, {6}), (OPEN_ENDED, {6, 7}), (BOUNDED, {6, 7, 8, 12})],
    ids=["chain", "open", "bounded"],
)
def test_pag_5_a_site_that_refuses_to_go_deeper_is_not_hammered(
    sqlite_bench: Bench, reference: Reference, spider: str, refused: set[int]
) -> None:
    """Of a list that states its last page, that one is asked for too: it may be three bad ones."""
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "RESUME_BACKOFF_MAX": 60}
    bench.site.listing.totals = True
    bench.site.behave(from_page=6, status=400, body=TOO_DEEP)
    bench.write(spider)
    for already in (set(range(1, 6)), set[int]()):
        with bench.requests() as asked:
            crawl = bench.crawl()
        bench.assert_sound()
        assert asked == dict.fromkeys(already | refused, 1)
        assert (bench.watermark, bench.task["verdict"]) == (5, None)
        assert crawl.finish_reason == "resume_incomplete"
        assert "depth limit at page 6: " in crawl.stats["resume/verdict_reason"]
        assert "HTTP 400" in crawl.stats["resume/verdict_reason"]
        bench.due_at_once()
    bench.site.heal()
    bench.crawl()
    bench.assert_complete(reference(spider))


@pytest.mark.parametrize("bad", [{5, 6, 7}, {10, 11, 12}], ids=["middle", "end"])
def test_pag_5_pages_behind_a_few_bad_ones_are_read(sqlite_bench: Bench, bad: set[int]) -> None:
    bench = sqlite_bench
    bench.site.behave(page=bad, status=400, body=TOO_DEEP)
    bench.write(BOUNDED)
    crawl = bench.crawl(RESUME_BACKOFF_MAX=60)
    bench.assert_sound()
    assert bench.committed() == set(range(1, 13)) - bad
    assert ("depth limit" in crawl.stats["resume/verdict_reason"]) == (12 in bad)
    assert all(bench.site.hits(page=page) == 1 for page in bad)


POST = {
    "json": """\
from scrapy.http import JsonRequest

class Rows(Numbered):
    name = 'rows'

    def page_request(self, page):
        return JsonRequest(SITE + "/search", data={"page": page.number})

    def parse(self, response):
        yield from response.json()["rows"]
""",
    "form": """\
class Rows(Numbered):
    name = 'rows'

    def page_request(self, page):
        return scrapy.FormRequest(SITE + "/search", formdata={"page": str(page.number)})

    def parse(self, response):
        yield from response.json()["rows"]
""",
    "graphql": """\
from scrapy.http import JsonRequest

class Rows(Chain):
    name = 'rows'
    start_urls = ()

    async def start(self):
        yield self.ask(1)

    def ask(self, page):
        query = {"query": "query L($page: Int) { list(page: $page) { rows } }"}
        return JsonRequest(SITE + "/search", data={**query, "variables": {"page": page}})

    def parse(self, response):
        found = response.json()["data"]["list"]
        yield from found["rows"]
        if found["nextPage"]:
            yield self.next_page(self.ask(found["nextPage"]))
""",
}


@pytest.mark.parametrize("form", POST)
def test_pag_6_post_pages_that_share_one_url(
    sqlite_bench: Bench, reference: Reference, form: str
) -> None:
    bench = sqlite_bench
    bench.write(POST[form])
    bench.settings = {**ONE_BY_ONE, "RESUME_SHARDS": 1}
    bench.crawl_killed("commit.after:6")
    bench.assert_sound()
    done = bench.committed()
    asked = bench.site.pages("/search")
    assert {1, 2, 3, 4, 5} <= done < set(range(1, 13))
    assert done <= set(asked) and len(set(asked) - done) <= 1
    bench.crawl()
    bench.assert_complete(reference(POST[form]))
    assert set(bench.site.pages("/search")) == set(range(1, 13))
    assert not done & set(bench.site.pages("/search")[len(asked) :])


SOLD_OUT: dict[str, str] = {
    "chain": """\
class Rows(Chain):
    name = 'rows'

    def parse(self, response):
        for output in super().parse(response):
            if not (isinstance(output, dict) and number_of(response) == 12):
                yield output
""",
    "bounded": """\
class Rows(Numbered):
    name = 'rows'

    def parse(self, response):
        yield from () if number_of(response) == 12 else rows(response)
""",
}


@pytest.mark.parametrize("way", SOLD_OUT)
def test_pag_8a_a_page_whose_rows_are_all_skipped_is_done(sqlite_bench: Bench, way: str) -> None:
    bench = sqlite_bench
    bench.write(SOLD_OUT[way])
    bench.crawl()
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 110)
    assert bench.committed() == set(range(1, 13))


@pytest.mark.parametrize("spider", [CHAIN, BOUNDED, OPEN_ENDED], ids=["chain", "bounded", "open"])
def test_pag_8b_a_page_whose_selector_broke_is_not_done(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    """The rows are there, and the spider finds none: it stops within five such pages."""
    bench = sqlite_bench
    bench.settings = {**ONE_BY_ONE, "RESUME_SHARDS": 1}
    bench.site.behave(from_page=6, renamed=True)
    bench.write(spider)
    with bench.requests() as asked:
        crawl = bench.crawl()
    bench.assert_sound()
    assert crawl.finish_reason == "resume_blocked"
    assert (bench.watermark, bench.committed()) == (5, set(range(1, 6)))
    assert asked.total() <= 5 + 5 + 2, asked
    assert bench.shard["attempt_count"] == 0
    bench.site.heal()
    bench.due_at_once()
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(spider))
    assert min(asked) == 6


@pytest.mark.parametrize("spider", [CHAIN, OPEN_ENDED], ids=["chain", "open"])
def test_a_body_of_no_bytes_is_no_proof_of_an_end(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=5, body=b"")
    bench.write(spider)
    crawl = bench.crawl()
    bench.assert_sound()
    assert (bench.watermark, bench.task["verdict"]) == (4, None)
    assert crawl.finish_reason == "resume_incomplete"
    assert bench.site.hits(page=5) >= 2  # it was asked for again before it was held
    bench.site.heal()
    bench.crawl(RESUME_MAX_WAIT=5)
    bench.assert_complete(reference(spider))


def test_a_body_of_no_bytes_past_the_end_is_not_the_end_either(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(from_page=13, body=b"")
    bench.write(OPEN_ENDED)
    bench.crawl()
    assert (bench.watermark, bench.task["verdict"]) == (12, None)


@mostly_on("sqlite")
def test_a_chain_that_leads_back_fails_and_ends(bench: Bench) -> None:
    bench.site.behave(page=6, next_page=3)
    bench.write(CHAIN)
    crawl = bench.crawl()
    bench.assert_sound({page: bench.served[page] for page in range(1, 7)})
    assert (bench.shard["status"], bench.task["verdict"]) == ("failed", "incomplete")
    assert "loop" in bench.shard["reason"]
    assert crawl.finish_reason == "resume_incomplete"
    assert len(bench.site.pages()) <= 3 * 12


def test_a_loop_is_found_over_a_restart(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(page=6, next_page=3)
    bench.write(CHAIN)
    for fault in ("commit.after:5", "commit.after:3", "commit.after:3"):
        bench.crawl(RESUME_FAULT=f"{fault}:kill", **ONE_BY_ONE)
    bench.crawl()
    assert (bench.shard["status"], bench.task["verdict"]) == ("failed", "incomplete")
    assert "loop" in bench.shard["reason"]
    assert len(bench.site.pages()) <= 3 * 12 + 3


def test_a_chain_that_names_itself_fails(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(page=4, next_page=4)
    bench.write(CHAIN)
    bench.crawl()
    assert (bench.shard["status"], bench.shard["cur_page"]) == ("failed", 4)
    assert bench.task["verdict"] == "incomplete"


def test_a_next_page_refused_on_its_way_is_not_an_end(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(
        CHAIN
        + """
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        for output in super().parse(response):
            if isinstance(output, Request) and number_of(response) == 5:
                output = output.replace(url="http://elsewhere.invalid/list?page=6")
            yield output
"""
    )
    crawl = bench.crawl()
    bench.assert_sound()
    assert bench.task["verdict"] is None
    assert crawl.finish_reason == "resume_incomplete"
    assert bench.watermark <= 5
