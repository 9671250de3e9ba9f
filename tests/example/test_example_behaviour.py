"""Every way in which the site can misbehave."""

from __future__ import annotations

import http.client
import threading
from contextlib import closing
from typing import Any

import pytest
from example_project.site import Site


def test_a_status_that_heals(client: Any, site: Any) -> None:
    site.behave(page=6, status=429, retry_after=2, times=3)
    answers = [client.get("/list?page=6") for _ in range(4)]
    assert [answer.status for answer in answers] == [429, 429, 429, 200]
    assert answers[0].headers["Retry-After"] == b"2"
    assert [r.status for r in site.requests] == [429, 429, 429, 200]
    assert client.get("/list?page=5").status == 200


def test_odd_statuses_and_bodies(client: Any, site: Any) -> None:
    site.behave(path="/list", page=(1, 2), status=999)
    site.behave(page=3, body='{"error": "rate limited"}', content_type="application/json")
    assert [client.get(f"/list?page={n}").status for n in (1, 2)] == [999, 999]
    assert client.json("/list?page=3") == {"error": "rate limited"}


def test_a_reset_connection(site: Any) -> None:
    rule = site.behave(page=5, reset=True)
    with pytest.raises(ConnectionResetError):
        fetch(site, "/list?page=5")
    assert site.requests[-1].status == 0 and rule.hits == 1
    rule.heal()
    assert fetch(site, "/list?page=5") == 200


def test_a_cut_body(site: Any) -> None:
    site.behave(page=5, cut=True)
    with pytest.raises(http.client.IncompleteRead):
        fetch(site, "/list?page=5")


def test_a_challenge_from_a_page_on(client: Any, site: Any) -> None:
    site.behave(from_page=5, challenge=True)
    assert client.get("/list?page=4").css("li.row")
    for number in (5, 12):
        page = client.get(f"/list?page={number}")
        assert page.status == 200 and page.css("#challenge-form") and not page.css("li.row, a.next")
    site.heal()
    assert client.get("/list?page=5").css("li.row")


def test_a_session_that_lasts_five_views(client: Any, site: Any) -> None:
    site.behave(path="/list", unless_cookie="session", views=5, redirect="/login")
    assert client.get("/list?page=1").headers["Location"] == b"/login"
    statuses = [client.get(f"/list?page={n}", Cookie="session=old").status for n in range(1, 8)]
    assert statuses == [200] * 5 + [302] * 2
    assert client.get("/login").css("form.login")
    answer = client.get("/login?next=/list?page=6", method="POST")
    assert answer.status == 302 and answer.headers["Location"] == b"/list?page=6"
    cookie = answer.headers["Set-Cookie"].decode().split(";")[0]
    assert client.get("/list?page=6", Cookie=cookie).status == 200


def test_without_the_cookie_page_one(client: Any, site: Any) -> None:
    site.behave(path="/list", unless_cookie="session", show_page=1)
    assert client.get("/list?page=7").css("li::attr(data-key)").get() == "k001"
    assert client.get("/list?page=7", Cookie="session=s1").css("li::attr(data-key)").get() == "k061"


def test_empty_bodies_empty_pages_and_loops(client: Any, site: Any) -> None:
    site.behave(page=3, body=b"")
    site.behave(page=5, no_rows=True)
    site.behave(page=6, next_page=2)
    site.behave(page=7, no_next=True)
    site.behave(page=8, renamed=True)
    zero = client.get("/list?page=3")
    assert (zero.status, zero.body) == (200, b"")
    five, six, seven, eight = (client.get(f"/list?page={n}") for n in (5, 6, 7, 8))
    assert not five.css("li.row") and five.css("a.next::attr(href)").get() == "/list?page=6"
    assert len(six.css("li.row")) == 10 and six.css("a.next::attr(href)").get() == "/list?page=2"
    assert len(seven.css("li.row")) == 10 and not seven.css("a.next")
    assert not eight.css("li.row") and len(eight.css("li.entry")) == 10


@pytest.mark.parametrize(
    "path",
    ["/block/cjk-unified-ideographs?page=1", "/chain", "/api/characters", "/cursor", "/books/"],
)
def test_every_list_knows_these_tricks(client: Any, site: Any, path: str) -> None:
    whole = client.get(path)
    site.behave(page=1, no_rows=True, no_next=True)
    bare = client.get(path)
    assert bare.status == 200 and len(bare.body) < len(whole.body) / 2
    site.behave(page=1, challenge=True)
    assert client.get(path).css("#challenge-form")


