"""The plain list in all its forms."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from example_project.site import Site
from example_project.site.listing import TEXTS


def keys(response: Any) -> list[str]:
    found: list[str] = response.css("li.row::attr(data-key)").getall()
    return found


def test_twelve_pages_of_ten_with_a_next_link_on_all_but_the_last(client: Any) -> None:
    found, titles, href = [], [], "/list?page=1"
    for number in range(1, 13):
        page = client.get(href)
        found += keys(page)
        titles += page.css("a.title::text").getall()
        href = page.css("a.next::attr(href)").get()
        assert href == (None if number == 12 else f"/list?page={number + 1}")
    assert found == [f"k{n:03d}" for n in range(1, 121)]
    assert titles == [f"{TEXTS[n % len(TEXTS)]} {n}" for n in range(1, 121)]
    assert keys(client.get("/list?page=13")) == []


@pytest.mark.parametrize("path", ["/list.json?", "/list?format=json&"])
def test_json_says_the_same(client: Any, path: str) -> None:
    answer = client.json(f"{path}page=3")
    page = client.get("/list?page=3")
    assert [row["key"] for row in answer["rows"]] == keys(page)
    assert [row["title"] for row in answer["rows"]] == page.css("a.title::text").getall()
    assert [row["price"] for row in answer["rows"]] == page.css("span.price::text").getall()
    assert client.json(answer["next"])["page"] == 4
    assert client.json("/list?page=3", Accept="application/json")["rows"] == answer["rows"]


def test_every_row_has_a_detail_page(client: Any) -> None:
    for row in client.json("/list.json?page=1")["rows"]:
        page = client.get(f"/item/{row['key']}")
        assert page.css("h1.title::text").get() == row["title"]
        assert page.css("p.price::text").get() == row["price"]
        assert client.json(f"/item/{row['key']}?format=json") == row
    assert client.get("/item/k121").status == 404


@pytest.mark.parametrize("kind", ["json", "form", "graphql"])
def test_pages_behind_one_address(client: Any, site: Any, kind: str) -> None:
    body = {
        "json": json.dumps({"page": 7}),
        "form": urlencode({"page": 7}),
        "graphql": json.dumps({"query": "query($page: Int)", "variables": {"page": 7}}),
    }[kind]
    form = "application/x-www-form-urlencoded" if kind == "form" else "application/json"
    answer = client.json("/search", method="POST", body=body, Content_Type=form)
    rows = answer["data"]["list"]["rows"] if kind == "graphql" else answer["rows"]
    assert rows[0]["key"] == "k061" and len(rows) == 10
    assert site.requests[-1].body == body and site.pages("/search") == [7]


def test_tokens_of_the_list(client: Any, site: Any) -> None:
    answer, found = client.json("/cursor"), []
    while True:
        found += [row["key"] for row in answer["rows"]]
        if answer["next"] is None:
            break
        answer = client.json(f"/cursor?token={answer['next']}")
    assert found == site.listing.keys and site.pages("/cursor") == list(range(1, 13))


def test_the_list_moves(client: Any, site: Any) -> None:
    site.listing.insert(15)
    assert keys(client.get("/list?page=2"))[4:6] == ["new015", "k001"]
    site.listing.delete("new001", "k001")
    moved = ["new012", "new013", "new014", "new015", "k002", "k003"]
    assert keys(client.get("/list?page=2"))[:6] == moved
    site.listing.change("k002", price=1)
    assert client.get("/item/k002").css("p.price::text").get() == "0.01"
    assert client.get("/item/k001").status == 404


def test_the_feed_is_ordered_by_time_and_includes_the_boundary(client: Any, site: Any) -> None:
    rows = client.json("/feed?since=2024-01-01T00:01:00Z&limit=2")["rows"]
    assert [row["key"] for row in rows] == ["k060", "k061"]
    site.listing.change("k100", updated_at=rows[0]["updated_at"])
    rows = client.json("/feed?since=2024-01-01T00:01:00Z&limit=2")["rows"]
    assert [row["key"] for row in rows] == ["k060", "k100"]


@pytest.mark.parametrize(
    ("past_end", "status", "first"),
    [("empty", 200, None), ("first", 200, "k001"), ("404", 404, None)],
)
def test_past_the_end(
    client: Any, site: Any, past_end: str, status: int, first: str | None
) -> None:
    site.listing.past_end = past_end
    page = client.get("/list?page=13")
    assert page.status == status and next(iter(keys(page)), None) == first


def test_totals_and_depth(client: Any, site: Any) -> None:
    assert "total" not in client.json("/list.json?page=1")
    site.listing.totals = True
    assert client.json("/list.json?page=1")["total"] == 120
    assert client.get("/list?page=1").css("p.total::text").get() == "120 rows"
    site.listing.stated_total, site.listing.depth_limit = 25000, 100
    assert client.json("/list.json?page=10")["total"] == 25000
    refused = client.get("/list?page=11")
    assert (refused.status, refused.json()) == (400, {"error": "Result window is too large"})


def test_the_start_page_keeps_currency_and_page_size_in_a_cookie(client: Any, site: Any) -> None:
    client.get("/start?currency=EUR&rows=20")
    page = client.get("/list?page=2", Cookie="prefs=EUR:20; session=s1")
    assert keys(page)[0] == "k021" and page.css("span.currency::text").get() == "EUR"
    assert site.requests[-1].cookies == {"prefs": "EUR:20", "session": "s1"}


def test_other_sizes() -> None:
    with Site(pages=300, rows=50, filler=2000) as site:
        assert site.listing.keys[0] == "k00001" and len(site.listing.keys) == 15_000
        assert len(site.listing.rows[0].title) > 2000


@pytest.mark.parametrize("page", ["0", "-1", "x", "１"])
def test_nonsense_is_a_bad_request(client: Any, page: str) -> None:
    assert client.get(f"/list?page={quote(page)}").status == 400
