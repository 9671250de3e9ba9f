"""``scrapy resume health``, and the pause of a site."""

from __future__ import annotations

import getpass
import socket

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import circuits, health, meta
from scrapy_resume.store.records import Release
from tests.commands.conftest import Outcome, Scrapy
from tests.services import Redis
from tests.store.worlds import World

WHY = ("--reason", "they asked us to")


@pytest.fixture
def world(world: World) -> World:
    """A run with a shard on each of two sites."""
    world.plan([Shard("a", 1, 9, site="a.org"), Shard("b", 1, 9, site="b.org")])
    return world


def refused(outcome: Outcome) -> str:
    """What a refusal said, once it is known to be one line and nothing else."""
    assert (outcome.code, outcome.out) == (1, ""), outcome
    (line,) = outcome.err.splitlines()
    return line


def records(world: World) -> list[tuple[str, ...]]:
    rows = world.sql("SELECT * FROM resume_operation ORDER BY id")
    return [(r.kind, r.actor, r.reason, r.before, r.after) for r in rows]


def states(world: World) -> dict[str, str]:
    return {one.site: one.state for one in health.sites(world.db)}


def test_where_nothing_is_nothing_is_made(scrapy: Scrapy, sqlite_url: str) -> None:
    assert scrapy("resume", "health", "show", RESUME_DATABASE_URL=sqlite_url).out == (
        "no sites yet\n"
    )
    outcome = scrapy("resume", "pause", "--site", "a.org", RESUME_DATABASE_URL=sqlite_url)
    assert "there are no tasks yet" in refused(outcome)


def test_every_site_of_an_unfinished_run_is_shown(resume: Scrapy, world: World) -> None:
    resume("pause", "--site", "b.org", "--for", "2h", *WHY)
    head, first, second = resume("health", "show").out.splitlines()
    assert head.split("  ")[:2] == ["site ", "state"] or head.startswith("site")
    assert first.split() == ["a.org", "healthy", "nothing", "on", "record", "1", "0", "0"]
    assert second.startswith("b.org  paused   2")
    assert "they asked us to" in second
    assert f"{getpass.getuser()}@" in second


def test_the_sites_as_json(resume: Scrapy, world: World) -> None:
    (task,) = world.sql("SELECT id FROM resume_task")
    (shard,) = (one for one in world.claim(task) if one.site == "a.org")
    world.commit(Release(shard.id, shard.fencing_token, "parked: no", "blocked", 900.0))
    resume("health", "set", "a.org", "blocked", "--for", "15m", *WHY)
    first, second = resume("health", "show", "--json").json["sites"]
    assert second == {
        "site": "b.org", "state": "healthy", "reason": "nothing on record", "until": None,
        "set_by": None, "counters": None, "updated_at": None, "wait_ms": None,
        "probe_instance": None, "probe_until": None, "held": False, "says": "healthy",
        "shards": {"pending": 0, "running": 1, "paused": 0},
    }  # fmt: skip
    assert (first["state"], first["reason"]) == ("blocked", "they asked us to")
    assert first["until"].endswith("Z")
    assert first["shards"] == {"pending": 1, "running": 0, "paused": 0}
    assert resume("health", "show", "b.org", "--json").json["sites"] == [second]


def test_an_unknown_site(resume: Scrapy, world: World) -> None:
    said = refused(resume("health", "show", "a.rg"))
    assert said.endswith("nothing is known of the site 'a.rg'; did you mean a.org or b.org?")
    for words in (("pause", "--site", "x"), ("health", "set", "x", "healthy")):
        assert "no shard has the site 'x'" in refused(resume(*words))
    assert (states(world), records(world)) == ({}, [])


def test_a_site_is_paused_and_unpaused_and_both_are_on_record(resume: Scrapy, world: World) -> None:
    outcome = resume("pause", "--site", "a.org", *WHY)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "Site a.org is paused (it was healthy): they asked us to.",
        "Its shards are not handed out, and no attempt is spent.",
    ]
    assert states(world) == {"a.org": "paused"}
    done = resume("unpause", "--site", "a.org", "--json").json
    assert done == {
        "site": "a.org", "kind": "unpause_site", "task_ids": [], "dry_run": False,
        "counts": {"sites": 1},
        "sentences": ["Site a.org is healthy (it was paused): no reason given."],
    }  # fmt: skip
    assert states(world) == {"a.org": "healthy"}
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    assert records(world) == [
        (
            "pause_site", who, "they asked us to",
            "a.org: healthy", "a.org: paused",
        ),
        (
            "unpause_site", who, "no reason given",
            "a.org: paused", "a.org: healthy",
        ),
    ]  # fmt: skip


def test_a_site_in_the_wrong_state_is_refused(resume: Scrapy, world: World) -> None:
    assert "site a.org is not paused, it is healthy" in refused(
        resume("unpause", "--site", "a.org", "--json")
    )
    resume("pause", "--site", "a.org", *WHY)
    assert "site a.org is paused already: they asked us to" in refused(
        resume("pause", "--site", "a.org")
    )
    assert "healthy without a time" in refused(
        resume("health", "set", "a.org", "healthy", "--for", "1h")
    )
    assert len(records(world)) == 1