def test_holding_an_answer(site: Any) -> None:
    rule = site.behave(page=7, hold=True)
    answers: list[int] = []
    asker = threading.Thread(target=lambda: answers.append(fetch(site, "/list?page=7")))
    asker.start()
    rule.wait()
    assert site.hits(page=7) == 1 and site.requests[-1].status is None
    assert fetch(site, "/list?page=8") == 200 and not answers
    rule.release()
    asker.join(10)
    assert answers == [200] and site.requests[0].status == 200


def test_a_held_client_that_dies(site: Any) -> None:
    rule = site.behave(page=7, hold=True)
    connection = http.client.HTTPConnection(site.host, site.port)
    connection.request("GET", "/list?page=7")
    rule.wait()
    connection.close()
    site.log.wait(lambda requests: requests[0].status == 0, 10)
    rule.release()
    assert fetch(site, "/list?page=7") == 200


def test_releasing_after_the_site_stopped() -> None:
    with Site() as site:
        rule = site.behave(page=7, hold=True)
        connection = http.client.HTTPConnection(site.host, site.port)
        connection.request("GET", "/list?page=7")
        rule.wait()
    rule.release()
    assert site.requests[0].status == 0
    connection.close()


def test_waiting_for_a_page(site: Any) -> None:
    with pytest.raises(TimeoutError):
        site.wait_for(page=2, timeout=0.01)
    fetch(site, "/list?page=2")
    site.wait_for(page=2)


def test_skipping_and_conditions(client: Any, site: Any) -> None:
    rule = site.behave(path="/list", when=lambda r: r.method == "GET", skip=2, times=1, status=500)
    assert [client.get("/list?page=1").status for _ in range(4)] == [200, 200, 500, 200]
    assert (rule.seen, rule.hits) == (4, 1)


def test_delays(site: Any) -> None:
    site.behave(page=1, delay=30.0)
    connection = http.client.HTTPConnection(site.host, site.port, timeout=0.05)
    connection.request("GET", "/list?page=1")
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    site.delay = 0.01
    assert fetch(site, "/list?page=2") == 200


def test_failures_by_rate_are_the_same_every_time() -> None:
    def statuses(seed: int) -> list[int]:
        with Site(fail=0.3, seed=seed) as site:
            return [fetch(site, f"/item/k{n:03d}") for n in range(1, 101)]

    once = statuses(1)
    assert once == statuses(1) != statuses(2)
    assert 15 < once.count(503) < 45


def test_switches_in_the_query(client: Any, site: Any) -> None:
    answers = [client.get("/list?page=5&_status=503&_times=2&_retry_after=1") for _ in range(3)]
    assert [answer.status for answer in answers] == [503, 503, 200]
    assert answers[0].headers["Retry-After"] == b"1"
    assert client.get("/list?page=6&_challenge=1").css("#challenge-form")
    shifted = client.get("/list?page=2&_shift=5")
    assert shifted.css("li::attr(data-key)").get() == "k006"
    assert shifted.css("a.next::attr(href)").get() == "/list?page=3&_shift=5"
    assert client.get("/character/41?_status=404").status == 404
    assert client.get("/list?page=1&_status=many").status == 400


def test_a_list_that_shifts_by_itself() -> None:
    with Site(shift=2) as site:
        for _ in range(5):
            fetch(site, "/list?page=1")
        assert site.listing.keys[:3] == ["new002", "new001", "k001"]


def test_control_from_outside(client: Any, site: Any) -> None:
    body = '{"status": 500}'
    client.get("/_site/behave", method="POST", body=body, Content_Type="application/json")
    assert client.get("/list?page=2").status == 500
    client.get("/_site/heal", method="POST")
    assert client.get("/list?page=2").status == 200
    assert client.get("/_site/behave").status == 404
    body = '{"challenged": true}'
    answer = client.get("/_site/behave", method="POST", body=body, Content_Type="application/json")
    assert answer.status == 400 and "challenged" in answer.json()["error"]


def test_robots(client: Any, site: Any) -> None:
    assert client.get("/robots.txt").text == "User-agent: *\nAllow: /\n"
    site.access.robots = "User-agent: *\nDisallow: /list?page=7\n"
    assert b"page=7" in client.get("/robots.txt").body
    site.behave(path="/robots.txt", redirect="/nowhere")
    assert client.get("/robots.txt").status == 302


def fetch(site: Site, path: str) -> int:
    """Ask over a connection of its own, read the answer; its status."""
    with closing(http.client.HTTPConnection(site.host, site.port, timeout=10)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status
