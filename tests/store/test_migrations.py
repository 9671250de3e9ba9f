"""The tables come from their migrations, and are those that the code describes."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scrapy_resume.exceptions import SchemaMismatch
from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from tests.services import MariaDB


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
    return sorted(re.split(r",?\s*\n", re.sub(r" AUTO_INCREMENT=\d+", "", sql)))


def test_fresh_equals_migrated(database_url: str) -> None:
    fresh = Database.connect(database_url, prefix="fresh_")
    with fresh.transaction() as conn:
        fresh.tables.metadata.create_all(conn)
    migrated = Database.connect(database_url, prefix="migrated_")
    migrate.ensure_schema(migrated)
    by_code = definitions(fresh, "fresh_")
    by_migration = definitions(migrated, "migrated_")
    assert by_migration == by_code
    assert len(fresh.tables.metadata.tables) == 9
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


@pytest.mark.parametrize(("version", "word"), [("0000", "upgrade"), ("9999", "newer")])
def test_another_schema_version_is_refused(database_url: str, version: str, word: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    with db.transaction() as conn:
        conn.exec_driver_sql(f"UPDATE resume_alembic_version SET version_num = '{version}'")
    with pytest.raises(SchemaMismatch, match=word):
        migrate.ensure_schema(db)
    (finding,) = migrate.check(db)
    assert word in finding


def test_newer_tables_are_never_downgraded(database_url: str) -> None:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    with db.transaction() as conn:
        conn.exec_driver_sql("UPDATE resume_alembic_version SET version_num = '9999'")
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
