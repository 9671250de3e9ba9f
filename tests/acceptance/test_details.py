"""What belongs to a list page: its detail requests, their retries, and their failures."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import DETAILS, Bench, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on

TWO_IN_FLIGHT = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 2}


@pytest.mark.parametrize("way", ["first", "retried", "redirected"])
@mostly_on("sqlite")
def test_a_list_page_is_not_done_while_a_detail_of_it_is_pending(
    bench: Bench, reference: Reference, way: str
) -> None:
    bench.write(DETAILS)
    if way == "retried":
        bench.site.behave(path="/item/k015", status=503, times=1)
    elif way == "redirected":
        bench.site.behave(path="/item/k015", redirect="/item/k015?again=1", times=1)
    held = bench.site.behave(path="/item/k015", hold=True, skip=int(way != "first"))
    crawl = bench.start(**TWO_IN_FLIGHT)
    held.wait()
    wait_until(lambda: bench.committed() >= {1, 3, 4})
    crawl.kill()
    bench.site.heal()
    bench.assert_sound()
    assert (bench.shards[0]["cur_page"], bench.shards[0]["ahead"]) == (1, "3-4")
    assert not set(bench.served[2]) & set(bench.items)
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(DETAILS))
    assert not {1, 3, 4} & set(asked)


@mostly_on("sqlite")
def test_a_detail_that_is_not_to_be_had_is_a_record_with_its_page(
    bench: Bench, reference: Reference
) -> None:
    bench.write(DETAILS)
    bench.site.behave(path="/item/k015", status=404)
    bench.site.behave(path="/item/k025", status=503)
    bench.site.behave(path="/item/k035", reset=True)
    crawl = bench.crawl()
    whole = reference(DETAILS)
    lost = {"k015", "k025", "k035"}
    bench.assert_complete(
        {key: payload for key, payload in whole.items() if key not in lost},
        verdict="complete_with_rejects",
    )
    assert {(row["page"], row["kind"], row["url"][-10:]) for row in bench.quarantine} == {
        (2, "request", "/item/k015"),
        (3, "request", "/item/k025"),
        (4, "request", "/item/k035"),
    }
    assert bench.site.hits(path="/item/k015") == 1
    assert bench.site.hits(path="/item/k025") == 2
    assert crawl.finish_reason == "finished"


RAISES = """\
class Rows(Details):
    name = 'rows'

    def parse_item(self, response):
        if "k015" in response.url:
            raise ValueError("no price")
        yield from super().parse_item(response)
"""


def test_a_detail_callback_that_raises_is_a_record(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(RAISES)
    bench.crawl()
    whole = reference(DETAILS)
    del whole["k015"]
    bench.assert_complete(whole, verdict="complete_with_rejects")
    (reject,) = bench.quarantine
    assert (reject["page"], reject["kind"], reject["error_class"]) == (2, "request", "ValueError")


def test_what_the_spider_chose_to_leave_out_is_no_failure(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """Offsite and too deep requests are decisions, and so is what an errback handles."""
    bench = sqlite_bench
    bench.write("""
        class Rows(Numbered):
            name = 'rows'
            allowed_domains = ["127.0.0.1"]

            def parse(self, response):
                yield from rows(response)
                yield Request("http://elsewhere.invalid/")
                yield response.follow("/item/none", self.never, errback=self.handled)
                yield response.follow("/item/k001", self.deeper, dont_filter=True)

            def deeper(self, response):
                yield response.follow("/item/k002", self.never)

            def never(self, response):
                raise AssertionError

            def handled(self, failure):
                pass
        """)
    bench.crawl(DEPTH_LIMIT=1)
    bench.assert_complete(reference(DETAILS))
    assert bench.site.hits(path="/item/k002") == 0


SHARED = """\
class Rows(Numbered):
    name = 'rows'
    last_page = 2

    def parse(self, response):
        yield response.follow("/item/k001", self.parse_item)
        if number_of(response) == 1 and os.environ.get("BROKEN"):
            raise ValueError("the spider has a bug")

    def parse_item(self, response):
        yield {"key": response.css(".key::text").get()}
"""


@mostly_on("sqlite")
def test_a_request_is_no_duplicate_of_a_page_that_was_never_stored(
    bench: Bench,
) -> None:
    bench.write(SHARED)
    bench.env = {"BROKEN": "1"}
    held = bench.site.behave(page=2, hold=True)
    crawl = bench.start(RESUME_PAGE_RETRIES=0, **TWO_IN_FLIGHT)
    held.wait()
    bench.site.wait_for(path="/item/k001")
    bench.site.heal()
    crawl.wait()
    assert bench.committed() == {2}
    assert [json.loads(payload) for payload in bench.items.values()] == [{"key": "k001"}]
    assert bench.site.hits(path="/item/k001") == 2
    bench.env = {}
    bench.crawl()
    assert bench.task["verdict"] == "complete"


def test_a_request_is_a_duplicate_of_a_stored_page_but_not_over_a_restart(
    sqlite_bench: Bench,
) -> None:
    bench = sqlite_bench
    bench.write(SHARED)
    bench.crawl(**ONE_BY_ONE)
    assert bench.task["verdict"] == "complete"
    assert bench.site.hits(path="/item/k001") == 1
    bench.crawl_killed("commit.after:1", **ONE_BY_ONE)
    bench.crawl()
    assert bench.task["verdict"] == "complete"
    assert bench.site.hits(path="/item/k001") == 3
