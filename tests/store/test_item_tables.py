"""The users' tables are looked at before the first request, and SQL mends what is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import items, migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable
from scrapy_resume.store.items.findings import CODES, FIXED, Finding
from tests.services import MariaDB
from tests.store.worlds import World

KEY = "isbn VARCHAR(20) {exact} NOT NULL"
GOOD = [
    f"CREATE TABLE book ({KEY} PRIMARY KEY, title TEXT)",
    f"CREATE TABLE book ({KEY}, title TEXT, UNIQUE (isbn))",
    f"CREATE TABLE book (id {{id}} PRIMARY KEY {{counted}}, {KEY}, title TEXT, UNIQUE (isbn))",
    f"CREATE TABLE book ({KEY} PRIMARY KEY, title VARCHAR(20), shop INTEGER)",
]

BAD = [
    ("CREATE TABLE film (id INTEGER)", "missing_table", "table book: it does not exist"),
    ("CREATE TABLE book (title TEXT)", "missing_column",
     "table book, column isbn: there is no such column"),
    ("CREATE TABLE book (isbn VARCHAR(20) {exact}, title TEXT, UNIQUE (isbn))", "nullable_key",
     "table book, column isbn: a key column must be NOT NULL"),
    (f"CREATE TABLE book ({KEY}, title TEXT)", "no_unique_index",
     "table book: no unique index is made of just (isbn)"),
    (f"CREATE TABLE book ({KEY}, shop INTEGER NOT NULL, UNIQUE (isbn, shop))", "no_unique_index",
     "just (isbn); its unique indexes are of (isbn, shop), which the key"),
    (f"CREATE TABLE book ({KEY} PRIMARY KEY, slug VARCHAR(20), UNIQUE (slug))",
     "second_unique_index", "table book: its unique index (slug) may match an unrelated row"),
    (f"CREATE TABLE book (slug VARCHAR(20) PRIMARY KEY, {KEY}, UNIQUE (isbn))",
     "second_unique_index", "table book: its unique index (slug) may match an unrelated row"),
    (f"CREATE TABLE book ({KEY}, shop INTEGER NOT NULL, UNIQUE (isbn), UNIQUE (isbn, shop))",
     "second_unique_index", "its unique index (isbn, shop) may match an unrelated row"),
]  # fmt: skip

# What only MySQL and MariaDB can get wrong: a definition, the code, words of it, if it refuses.
SERVERS = [
    (f"{KEY} PRIMARY KEY) ENGINE=MyISAM", "engine", "its engine is MyISAM", True),
    (f"{KEY} PRIMARY KEY) ENGINE=Aria", "engine", "its engine is Aria", True),
    ("isbn VARCHAR(90) {exact} NOT NULL, UNIQUE (isbn(50)))", "prefix_index",
     "its unique index (isbn(50)) takes keys that begin alike for one", True),
    ("isbn VARCHAR(20) NOT NULL PRIMARY KEY) COLLATE utf8mb4_general_ci", "collation",
     "the collation utf8mb4_general_ci takes different keys for one", False),
    ("isbn VARCHAR(20) NOT NULL PRIMARY KEY) COLLATE utf8mb4_bin", "padding",
     "the collation utf8mb4_bin takes keys that end in spaces", False),
    (f"{KEY} PRIMARY KEY, title TEXT CHARACTER SET utf8mb3)", "charset",
     "utf8mb3 cannot hold every character", False),
    (f"{KEY} PRIMARY KEY, title VARCHAR(9) CHARACTER SET latin1 NOT NULL DEFAULT 'it''s')",
     "charset", "latin1 cannot hold every character", False),
    (f"id INTEGER PRIMARY KEY AUTO_INCREMENT, {KEY}, UNIQUE (isbn)) AUTO_INCREMENT=77", "small_id",
     "ends at 2147483647 and is at 77 now", False),
    (f"id TINYINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, {KEY}, UNIQUE (isbn))", "small_id",
     "which ends at 255 and is at 1 now", False),
    (f"id BIGINT PRIMARY KEY AUTO_INCREMENT, {KEY}, slug VARCHAR(500), UNIQUE (isbn),"
     " UNIQUE s (slug(9)))", "second_unique_index", "its unique index (slug(9))", True),
]  # fmt: skip


@pytest.fixture(autouse=True)
def every_character(request: pytest.FixtureRequest) -> None:
    """The test server's default is latin1; a table's own columns are to hold everything."""
    for name in {"world", "mariadb_world"} & set(request.fixturenames):
        world: World = request.getfixturevalue(name)
        if world.db.dialect == "mysql":
            world.sql("ALTER DATABASE CHARACTER SET utf8mb4")


def sql(world: World, statement: str) -> str:
    """*statement* in the words of the database, with a key that compares exactly."""
    mysql = world.db.dialect == "mysql"
    words = {"{exact}": "COLLATE utf8mb4_nopad_bin" if mysql else ""}
    words |= {"{counted}": "AUTO_INCREMENT" if mysql else ""}
    words |= {"{id}": "BIGINT" if mysql else "INTEGER"}
    return re.sub(r"{\w+}", lambda found: words[found[0]], statement)


def inspect(world: World, *checks: str, **options: Any) -> list[Finding]:
    table = ItemTable("book", **{"key": ["isbn"], **options})
    return items.inspect(world.db, [table], dict(check.split("=") for check in checks))


@pytest.mark.parametrize("create", GOOD)
def test_a_fit_table(world: World, create: str) -> None:
    world.sql(sql(world, create))
    assert items.require(world.db, [ItemTable("book", ["isbn"])]) == []


@pytest.mark.parametrize(("create", "code", "message"), BAD)
def test_an_unfit_table_is_refused_by_name(
    world: World, create: str, code: str, message: str
) -> None:
    world.sql(sql(world, create))
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        items.require(world.db, [ItemTable("book", ["isbn"])])
    found = next(finding for finding in inspect(world) if finding.refuse)
    assert found.code == code
    if found.mend is not None:
        world.sql(found.mend)
        assert [finding for finding in inspect(world) if finding.code == code] == []
    else:  # SQLite changes no column, and drops no index that a table was made with
        assert world.db.dialect == "sqlite" and code in ("nullable_key", "second_unique_index")


@pytest.mark.parametrize(("definition", "code", "message", "refuse"), SERVERS)
def test_what_only_a_server_can_get_wrong(
    mariadb_world: World, definition: str, code: str, message: str, refuse: bool
) -> None:
    world = mariadb_world
    world.sql(sql(world, f"CREATE TABLE book ({definition}"))
    before = world.sql("SHOW FULL COLUMNS FROM book")
    (found,) = inspect(world)
    assert (found.code, found.refuse) == (code, refuse)
    assert message in found.text
    assert found.mend is not None
    world.sql(found.mend)
    assert inspect(world) == []
    after = world.sql("SHOW FULL COLUMNS FROM book")
    defaults = [(column.Field, column.Null, column.Default) for column in before]
    assert [(column.Field, column.Null, column.Default) for column in after] == defaults


def test_the_mends_of_one_key_column_do_not_undo_each_other(mariadb_world: World) -> None:
    world = mariadb_world
    world.sql("CREATE TABLE book (isbn VARCHAR(20) COLLATE latin1_swedish_ci, UNIQUE (isbn))")
    found = inspect(world)
    assert [one.code for one in found] == ["nullable_key", "charset", "collation"]
    for one in found:
        world.sql(str(one.mend))
    assert inspect(world) == []


def test_the_order_of_a_column_that_is_no_key_is_left_to_its_owner(mariadb_world: World) -> None:
    world = mariadb_world
    world.sql(sql(world, f"CREATE TABLE book ({KEY} PRIMARY KEY, title TEXT CHARACTER SET latin1)"))
    (found,) = inspect(world)
    assert str(found.mend).endswith("CHARACTER SET utf8mb4")


def test_no_mend_drops_the_index_that_may_be_the_key_that_was_meant(world: World) -> None:
    world.sql(sql(world, f"CREATE TABLE book ({KEY}, shop INTEGER NOT NULL)"))
    world.sql("CREATE UNIQUE INDEX meant ON book (isbn, shop)")
    assert [(one.code, bool(one.mend)) for one in inspect(world)] == [
        ("no_unique_index", True),
        ("second_unique_index", False),
    ]


def test_columns_that_an_item_table_names_must_exist(world: World) -> None:
    world.sql(sql(world, GOOD[0]))
    found = inspect(world, update=["title", "price"], newer_by="seen")
    assert [(one.code, one.column, one.text) for one in found] == [
        ("missing_column", "price", "there is no such column"),
        ("missing_column", "seen", "there is no such column"),
    ]
    for one in found:
        world.sql(str(one.mend))
    assert inspect(world, update=["title", "price"], newer_by="seen") == []


def test_a_missing_column_hides_nothing_else(mariadb_world: World) -> None:
    world = mariadb_world
    world.sql(
        "CREATE TABLE book (isbn VARCHAR(20) COLLATE utf8mb4_general_ci, slug VARCHAR(20),"
        " UNIQUE (isbn), UNIQUE (slug))"
    )
    found = inspect(world, update=["price"])
    assert [one.code for one in found] == [
        "missing_column", "second_unique_index", "nullable_key", "collation",
    ]  # fmt: skip
    for one in found:
        world.sql(str(one.mend))
    assert inspect(world, update=["price"]) == []


def test_a_missing_key_column_is_all_that_is_said_of_indexes(world: World) -> None:
    world.sql(sql(world, GOOD[0]))
    found = inspect(world, key=["isbn", "shop"])
    assert [(one.code, one.column) for one in found] == [("missing_column", "shop")]


def test_no_mend_makes_an_ordinary_column_of_a_generated_one(mariadb_world: World) -> None:
    world = mariadb_world
    made = "slug VARCHAR(20) CHARACTER SET latin1 AS (title) STORED"
    world.sql(sql(world, f"CREATE TABLE book ({KEY} PRIMARY KEY, title VARCHAR(20), {made})"))
    assert [(one.code, one.column, one.mend) for one in inspect(world)] == [
        ("charset", "slug", None)
    ]


def test_a_column_that_is_spelt_in_another_case_is_another_one(world: World) -> None:
    world.sql(sql(world, GOOD[0]))
    (found,) = inspect(world, update=["Title"])
    assert str(found) == "table book, column Title: there is no such column; there is title"


def test_a_table_without_a_key(world: World) -> None:
    world.sql(sql(world, GOOD[0]))
    (found,) = inspect(world, key=())
    assert (found.code, found.refuse) == ("no_key", True)
    assert found.text == "its ItemTable names no key; its unique indexes are of (isbn)"


def test_a_composite_key_in_any_order(world: World) -> None:
    create = "CREATE TABLE book (shop INTEGER NOT NULL, isbn VARCHAR(20) {exact} NOT NULL,"
    world.sql(sql(world, create + " UNIQUE (shop, isbn))"))
    assert inspect(world, key=["isbn", "shop"]) == []


def test_generated_columns(world: World) -> None:
    stored = "twice INTEGER GENERATED ALWAYS AS (n * 2) STORED"
    virtual = "half INTEGER GENERATED ALWAYS AS (n + 1) VIRTUAL"
    world.sql(sql(world, f"CREATE TABLE book ({KEY} PRIMARY KEY, n INTEGER, {stored}, {virtual})"))
    assert inspect(world) == []
    found = inspect(world, update=["n", "twice"], newer_by="half")
    assert [(one.code, one.column, one.refuse) for one in found] == [
        ("generated_column", "twice", True), ("generated_column", "half", True),
    ]  # fmt: skip


def test_a_view(world: World) -> None:
    world.sql(sql(world, f"CREATE TABLE shelf ({KEY} PRIMARY KEY, title TEXT)"))
    world.sql("CREATE VIEW book AS SELECT * FROM shelf")
    (found,) = inspect(world)
    assert (found.code, found.refuse) == ("view", True)


def test_a_trigger(world: World) -> None:
    world.sql(sql(world, GOOD[0]))
    world.sql("CREATE TABLE log (isbn VARCHAR(20))")
    body = "INSERT INTO log VALUES (NEW.isbn)"
    body = body if world.db.dialect == "mysql" else f"BEGIN {body}; END"
    world.sql(f"CREATE TRIGGER noted AFTER INSERT ON book FOR EACH ROW {body}")
    (found,) = inspect(world)
    assert (found.code, found.refuse) == ("trigger", False)
    assert "its trigger noted" in found.text


def test_txn_8_a_trigger_that_writes_into_a_table_which_cannot_undo(mariadb_world: World) -> None:
    world = mariadb_world
    world.sql(sql(world, GOOD[0]))
    world.sql("CREATE TABLE log (isbn VARCHAR(20)) ENGINE=MyISAM")
    world.sql("CREATE TABLE lo (isbn VARCHAR(20)) ENGINE=MyISAM")  # which it does not name
    world.sql("CREATE TRIGGER noted AFTER INSERT ON book FOR EACH ROW"
              " INSERT INTO `log` VALUES (NEW.isbn)")  # fmt: skip
    _, found = inspect(world)
    assert (found.code, found.table, found.refuse) == ("engine", "log", True)
    assert found.text.startswith("the trigger noted of book names it, and its engine is MyISAM")
    world.sql(str(found.mend))
    assert [one.code for one in inspect(world)] == ["trigger"]


def test_txn_8_a_checkpoint_table_that_cannot_undo(mariadb_world: World) -> None:
    world = mariadb_world
    world.sql("ALTER TABLE resume_quarantine ENGINE=MyISAM")
    (found,) = items.inspect(world.db, [])
    assert (found.code, found.table, found.refuse) == ("engine", "resume_quarantine", True)


def test_a_server_that_cuts_the_values_of_others(mariadb: MariaDB, mariadb_world: World) -> None:
    world = mariadb_world
    world.sql(sql(world, GOOD[0]))
    before = mariadb.execute("SELECT @@GLOBAL.sql_mode")[0][0]
    mariadb.execute("SET GLOBAL sql_mode = ''")
    try:
        (found,) = inspect(world)
        assert (found.code, found.refuse) == ("strict_mode", False)
        world.sql(str(found.mend))
        assert inspect(world) == []
    finally:
        mariadb.execute(f"SET GLOBAL sql_mode = '{before}'")


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
def test_key_2_a_collation_of_sqlite(sqlite_url: str, collation: str) -> None:
    db = Database.connect(sqlite_url)
    migrate.ensure_schema(db)
    world = World(db)
    world.sql(f"CREATE TABLE book (isbn TEXT NOT NULL PRIMARY KEY COLLATE {collation})")
    (found,) = inspect(world)
    assert (found.code, found.column, found.refuse) == ("collation", "isbn", False)
    db.close()


def test_an_index_of_some_rows_only_is_none(world: World) -> None:
    if world.db.dialect == "mysql":  # it knows none
        return
    world.sql("CREATE TABLE book (isbn TEXT NOT NULL, title TEXT)")
    world.sql("CREATE UNIQUE INDEX some ON book (isbn) WHERE title IS NOT NULL")
    assert [one.code for one in inspect(world)] == ["no_unique_index", "second_unique_index"]


def test_checks_are_settable(world: World) -> None:
    world.sql(sql(world, "CREATE TABLE book (isbn INTEGER, slug VARCHAR(9) {exact}, UNIQUE (isbn),"
                         " UNIQUE (slug))"))  # fmt: skip
    assert [one.refuse for one in inspect(world)] == [True, True]
    found = inspect(world, "nullable_key=warn", "second_unique_index=ignore")
    assert [(one.code, one.refuse) for one in found] == [("nullable_key", False)]
    assert inspect(world, "nullable_key=ignore", "second_unique_index=ignore") == []


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("nulable_key=warn", "RESUME_ITEM_CHECKS names the check nulable_key; there are missing_"),
        ("nullable_key=off", "sets nullable_key to off; allowed is one of refuse, warn, ignore"),
        *(
            (f"{code}=warn", f"sets {code} to warn; it cannot be lived with")
            for code in sorted(FIXED)
        ),
    ],
)
def test_checks_that_cannot_be(world: World, check: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect(world, check)


def test_every_code_is_found_by_a_test() -> None:
    text = Path(__file__).read_text("utf-8")
    assert [code for code in CODES if f'"{code}"' not in text] == []