def test_set_overrides_and_is_on_record(resume: Scrapy, world: World) -> None:
    resume("pause", "--site", "a.org", *WHY)
    outcome = resume("health", "set", "a.org", "healthy", "--reason", "they let us again")
    assert outcome.out == "Site a.org is healthy (it was paused): they let us again.\n"
    kind, actor, reason, before, after = records(world)[-1]
    assert (kind, reason, before, after) == (
        "set_site", "they let us again", "a.org: paused", "a.org: healthy",
    )  # fmt: skip
    assert actor == f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "--site", "a.org"),
        ("health", "set", "a.org", "blocked", "--for", "1d"),
    ],
    ids=" ".join,
)
def test_a_dry_run_changes_nothing(resume: Scrapy, world: World, words: tuple[str, ...]) -> None:
    outcome = resume(*words, "--dry-run", *WHY)
    assert outcome.code == 0
    assert outcome.out.startswith("Site a.org is ")
    assert outcome.out.endswith("Nothing was changed (--dry-run).\n")
    assert resume(*words, "--dry-run", "--json", *WHY).json["dry_run"] is True
    assert (states(world), records(world)) == ({}, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("health",), "required: ACT"),
        (("health", "set", "a.org"), "required: STATE"),
        (("health", "set", "a.org", "ill"), "invalid choice: 'ill'"),
        (("health", "set", "a.org", "suspect"), "invalid choice: 'suspect'"),
        (("pause", "--site", "a.org", "--for", "soon"), "'soon' is no time of up to 366 days"),
        (("pause", "--site", "a.org", "--for", "0"), "'0' is no time"),
        (("pause", "--site", "a.org", "--for", "400d"), "'400d' is no time"),
        (("pause", "--site", "a.org", "books"), "not allowed with"),
        (("pause",), "one of the arguments TASK --site is required"),
        (("unpause", "--site", "a.org", "--for", "1h"), "not allowed with"),
        (("pause", "--site", "a.org", "--reason", " "), "it says nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_on_the_line(scrapy: Scrapy, words: tuple[str, ...], said: str) -> None:
    outcome = scrapy("resume", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)]
)
def test_times(resume: Scrapy, world: World, text: str, seconds: float) -> None:
    resume("pause", "--site", "a.org", "--for", text)
    (row,) = health.sites(world.db)
    assert row.until is not None
    assert (row.until - row.updated_at).total_seconds() == seconds


def blocked(world: World, seconds: float) -> None:
    """Workers judge a.org, to be tried in so many seconds."""
    parking = circuits.Parking(seconds, seconds)
    circuits.judge_site(world.db, "a.org", "blocked", "403s", parking=parking, by="worker w1")


def test_a_site_that_workers_block_is_told_by_every_verb(resume: Scrapy, world: World) -> None:
    blocked(world, 900.0)
    assert resume("health", "show", "a.org").out.splitlines()[1].startswith("a.org  blocked  2")
    (site,) = resume("health", "show", "a.org", "--json").json["sites"]
    assert (site["state"], site["held"], site["says"]) == ("blocked", True, "blocked")
    assert (site["set_by"], site["wait_ms"]) == (None, 900_000)
    assert "Site a.org is blocked until " in resume("status", "books").out
    out = resume("why", "books").out
    assert "Shard 1 (a.org, pages 1-9, nothing read up to now) waits" in out
    assert "its site is blocked until " in out and ": 403s, 0 of" in out
    assert "`scrapy resume health set a.org healthy` tries a.org at once." in out


def test_a_site_whose_time_is_over_is_held_until_it_was_tried(resume: Scrapy, world: World) -> None:
    blocked(world, 0.0)
    assert "a.org  blocked (to be tried)  2" in resume("health", "show").out
    assert "its site is blocked (to be tried): 403s" in resume("why", "books").out
    circuits.claim_probe(world.db, "a.org", instance="w1", lease=60)
    assert "a.org  blocked (tried now)  2" in resume("health", "show").out
    assert "Site a.org is blocked (tried now) until " in resume("status", "books").out


def test_a_pause_that_ran_out_is_told_and_holds_nothing(resume: Scrapy, world: World) -> None:
    health.pause_site(world.db, "a.org", actor="x", reason="a test", seconds=0.0)
    assert "a.org  paused (over)  2" in resume("health", "show").out
    (site,) = resume("health", "show", "a.org", "--json").json["sites"]
    assert site["held"] is False
    assert "it may be claimed now" in resume("why", "books").out.splitlines()[1]


def test_workers_are_woken_through_redis_when_a_site_may_be_read_again(
    resume: Scrapy, world: World, redis_server: Redis
) -> None:
    (task,) = world.sql("SELECT id FROM resume_task")
    client = redis_server.client()
    told = client.pubsub(ignore_subscribe_messages=True)
    told.psubscribe(f"resume:{meta.database_id(world.db)}:*")
    told.get_message(timeout=5)
    on = {"RESUME_REDIS_URL": redis_server.url}
    assert resume("pause", "--site", "a.org", *WHY).code == 0
    assert resume("unpause", "--site", "a.org", *WHY, "--dry-run", **on).code == 0
    assert told.get_message(timeout=0.2) is None
    assert resume("unpause", "--site", "a.org", *WHY, **on).code == 0
    message = told.get_message(timeout=5)
    assert message is not None and f":{task.id}:".encode() in message["channel"]
    blocked(world, 900.0)
    assert resume("health", "set", "a.org", "healthy", *WHY, **on).code == 0
    assert told.get_message(timeout=5) is not None
    away = {"RESUME_REDIS_URL": "redis://127.0.0.1:1/0"}
    assert resume("pause", "--site", "a.org", *WHY, **away).code == 0  # it is done without
    client.close()
