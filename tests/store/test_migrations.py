"""The tables come from their migrations, and are those that the code describes."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scrapy_resume.exceptions import SchemaMismatch
from scrapy_resume.store import meta, migrate
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.parallel import in_threads
from tests.store.worlds import World


def definitions(db: Database, prefix: str = "resume_") -> dict[str, list[str]]:
    """The lines that define each table and index, in the server's words and without the prefix."""
    with db.read() as conn:
        if db.dialect == "sqlite":
            rows = conn.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql <> ''")
            found = {row.name: row.sql for row in rows}
        else:
            names = conn.exec_driver_sql("SHOW TABLES").scalars().all()
            found = {
                name: conn.exec_driver_sql(f"SHOW CREATE TABLE `{name}`").one()[1] for name in names
            }
    return {
        name.removeprefix(prefix): _lines(sql.replace(prefix, ""))
        for name, sql in found.items()
        if name.startswith(prefix) and not name.endswith("alembic_version")
    }


def _lines(sql: str) -> list[str]:
    # SQLite keeps the text of its ADD COLUMN, which begins no line.
    return sorted(re.split(r",\s+|\s*\n\s*", re.sub(r" AUTO_INCREMENT=\d+", "", sql)))


def test_fresh_equals_migrated(database_url: str) -> None:
    fresh = Database.connect(database_url, prefix="fresh_")
    with fresh.transaction() as conn:
        fresh.tables.metadata.create_all(conn)
    migrated = Database.connect(database_url, prefix="migrated_")
    migrate.ensure_schema(migrated)
    by_code = definitions(fresh, "fresh_")
    by_migration = definitions(migrated, "migrated_")
    assert by_migration == by_code
    assert len(fresh.tables.metadata.tables) == 10
    assert set(fresh.tables.metadata.tables) <= {f"fresh_{name}" for name in by_code}
    assert migrate.check(migrated) == []


def test_many_processes_may_create_the_tables_at_once(database_url: str) -> None:
    databases = [Database.connect(database_url) for _ in range(4)]
    errors: list[BaseException] = []

    def create(db: Database) -> None:
        try:
            migrate.ensure_schema(db)
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=create, args=(db,)) for db in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.check(databases[0]) == []


