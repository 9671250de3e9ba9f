"""Which page is known to have items, and whether any ever had."""

from __future__ import annotations

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import acts, tasks
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.history import History, history
from tests.store.worlds import World, page


def test_nothing_is_known_of_a_list_that_nobody_read(world: World) -> None:
    task = world.plan(2)
    assert history(world.db, task.id, world.claim(task)[0].site) == History(None, False)


def test_a_page_of_the_run_is_known_once_it_stored_items(world: World) -> None:
    task = world.plan(2)
    first, second = world.claim(task, limit=2)
    world.commit(PageRecord(first.id, first.fencing_token, 1, ()))
    assert history(world.db, task.id, first.site).page is None  # it held nothing
    world.commit(page(second, second.shard.first_page))
    known = history(world.db, task.id, first.site).page
    assert known is not None
    assert (known.number, known.shard.key) == (second.shard.first_page, second.shard.key)
    assert known.shard == second.shard and known.ordered is second.ordered
    assert history(world.db, task.id, "another site") == History(None, False)


def test_a_numbered_shard_whose_first_page_is_missing_is_asked_for_one_ahead(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(page(one, one.shard.first_page + 2))
    known = history(world.db, task.id, one.site).page
    assert known is not None and known.number == one.shard.first_page + 2


def test_an_earlier_run_of_the_same_task_counts_and_no_other(world: World) -> None:
    first = world.plan(1)
    (one,) = world.claim(first)
    world.commit(page(one, 1))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    tasks.finish_run(world.db, first.id)
    second = world.plan(1)
    assert second.id != first.id
    assert history(world.db, second.id, one.site) == History(None, True)
    assert history(world.db, first.id, one.site).page is not None


@pytest.mark.parametrize("cursor", [None, {"url": "http://site.invalid/1"}, "a token"])
def test_the_cursor_and_spec_come_back_as_they_were_given(world: World, cursor: object) -> None:
    task = world.plan([Shard("chain", cursor=cursor, spec={"a": [1]}, ordered=True)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, cursor='"next"'))
    known = history(world.db, task.id, one.site).page
    assert known is not None and known.ordered
    assert (known.shard.cursor, known.shard.spec, known.number) == (cursor, {"a": [1]}, 1)


def test_another_page_is_taken_where_one_proved_to_be_empty(world: World) -> None:
    """A page of a shard that stored items need not be one of those that hold some."""
    task = world.plan(2)
    first, second = world.claim(task, limit=2)
    world.commit(page(first, 1), page(first, 2), page(first, 4), page(second, 1))
    tried: set[tuple[str, int]] = set()
    for _ in range(2):
        known = history(world.db, task.id, first.site, but=tried).page
        assert known is not None
        tried.add((known.shard.key, known.number))
    assert tried == {("s1", 1), ("s2", 1)}
    found = {
        (known.shard.key, known.number)
        for _ in range(40)
        if (known := history(world.db, task.id, first.site, but=tried).page) is not None
    }
    assert {("s1", 2), ("s1", 4)} <= found
    assert history(world.db, task.id, first.site, but=tried | found).page is not None


def test_any_page_that_is_stored_may_be_asked_for_and_no_other(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(page(one, 1), page(one, 2), page(one, 5))
    found = set()
    for _ in range(60):
        known = history(world.db, task.id, one.site, anywhere=True).page
        assert known is not None
        found.add(known.number)
    assert found == {1, 2, 5}


def test_others_can_tell_how_a_site_is_while_they_wait_to_go_on(world: World) -> None:
    other, task = world.plan(1, name="others"), world.plan(1)
    (one,) = world.claim(other)
    world.commit(page(one, 1))
    assert history(world.db, task.id, one.site) == History(None, False)  # its owner reads it
    world.commit(Release(one.id, one.fencing_token, "given back"))
    assert history(world.db, task.id, one.site) == History(None, False, True)
    assert history(world.db, task.id, "another site") == History(None, False)
    acts.cancel(world.db, other.id, actor="a", reason="a test")
    assert history(world.db, task.id, one.site) == History(None, False)
