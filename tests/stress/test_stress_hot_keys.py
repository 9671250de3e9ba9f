"""The same few keys from eight processes, for a minute each way; ``make stress``."""

from __future__ import annotations

import os

import pytest

from tests.services import MariaDB
from tests.store.hotkeys import Orders
from tests.store.test_hot_keys import run

SECONDS = float(os.environ.get("STRESS_SECONDS", "60"))


@pytest.mark.stress
@pytest.mark.parametrize("counted", [False, True], ids=["key", "id"])
@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "mixed"])
def test_stress_hot_keys(mariadb: MariaDB, mariadb_name: str, mixed: bool, counted: bool) -> None:
    orders = Orders(mariadb.url(mariadb_name), SECONDS, mixed=mixed, counted=counted)
    result = run(orders, mariadb)
    assert (result["lost_count"], result["keys"]) == (0, orders.keys)
    assert (result["repeats"], result["deadlocks"], result["given_up"]) == ({}, 0, 0)


@pytest.mark.stress
def test_stress_hot_keys_in_one_file(sqlite_url: str) -> None:
    result = run(Orders(sqlite_url, SECONDS))
    assert (result["lost_count"], result["keys"], result["given_up"]) == (0, 2000, 0)


@pytest.mark.stress
@pytest.mark.parametrize("safeguard", ["sorting", "locking"])
def test_stress_hot_keys_without_a_safeguard(
    mariadb: MariaDB, mariadb_name: str, safeguard: str
) -> None:
    """Deadlocks come, and still nothing is lost: the transactions are repeated whole."""
    result = run(Orders(mariadb.url(mariadb_name), SECONDS, without=safeguard), mariadb)
    assert result["lost_count"] == 0
    assert result["repeats"]["deadlocks"] == result["deadlocks"] > 0