def test_a_migration_killed_half_way_is_finished_by_the_next_start(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    db = Database.connect(mariadb.url(mariadb_name))
    migrate.ensure_schema(db)
    complete = definitions(db)
    mariadb.execute("DELETE FROM resume_alembic_version", database=mariadb_name)
    mariadb.execute("DROP TABLE resume_outbox, resume_worker", database=mariadb_name)
    mariadb.execute("ALTER TABLE resume_task_shard DROP INDEX resume_task_shard_lease",
                    database=mariadb_name)  # fmt: skip
    migrate.ensure_schema(db)
    assert definitions(db) == complete


# A planned run with three shards, as the first revision had them.
OLD_ROWS = (
    "INSERT INTO resume_task (id, name, spider, args, run_no, open_name, priority, status, desired,"
    " reason, plan_token, planned_at, created_at, updated_at) VALUES (1, 'books', 'books', '{}', 1,"
    " 'books', 0, 'running', 'run', 'planned', 1, '2026-01-01', '2026-01-01', '2026-01-01')",
    *(
        "INSERT INTO resume_task_shard (id, task_id, shard_no, shard_key, site, lane, priority,"
        " due, status, reason, ordered, first_page, last_page, cur_page, ahead, failed_pages,"
        " page_count, written_count, dropped_count, quarantined_count, version, fencing_token,"
        f" attempt_count, max_attempts, created_at, updated_at) VALUES ({n}, 1, {n}, 's{n}',"
        " 'site', 0, 0, 1, 'pending', 'planned', 0, 1, 100, 0, '', '', 0, 0, 0, 0, 0, 0, 0, 10,"
        " '2026-01-01', '2026-01-01')"
        for n in (1, 2, 3)
    ),
)


def stamp(db: Database, version: str) -> None:
    with db.transaction() as conn:
        conn.exec_driver_sql(f"UPDATE resume_alembic_version SET version_num = '{version}'")


def first_tables(db: Database) -> None:
    """The tables as the first revision made them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "SCHEMA_VERSION", "0001")
        patch.setattr(meta, "write", lambda *_: None)
        migrate.ensure_schema(db)


def test_older_tables_keep_their_rows(database_url: str) -> None:
    db = Database.connect(database_url)
    first_tables(db)
    with db.transaction() as conn:
        for statement in OLD_ROWS:
            conn.exec_driver_sql(statement)
    older = f"0001, older than {migrate.SCHEMA_VERSION}; run `scrapy resume db up"
    with pytest.raises(SchemaMismatch, match=older):
        migrate.ensure_schema(db)
    migrate.upgrade(db)
    assert migrate.check(db) == []
    assert len(World(db).claim(World(db).open())) == 3
    assert World(db).shard(2).planned_last_page == 100
    migrate.upgrade(db)
    migrate.still_fits(db)


def test_older_tables_without_a_run_are_completed_at_a_start(database_url: str) -> None:
    db = Database.connect(database_url)
    first_tables(db)
    migrate.ensure_schema(db)
    assert migrate.check(db) == []


def test_the_tables_have_an_id_of_their_own(database_url: str) -> None:
    databases = [Database.connect(database_url, prefix=prefix) for prefix in ("a_", "b_", "a_")]
    for db in databases:
        migrate.ensure_schema(db)
    one, two, again = (meta.database_id(db) for db in databases)
    assert one == again != two
    assert re.fullmatch("[0-9a-f]{12}", one)


def test_many_ask_for_the_id_at_once(database_url: str) -> None:
    migrate.ensure_schema(Database.connect(database_url))
    found: list[str] = []
    in_threads(database_url, [lambda other: found.append(meta.database_id(other.db))] * 4)
    assert len(found) == 4 and len(set(found)) == 1


def test_a_newer_protocol_is_refused_and_names_the_package(database_url: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    with db.transaction() as conn:
        assert meta.read(conn, db, "protocol") == str(migrate.PROTOCOL_VERSION)
        meta.write(conn, db, "protocol", "99")
        meta.write(conn, db, "package", "7.5")
    says = "speak protocol 99, newer than 1; this worker needs scrapy_resume 7.5 or newer"
    for ask in (migrate.ensure_schema, migrate.still_fits, migrate.upgrade):
        with pytest.raises(SchemaMismatch, match=says):
            ask(db)
    assert len(migrate.check(db)) == 1 and says in migrate.check(db)[0]
    with db.read() as conn:
        assert meta.read(conn, db, "protocol") == "99"


@pytest.mark.parametrize(("version", "word"), [("0000", "upgrade"), ("9999", "newer")])
def test_another_schema_version_is_refused(database_url: str, version: str, word: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    World(db).open()
    stamp(db, version)
    with pytest.raises(SchemaMismatch, match=word):
        migrate.ensure_schema(db)
    with pytest.raises(SchemaMismatch, match=word):
        migrate.still_fits(db)
    (finding,) = migrate.check(db)
    assert word in finding


def test_newer_tables_that_no_longer_say_whose_they_are(database_url: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    stamp(db, "9999")
    with db.transaction() as conn:
        conn.exec_driver_sql("DROP TABLE resume_meta")
    needs = f"newer than {migrate.SCHEMA_VERSION}; this worker needs a newer scrapy"
    with pytest.raises(SchemaMismatch, match=needs):
        migrate.still_fits(db)


def test_newer_tables_are_never_downgraded(database_url: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    stamp(db, "9999")
    with pytest.raises(SchemaMismatch):
        migrate.upgrade(db)


def test_check_names_what_is_missing(database_url: str) -> None:
    db = Database.connect(database_url)
    assert "no tables" in migrate.check(db)[0]
    migrate.ensure_schema(db)
    with db.transaction() as conn:
        conn.exec_driver_sql("DROP TABLE resume_outbox")
        conn.exec_driver_sql("ALTER TABLE resume_manifest DROP COLUMN item_count")
    assert migrate.check(db) == [
        "the table resume_manifest has no column item_count",
        "the table resume_outbox is missing",
    ]


def test_check_refuses_an_engine_that_cannot_roll_back(mariadb: MariaDB, mariadb_name: str) -> None:
    db = Database.connect(mariadb.url(mariadb_name))
    migrate.ensure_schema(db)
    mariadb.execute("ALTER TABLE resume_manifest ENGINE=MyISAM", database=mariadb_name)
    assert migrate.check(db) == [
        "the table resume_manifest has the engine MyISAM; only InnoDB can undo a transaction"
    ]


def test_tables_ignore_the_servers_defaults(mariadb: MariaDB, mariadb_name: str) -> None:
    mariadb.execute(
        f"ALTER DATABASE `{mariadb_name}` CHARACTER SET latin1 COLLATE latin1_swedish_ci"
    )
    db = Database.connect(mariadb.url(mariadb_name))
    migrate.ensure_schema(db)
    rows = mariadb.execute(
        "SELECT DISTINCT character_set_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = %s AND character_set_name IS NOT NULL"
        " AND table_name <> 'resume_alembic_version'", mariadb_name,
    )  # fmt: skip
    assert rows == [("utf8mb4", "utf8mb4_nopad_bin")]


def test_alembic_is_not_imported_when_nothing_is_to_migrate(sqlite_url: str) -> None:
    migrate.ensure_schema(Database.connect(sqlite_url))
    script = (
        "import sys; from scrapy_resume.store import migrate; from scrapy_resume.store.engine"
        f" import Database; migrate.ensure_schema(Database.connect({sqlite_url!r}));"
        " print(sorted(n for n in ('alembic', 'pymysql', 'scrapy') if n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        cwd=Path(migrate.__file__).parents[2],
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_the_revision_is_a_file_of_the_package() -> None:
    scripts = Path(migrate.__file__).parent / "migrations" / "versions"
    revisions = [re.search(r'^revision = "(\d+)"', path.read_text(), re.M)
                 for path in scripts.glob("r*.py")]  # fmt: skip
    assert max(match[1] for match in revisions if match) == migrate.SCHEMA_VERSION
