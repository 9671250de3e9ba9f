"""Transactions and connections of MariaDB going wrong in the ways the field reports."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from scrapy_resume.exceptions import ConfigurationError, StoreUnavailable
from scrapy_resume.store import checkpoints, migrate, quarantine
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from tests.proxy import Proxy
from tests.services import MariaDB
from tests.store.parallel import in_threads
from tests.store.worlds import World, item, page

BOOK = "CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, price INTEGER, text LONGTEXT)"


@pytest.fixture
def world(mariadb_world: World) -> World:
    return mariadb_world


def locked(mariadb: MariaDB, name: str, statement: str) -> pymysql.connections.Connection:
    """A connection in a transaction that holds the locks of *statement*."""
    connection = mariadb.connect(name)
    connection.autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute(statement)
    return connection


def test_txn_1_a_lock_wait_timeout_repeats_the_whole_transaction(
    mariadb: MariaDB, mariadb_name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy_resume.store import connections

    monkeypatch.setattr(connections, "LOCK_WAIT_TIMEOUT", 1)
    db = Database.connect(world.db.engine.url)
    world.sql(BOOK)
    world.sql("INSERT INTO book VALUES ('k065', 0, NULL)")
    (one,) = world.claim(world.plan(1))
    blocker = locked(mariadb, mariadb_name, "UPDATE book SET price = 1 WHERE isbn = 'k065'")
    threading.Timer(1.5, blocker.rollback).start()
    rows = [Row("book", (f"k{n:03}",), {"isbn": f"k{n:03}", "price": 7}) for n in range(60, 70)]
    writer = ItemWriter(db, [ItemTable("book", ["isbn"])])
    # The row that is locked comes second, in a statement of its own.
    rows[5].values["text"] = "x"
    result = checkpoints.commit(db, [page(one, 1, *rows)], world.positions, writer=writer)
    assert result.retries >= 1
    assert world.shard(one.id).version == 1
    assert world.sql("SELECT COUNT(*) FROM book WHERE price = 7") == [(10,)]


def test_txn_1_a_lock_that_stays_ends_as_unavailable_and_changes_nothing(
    mariadb: MariaDB, mariadb_name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy_resume.store import connections

    monkeypatch.setattr(connections, "LOCK_WAIT_TIMEOUT", 1)
    db = Database.connect(world.db.engine.url)
    one, two = world.claim(world.plan(2))
    lock = f"UPDATE resume_task_shard SET updated_at = NOW() WHERE id = {two.id}"
    blocker = locked(mariadb, mariadb_name, lock)
    with pytest.raises(StoreUnavailable, match="Lock wait timeout") as caught:
        checkpoints.commit(db, [page(one, 1), page(two, 1)], world.positions, attempts=2)
    assert caught.value.__cause__ is not None
    blocker.rollback()
    assert world.shard(one.id).version == 0
    assert world.items() == {}


def test_txn_2_writers_of_the_same_keys_lose_no_update(world: World, database_url: str) -> None:
    task = world.plan(6)
    claimed = world.claim(task)
    oracle: dict[str, list[int]] = {}
    lock = threading.Lock()

    def writer_of(at: int):  # type: ignore[no-untyped-def]
        def work(other: World) -> None:
            mine = World(other.db, {claimed[at].id: claimed[at].position})
            for number in range(1, 16):
                keys = [f"k{(n * 7 + at * 13 + number) % 40}" for n in range(20)]
                rows = [item(key, by=at, page=number) for key in keys]
                mine.commit(page(claimed[at], number, *rows))
                with lock:
                    for key in keys:
                        oracle.setdefault(key, []).append(at)

        return work

    in_threads(str(world.db.engine.url), [writer_of(at) for at in range(6)])
    assert set(world.items()) == set(oracle)
    assert all(world.shard(one.id).cur_page == 15 for one in claimed)
    assert all(value["by"] in oracle[key] for key, value in world.items().items())


def test_txn_2_a_chosen_deadlock_victim_repeats_its_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = world.claim(world.plan(1))
    failures = iter([1213, 1205, 1020])
    original = ItemWriter.write

    def write(self: ItemWriter, conn: Any, rows: Any, **more: Any) -> Any:
        done = original(self, conn, rows, **more)
        for number in failures:
            conn.exec_driver_sql(f"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {number}")
        return done

    monkeypatch.setattr(ItemWriter, "write", write)
    result = world.commit(page(one, 1))
    assert (result.retries, world.shard(one.id).version, len(world.items())) == (3, 1, 2)
    assert result.repeats == {"deadlocks": 2, "lock_waits": 1}


def test_txn_2_a_victim_for_ever_is_given_up_and_says_so(world: World) -> None:
    def deadlock(conn: Any) -> None:
        conn.exec_driver_sql("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213")

    with pytest.raises(StoreUnavailable, match="failed 8 times") as caught:
        world.db.run(deadlock)
    assert caught.value.repeats == {"deadlocks": 8}


def test_txn_3_a_connection_that_the_server_closed(mariadb: MariaDB, world: World) -> None:
    (one,) = world.claim(world.plan(1))
    for number in (1, 2):
        _kill_connections(mariadb)
        world.commit(page(one, number))
    assert world.shard(one.id).cur_page == 2


def test_txn_3_an_idle_connection_is_checked_before_its_use(
    mariadb: MariaDB, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy_resume.store import connections

    world.plan(1)
    monkeypatch.setattr(connections, "IDLE_CHECK", 0.0)
    _kill_connections(mariadb)
    with world.db.read() as conn:  # reads are not repeated
        assert conn.exec_driver_sql("SELECT 1").scalar() == 1


def test_txn_3_a_black_hole_is_noticed_within_the_network_timeout(
    relayed: World, world: World, proxy: Proxy
) -> None:
    (one,) = relayed.claim(world.plan(1))
    rule = proxy.rule("UPDATE resume_task_shard", "hold")
    started = time.monotonic()
    result = relayed.commit(page(one, 1))
    assert rule.met.is_set()
    assert time.monotonic() - started < 10
    assert (result.retries, world.shard(one.id).version) == (1, 1)


@pytest.mark.mutant
def test_txn_1_a_commit_after_an_error_is_noticed(
    mariadb: MariaDB, mariadb_name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def commit_whatever_happens(self: Database) -> Iterator[Any]:
        with self._writer.connect() as conn:
            try:
                yield conn
            finally:
                conn.commit()

    monkeypatch.setattr(Database, "transaction", commit_whatever_happens)
    with pytest.raises(AssertionError):
        test_txn_1_a_lock_that_stays_ends_as_unavailable_and_changes_nothing(
            mariadb, mariadb_name, world, monkeypatch
        )


def test_txn_5_a_server_that_became_read_only(mariadb: MariaDB, mariadb_name: str) -> None:
    mariadb.execute("CREATE USER IF NOT EXISTS crawler@localhost")
    mariadb.execute("CREATE USER IF NOT EXISTS crawler@'127.0.0.1'")
    for host in ("localhost", "127.0.0.1"):
        mariadb.execute(f"GRANT ALL ON `{mariadb_name}`.* TO crawler@'{host}'")
    db = Database.connect(mariadb.url(mariadb_name, user="crawler"))
    migrate.ensure_schema(db)
    world = World(db)
    (one,) = world.claim(world.plan(1))
    before = _connection_id(db)
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(StoreUnavailable, match="read-only"):
            checkpoints.commit(db, [page(one, 1)], world.positions, attempts=2)
        healed = threading.Timer(0.3, mariadb.execute, ("SET GLOBAL read_only = 0",))
        healed.start()
        assert world.commit(page(one, 1)).retries >= 1
        healed.join()
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    assert _connection_id(db) != before
    assert world.shard(one.id).cur_page == 1
    db.close()


def test_txn_5_the_other_connections_of_the_pool_are_given_up_too(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    """They were made before the failover and look healthy: a read would be of the old server."""
    db = Database.connect(mariadb.url(mariadb_name))
    with db.read() as one, db.read() as two:
        before = {_id_of(one), _id_of(two)}
    with pytest.raises(StoreUnavailable):
        db.run(_refuse_as_read_only, attempts=1)
    with db.read() as one, db.read() as two:
        assert not before & {_id_of(one), _id_of(two)}
    db.close()


def test_txn_5_a_connection_in_use_is_given_up_when_it_comes_back(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    db = Database.connect(mariadb.url(mariadb_name))
    with db.read() as busy:
        before = _id_of(busy)
        with pytest.raises(StoreUnavailable):
            db.run(_refuse_as_read_only, attempts=1)
    with db.read() as one, db.read() as two:
        assert before not in {_id_of(one), _id_of(two)}
    db.close()


def _refuse_as_read_only(conn: Any) -> None:
    conn.exec_driver_sql("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290")


def _id_of(conn: Any) -> int:
    return int(conn.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one())


@pytest.mark.parametrize("number", [1792, 1836, 2006, 2013, 1047, 1927])
def test_an_error_of_the_connection_is_repeated_on_another(world: World, number: int) -> None:
    ids: list[int] = []

    def work(conn: Any) -> str:
        ids.append(_id_of(conn))
        if len(ids) < 3:
            conn.exec_driver_sql(f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}")
        return "done"

    assert world.db.run(work) == "done"
    assert len(set(ids)) == 3


@pytest.mark.parametrize(("number", "tries"), [(1213, range(3, 9)), (2013, range(2, 3))])
def test_nothing_is_repeated_for_long_once_the_grace_is_over(
    world: World, number: int, tries: range
) -> None:
    world.db.deadline = 0.0
    with pytest.raises(StoreUnavailable) as caught:
        world.db.run(
            lambda conn: conn.exec_driver_sql(f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}")
        )
    assert sum(caught.value.repeats.values()) in tries


@pytest.mark.parametrize("table", ["book", None])
def test_txn_6_a_page_bigger_than_max_allowed_packet(
    mariadb: MariaDB, mariadb_name: str, world: World, table: str | None
) -> None:
    world.sql(BOOK)
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        db = Database.connect(mariadb.url(mariadb_name))
        small = World(db)
        task = world.plan(1)
        (one,) = small.claim(task)
        text = "'ü\\" * 13_000  # some 40 KB, and more when it is escaped
        keys = [f"k{n}" for n in range(60)]
        if table is None:
            rows = [item(key, text=text) for key in keys]
            rows.append(item("huge", text="x" * 1_100_000))
        else:
            rows = [Row(table, (key,), {"isbn": key, "text": text}) for key in keys]
            rows.append(Row(table, ("huge",), {"isbn": "huge", "text": "x" * 1_100_000}))
        writer = ItemWriter(db, [ItemTable("book", ["isbn"])])
        result = small.commit(page(one, 3, *rows), writer=writer)
        db.close()
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = 16777216")
    assert (result.written, result.retries) == (60, 0)
    stored = "book" if table else "resume_item"
    assert world.sql(f"SELECT COUNT(*) FROM {stored}") == [(60,)]
    (refused,) = quarantine.find(world.db, task.id)
    assert (refused["item_key"], refused["error_class"]) == ("huge", "RowTooLarge")
    assert world.shard(one.id).ahead == "3"


def test_txn_7_two_connections_at_most_and_none_after_close(
    mariadb: MariaDB, mariadb_name: str, world: World
) -> None:
    task = world.plan(8)
    world.db.close()
    base = _wait_for_connections(mariadb, 0)
    db = Database.connect(mariadb.url(mariadb_name))
    claimed = World(db).claim(task)
    peaks: list[int] = []

    def work(one: Any) -> None:
        mine = World(db, {one.id: one.position})
        for number in range(1, 6):
            mine.commit(page(one, number))
            peaks.append(mariadb.connections())

    threads = [threading.Thread(target=work, args=(one,)) for one in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each thread also looks with a connection of its own.
    assert max(peaks) <= base + 2 + len(threads)
    assert db.engine.pool.checkedout() == 0
    db.close()
    assert _wait_for_connections(mariadb, base) == base


def test_txn_7_too_many_connections_waits_and_repeats(
    mariadb: MariaDB, mariadb_name: str, world: World
) -> None:
    (one,) = world.claim(world.plan(1))
    world.db.close()
    limit = mariadb.execute("SELECT @@max_connections")[0][0]
    mariadb.execute("SET GLOBAL max_connections = 10")
    others: list[pymysql.connections.Connection] = []
    try:
        with contextlib.suppress(pymysql.err.OperationalError):
            while len(others) < 20:
                others.append(mariadb.connect())
        assert len(others) < 20
        threading.Timer(0.3, lambda: [other.close() for other in others[1:]]).start()
        assert world.commit(page(one, 1)).written == 2
    finally:
        with others[0].cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_connections = {limit}")
        for other in others:
            if other.open:
                other.close()


def test_a_server_that_is_frozen_is_given_up_in_time(
    mariadb: MariaDB, mariadb_name: str, world: World
) -> None:
    (one,) = world.claim(world.plan(1))
    db = Database.connect(mariadb.url(mariadb_name), network_timeout=1.0)
    mariadb.freeze()
    try:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            checkpoints.commit(db, [page(one, 1)], world.positions, attempts=2)
        assert time.monotonic() - started < 15
    finally:
        mariadb.thaw()
    assert world.commit(page(one, 1)).fenced == frozenset()
    assert world.shard(one.id).version == 1


@pytest.mark.parametrize(
    ("mariadb_too", "version", "fits"),
    [
        (True, (10, 5, 27), False), (True, (10, 6, 4), True), (True, (11, 8, 1), True),
        (False, (5, 7, 44), False), (False, (8, 0, 16), False), (False, (8, 0, 17), True),
        (False, (9, 1, 0), True),
    ],
)  # fmt: skip
def test_a_server_that_cannot_hand_out_shards_is_refused(
    world: World, mariadb_too: bool, version: tuple[int, ...], fits: bool
) -> None:
    world.db.require_claims()
    dialect: Any = world.db.engine.dialect
    dialect.is_mariadb, dialect.server_version_info = mariadb_too, version
    with (
        contextlib.nullcontext()
        if fits
        else pytest.raises(ConfigurationError, match=r"needs MariaDB 10\.6 or MySQL 8\.0\.17")
    ):
        world.db.require_claims()


def test_a_server_that_refuses_us_is_a_configuration_error(mariadb: MariaDB) -> None:
    for url in (mariadb.url("no_such_database"), f"mysql://root:wr0ng@127.0.0.1:{mariadb.port}/x"):
        with pytest.raises(ConfigurationError, match="refuses us") as caught:
            migrate.ensure_schema(Database.connect(url))
        assert "wr0ng" not in str(caught.value)


def test_a_server_that_is_down_is_unavailable() -> None:
    db = Database.connect("mysql+pymysql://root@127.0.0.1:1/x")
    with pytest.raises(StoreUnavailable, match="failed 2 times"):
        db.run(lambda conn: None, attempts=2)


def _kill_connections(mariadb: MariaDB) -> None:
    for (number,) in mariadb.execute(
        "SELECT id FROM information_schema.processlist"
        " WHERE user <> 'system user' AND id <> CONNECTION_ID()"
    ):
        mariadb.execute(f"KILL {number}")


def _connection_id(db: Database) -> int:
    with db.read() as conn:
        return int(conn.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one())


def _wait_for_connections(mariadb: MariaDB, wanted: int) -> int:
    deadline = time.monotonic() + 10
    while (count := mariadb.connections()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return count
