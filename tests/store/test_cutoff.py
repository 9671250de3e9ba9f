"""A server that never answers, and a process that has to end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store.engine import Database
from tests.services import MariaDB


def test_what_waits_for_a_frozen_server_is_cut(mariadb: MariaDB, mariadb_name: str) -> None:
    db = Database.connect(mariadb.url(mariadb_name), network_timeout=60)
    db.look(db.now)
    failed: list[BaseException] = []
    asking = threading.Event()

    def ask() -> None:
        try:
            asking.set()
            db.run(db.now)
        except StoreUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    mariadb.freeze()
    try:
        thread.start()
        asking.wait()
        time.sleep(0.1)
        assert thread.is_alive()
        db.deadline = 0  # as in a crawl that is being stopped
        db.cut()
        thread.join(20)
        assert not thread.is_alive() and failed
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            db.look(db.now)
        assert time.monotonic() - began < 4, "a connection was tried"
    finally:
        mariadb.thaw()
    db.close()


def test_a_file_is_not_cut(tmp_path: Path) -> None:
    db = Database.connect(f"sqlite:///{tmp_path / 'resume.db'}")
    db.cut()
    assert db.look(db.now)
    db.close()
