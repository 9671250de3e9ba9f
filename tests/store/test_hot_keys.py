"""Eight processes upsert the same keys at once: nothing is lost, nobody is a victim."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.hotkeys import Orders

ROOT = Path(__file__).parents[2]
SECONDS = 3.0  # a minute, and more ways, in tests/stress


def run(orders: Orders, mariadb: MariaDB | None = None) -> dict[str, Any]:
    """What became of it; with ``deadlocks`` as the server itself counted them."""
    db = Database.connect(orders.url)
    migrate.ensure_schema(db)
    db.close()
    before = deadlocks(mariadb)
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.hotkeys"], cwd=ROOT,
        input=json.dumps(asdict(orders)), capture_output=True, text=True,
        timeout=orders.seconds + 60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    result["deadlocks"] = deadlocks(mariadb) - before
    print(result)
    return result


def deadlocks(mariadb: MariaDB | None) -> int:
    """How many transactions the server has chosen as victims so far."""
    if mariadb is None:
        return 0
    return int(mariadb.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])


@pytest.mark.parametrize("counted", [False, True], ids=["key", "id"])
def test_hot_keys(mariadb: MariaDB, mariadb_name: str, counted: bool) -> None:
    result = run(Orders(mariadb.url(mariadb_name), SECONDS, counted=counted), mariadb)
    assert result["lost"] == []
    assert (result["repeats"], result["deadlocks"]) == ({}, 0)
    assert result["pages"] > 10


def test_hot_keys_in_one_file(sqlite_url: str) -> None:
    result = run(Orders(sqlite_url, SECONDS / 3))
    assert (result["lost"], result["pages"] > 10) == ([], True)


@pytest.mark.mutant
@pytest.mark.parametrize("safeguard", ["sorting", "locking"])
def test_without_a_safeguard_there_are_deadlocks(
    mariadb: MariaDB, mariadb_name: str, safeguard: str
) -> None:
    result = run(Orders(mariadb.url(mariadb_name), SECONDS * 2 / 3, without=safeguard), mariadb)
    assert result["lost"] == []  # the transactions are repeated, and counted
    assert result["repeats"]["deadlocks"] == result["deadlocks"] > 0
