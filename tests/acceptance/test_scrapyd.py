"""Two scrapyd machines, one egg, one run: scheduled, cancelled, killed and scheduled again."""

from __future__ import annotations

import os
import shutil
import signal
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from example_project.site import catalogue

from scrapy_resume.store import migrate
from scrapy_resume.testing import check
from tests.acceptance.crawl import Crawl
from tests.acceptance.harness import ROOT, Bench, wait_until
from tests.acceptance.node import PROJECT, Node, is_job

BLOCK = "Miscellaneous Symbols and Pictographs"
SLUG, ROWS, IN_FLIGHT = catalogue.slug(BLOCK), 50, 2
HELD = [page for page in range(1, 17) if page % 4 in (2, 3)]  # in the middle of each shard
JOB_ENV = {
    "RESUME_SHARDS": "1",
    "RESUME_PAGES_IN_FLIGHT": str(IN_FLIGHT),
    "RESUME_LEASE": "60",  # what is claimed again within the test was given back, or taken back
    "RESUME_GRACE": "1",
    "RESUME_MAX_WAIT": "60",
}


def served() -> dict[int, list[str]]:
    """The keys of the block's pages."""
    codes = [f"U+{code:04X}" for code in catalogue.codes(BLOCK)]
    return {at // ROWS + 1: codes[at : at + ROWS] for at in range(0, len(codes), ROWS)}


class Farm:
    """Both machines, and what the database says of them."""

    def __init__(self, bench: Bench, nodes: list[Node]) -> None:
        self.bench, self.nodes = bench, nodes
        self.held = bench.site.behave(path="/block/*", page=HELD, hold=True)

    def schedule(self, node: Node, job: str) -> None:
        url = self.bench.site.url
        node.schedule("blocks", job, base=url, blocks=BLOCK, details="0")

    def worker(self, job: str) -> Mapping[str, Any]:
        """The start of a worker that *job* is; {} before it is one."""
        (found,) = self._rows(lambda worker, _: worker.select().where(worker.c.job == job)) or [{}]
        return found

    def held_by(self, job: str) -> list[Mapping[str, Any]]:
        """The shards that *job* holds, on record."""
        instance = self.worker(job).get("instance", "nobody")
        return self._rows(lambda _, shard: shard.select().where(shard.c.instance == instance))

    def _rows(self, query: Callable[[Any, Any], Any]) -> list[Mapping[str, Any]]:
        tables = self.bench.database.tables
        with self.bench.database.read() as conn:
            return list(conn.execute(query(tables.worker, tables.task_shard)).mappings())

    def busy(self, job: str) -> int:
        """Wait until *job* stored the first page of its shard, and no more of it comes; returns
        the shard's number."""
        wait_until(lambda: [row["page_count"] for row in self.held_by(job)] == [1], 40, 0.1)
        (shard,) = self.held_by(job)
        number: int = shard["shard_no"]
        return number

    def sound(self) -> None:
        """I1 and all that holds at any moment."""
        bench = self.bench
        found = check(bench.database_url, prefix=bench.prefix, served={**served()})
        assert found == [], found[:5]


@pytest.fixture
def farm(mariadb_bench: Bench, tmp_path: Path) -> Iterator[Farm]:
    bench = mariadb_bench
    project = tmp_path / "checkout"
    shutil.copytree(ROOT / "example_project", project, ignore=shutil.ignore_patterns(".*", "__py*"))
    settings = project / PROJECT / "settings.py"
    text = settings.read_text().replace('BOT_NAME = "example_project"', 'BOT_NAME = "deployed"')
    settings.write_text(text)
    env = {
        **JOB_ENV,
        "RESUME_DATABASE_URL": bench.database_url,
        "RESUME_TABLE_PREFIX": bench.prefix,
    }
    migrate.ensure_schema(bench.database)
    one, two = nodes = [Node(tmp_path / name, env) for name in ("one", "two")]
    try:
        one.start()
        one.deploy(project)
        two.take_egg(one.egg)
        two.start()
        yield Farm(bench, nodes)
    finally:
        for node in nodes:
            node.discard()
            for log in sorted(node.home.glob("logs/*/*/*")):
                print(f"=== {node.home.name} {log.stem}", Crawl(None, log).tail, sep="\n")


def test_prc_1_cancelled_by_scrapyd_then_killed(farm: Farm) -> None:
    bench, (one, two) = farm.bench, farm.nodes
    assert f"{PROJECT}/site/blocks.txt" in zipfile.ZipFile(one.egg).namelist()
    farm.schedule(one, "a1")
    farm.schedule(two, "b1")
    first, second = farm.busy("a1"), farm.busy("b1")
    assert "(bot: deployed)" in one.log_of("a1").log
    told = bench.run_scrapy("resume", "why", "1", "-s", f"RESUME_TABLE_PREFIX={bench.prefix}")
    assert f"pid {one.pid('a1')}, job a1)" in told.wait().log
    farm.sound()

    # A: cancelled once. What it read is stored, its shard is free at once.
    one.cancel("a1")
    one.wait_for_end("a1")
    assert one.log_of("a1").finish_reason == "shutdown"
    assert farm.worker("a1")["stopped_at"] is not None and farm.held_by("a1") == []
    shard = bench.shards[first - 1]
    assert (shard["status"], shard["due"], shard["page_count"]) == ("pending", 1, 1)
    farm.sound()
    farm.schedule(one, "a2")

    # B: cancelled twice. Until its machine has another job it counts as the holder.
    two.cancel("b1")
    two.cancel("b1")
    two.wait_for_end("b1")
    assert [row["shard_no"] for row in farm.held_by("b1")] == [second]
    farm.sound()
    farm.schedule(two, "b2")
    farm.busy("b2")
    assert farm.held_by("b1") == []

    # Scrapyd is killed: its job goes on.
    farm.busy("a2")
    orphan = one.pid("a2")
    one.kill()

    # C: cancelled, and killed while it is still about to stop; scrapyd too, and started again.
    killed = two.pid("b2")
    two.cancel("b2")
    wait_until(lambda: "Closing spider (shutdown)" in two.log_of("b2").log)
    os.kill(killed, signal.SIGKILL)
    two.kill()
    assert len(farm.held_by("b2")) == 1
    farm.sound()
    two.start()
    farm.schedule(two, "b3")
    farm.busy("b3")
    assert farm.held_by("b2") == [] and len(farm.held_by("a2")) == 1

    farm.held.heal()
    two.wait_for_end("b3")
    wait_until(lambda: not is_job(orphan, one.home))
    assert one.log_of("a2").finish_reason == two.log_of("b3").finish_reason == "finished"
    (task,) = bench.tasks  # the ids of jobs are no part of its name
    assert (task["name"], task["verdict"]) == (f'blocks blocks="{BLOCK}" details=0', "complete")
    farm.sound()
    assert set(bench.items) == {key for keys in served().values() for key in keys}
    asked = Counter(request.page for request in bench.site.requests if SLUG in request.path)
    again = {page: count - 1 for page, count in asked.items() if count > 1}
    assert set(again) <= set(HELD) and sum(again.values()) <= 3 * IN_FLIGHT, again
