"""Settings, addresses and secrets, with a real server behind them."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from example_project.site import Site

from tests.acceptance.harness import Bench
from tests.services import MariaDB, Redis

SHORT = """\
class Rows(Chain):
    name = 'rows'
"""
REDIS_PASSWORD = "iA/127c=[CANARY#x@y z"
PASSWORD = " p@ss/w#o:r%d 100% [öü] 日本'\"\\"


@pytest.fixture
def login(mariadb: MariaDB, mariadb_name: str) -> Iterator[str]:
    """A user with a password that is hard to write."""
    user = f"user_{mariadb_name[-10:]}"
    mariadb.execute(f"CREATE USER {user} IDENTIFIED BY %s", PASSWORD)
    mariadb.execute(f"GRANT ALL ON `{mariadb_name}`.* TO {user}")
    yield user
    mariadb.execute(f"DROP USER {user}")


def parts(mariadb: MariaDB, name: str, login: str) -> dict[str, Any]:
    return {
        "RESUME_DATABASE_HOST": mariadb.host,
        "RESUME_DATABASE_PORT": mariadb.port,
        "RESUME_DATABASE_USER": login,
        "RESUME_DATABASE_PASSWORD": PASSWORD,
        "RESUME_DATABASE_NAME": name,
    }


@pytest.mark.parametrize("form", ["url", "settings", "environment"])
def test_cfg_1_a_password_with_special_characters(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, login: str, form: str
) -> None:
    bench = mariadb_bench
    bench.site.listing.rows = bench.site.listing.rows[:20]
    bench.write(SHORT)
    given: dict[str, Any] = {}
    if form == "url":
        url = f"mysql+pymysql://{login}:{quote(PASSWORD, safe='')}@{mariadb.host}:{mariadb.port}"
        bench.env = {"RESUME_DATABASE_URL": f"{url}/{mariadb_name}"}
    elif form == "settings":
        bench.env = {"RESUME_DATABASE_URL": ""}
        given = parts(mariadb, mariadb_name, login)
    else:
        values = {name: str(v) for name, v in parts(mariadb, mariadb_name, login).items()}
        bench.env = {"RESUME_DATABASE_URL": "", **values}
    crawl = bench.crawl(**given)
    assert crawl.finish_reason == "finished", crawl.tail
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 20)


def test_cfg_1_an_unescaped_password_is_explained_before_any_connection(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = mariadb_bench
    bench.write(SHORT)
    secret = "canary@db/more"
    url = f"mysql+pymysql://u:{secret}@{mariadb.host}:{mariadb.port}/{mariadb_name}"
    bench.env = {"RESUME_DATABASE_URL": url}
    crawl = bench.crawl()
    assert crawl.finish_reason == "resume_refused"
    (error,) = crawl.said("ERROR")
    assert "%40" in error
    assert "canary" not in crawl.log and "Traceback" not in crawl.log
    assert bench.site.requests == []


@pytest.fixture
def locked_redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis with a password that is hard to write."""
    server = Redis(tmp_path / "redis", "--requirepass", REDIS_PASSWORD)
    server.start()
    yield server
    server.discard()


def test_cfg_3_a_redis_password_with_special_characters(
    sqlite_bench: Bench, locked_redis: Redis
) -> None:
    bench, word = sqlite_bench, quote(REDIS_PASSWORD, safe="")
    bench.settings = {"LOG_LEVEL": "DEBUG", "RESUME_RUN": "new"}
    bench.site.listing.rows = bench.site.listing.rows[:20]
    bench.write(SHORT)
    where = f"{locked_redis.host}:{locked_redis.port}"
    parts = {"RESUME_REDIS_HOST": locked_redis.host, "RESUME_REDIS_PORT": str(locked_redis.port)}
    admin = locked_redis.client(password=REDIS_PASSWORD)
    for given in (
        {"RESUME_REDIS_URL": f"redis://:{word}@{where}/0"},
        {**parts, "RESUME_REDIS_PASSWORD": REDIS_PASSWORD},
    ):
        admin.config_resetstat()
        bench.env = given
        crawl = bench.crawl()
        assert crawl.finish_reason == "finished", crawl.tail
        assert (bench.task["verdict"], len(bench.items)) == ("complete", 20)
        assert admin.info("commandstats").get("cmdstat_evalsha"), "Redis took no part"
    for wrong, explained in (
        (f"redis://:{REDIS_PASSWORD}@{where}/0", "%40"),
        (f"redis://:{word}x@{where}/0", "refuses us"),
        (f"redis://:{word}@{where}/99", "refuses us"),
    ):
        bench.env = {"RESUME_REDIS_URL": wrong}
        crawl = bench.crawl()
        assert crawl.finish_reason == "resume_refused"
        (error,) = crawl.said("ERROR")
        assert explained in error and "Traceback" not in crawl.log
    output = "\n".join(one.log for one in bench.crawls)
    assert "CANARY" not in output


class Relay6:
    """Listens on ::1 and relays to a port of 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("form", ["url", "host", "bracketed host"])
def test_cfg_4_everything_on_ipv6(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, form: str
) -> None:
    bench = mariadb_bench
    bench.write(SHORT)
    with Site(host="::1", pages=2) as site, closing(Relay6(mariadb.port)) as relay:
        bench.env = {"BENCH_SITE": site.url, "RESUME_DATABASE_URL": ""}
        given: dict[str, Any] = {}
        if form == "url":
            bench.env["RESUME_DATABASE_URL"] = (
                f"mysql+pymysql://root@[::1]:{relay.port}/{mariadb_name}"
            )
        else:
            given = {
                "RESUME_DATABASE_HOST": "::1" if form == "host" else "[::1]",
                "RESUME_DATABASE_PORT": relay.port,
                "RESUME_DATABASE_USER": "root",
                "RESUME_DATABASE_NAME": mariadb_name,
            }
        # Scrapy's default resolver knows no IPv6.
        bench.settings["DNS_RESOLVER"] = "scrapy.resolver.CachingHostnameResolver"
        crawl = bench.crawl(**given)
        assert crawl.finish_reason == "finished", crawl.tail
        assert (bench.task["verdict"], len(bench.items)) == ("complete", 20)
        wrong = bench.crawl(**{**given, "RESUME_TABLE_PREFIX": "x" * 40})
        assert "[[" not in wrong.log


SECRETIVE = """\
class Rows(Chain):
    name = 'rows'
    item_table = ItemTable("person", key=["key"])
    start_urls = [SITE + "/list?page=1&token=CANARYstart"]

    def __init__(self, token="", **kwargs):
        super().__init__(**kwargs)
        self.token = token

    def parse(self, response):
        page = number_of(response)
        for item in rows(response):
            yield {"key": item["key"], "title": "CANARYperson" if page == 2 else "x"}
        if page == 4 and os.environ.get("BROKEN"):
            raise ValueError(f"cannot read {response.url}")
        if page < 12:
            yield self.next_page(
                Request(
                    SITE + f"/list?page={page + 1}&token=CANARYnext{page + 1}",
                    headers={"Authorization": "Bearer CANARYbearer"},
                    cookies={"session": "CANARYcookie"},
                    meta={"http_pass": "CANARYmeta"},
                )
            )
"""
PERSON = """\
CREATE TABLE person (
    `key` VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    title VARCHAR(5)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""
# What asks for the next page has to hold its token, and a refused row is kept with its value,
# shortened, for who looks into the table; they are no listing.
PRIVATE_COLUMNS = ("cursor", "first_cursor", "spec", "value")


def ours(log: str) -> str:
    """The records of our loggers and the stats, whole with their tracebacks."""
    records = re.split(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[)", log, flags=re.MULTILINE)
    named = [r for r in records if re.match(r"[\d: -]+\[scrapy_resume", r) or "'resume/" in r]
    return "\n".join(named)


def test_cfg_2_secrets_are_in_no_output(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = mariadb_bench
    bench.write(SECRETIVE)
    mariadb.execute(PERSON, database=mariadb_name)
    user = f"canary_{mariadb_name[-10:]}"
    mariadb.execute(f"CREATE USER {user} IDENTIFIED BY 'CANARYpassword'")
    mariadb.execute(f"GRANT ALL ON `{mariadb_name}`.* TO {user}")
    address = f"{mariadb.host}:{mariadb.port}/{mariadb_name}"
    bench.env = {"RESUME_DATABASE_URL": f"mysql+pymysql://{user}:CANARYpassword@{address}"}
    bench.settings = {"LOG_LEVEL": "DEBUG"}
    run = ("rows", "token=CANARYtoken")
    # The server refuses us; nobody is there; the callback, a page, a row, the process fail.
    wrong = f"mysql+pymysql://{user}:CANARYwrong@{address}"
    refused = bench.crawl(*run, RESUME_DATABASE_URL=wrong)
    assert refused.finish_reason == "resume_refused"
    bench.env["BROKEN"] = "1"
    assert bench.crawl(*run).finish_reason == "resume_incomplete"
    del bench.env["BROKEN"]
    for trouble in ({"status": 404}, {"reset": True}, {"cut": True}, {"status": 500}):
        bench.site.behave(page=6, **trouble)
        assert bench.crawl(*run).finish_reason == "resume_incomplete"
        bench.site.heal()
    bench.crawl(*run, RESUME_FAULT="commit.after:2:kill", RESUME_MAX_WAIT=5)
    bench.crawl(*run, RESUME_MAX_WAIT=5)
    assert bench.task["verdict"] == "complete_with_rejects"
    assert len(bench.quarantine) == 10
    mine = ("-s", f"RESUME_TABLE_PREFIX={bench.prefix}")
    for verb in (("status",), ("status", "--json"), ("why", "rows"), ("db", "check")):
        assert bench.run_scrapy("resume", *verb, *mine).wait().code is not None
    output = "\n".join(ours(crawl.log) for crawl in bench.crawls[:-4])
    output += "\n".join(crawl.log for crawl in bench.crawls[-4:])
    assert "page_held" in output or "is held" in output
    assert _canaries(output) == set()
    assert _canaries(_listing(bench)) == set()
    everything = "\n".join(crawl.log for crawl in bench.crawls)
    # Scrapy itself prints what -s gives it, and the URLs it asks for; never the environment.
    assert _canaries(everything) & {"CANARYpassword", "CANARYtoken"} == set()
    mariadb.execute(f"DROP USER {user}")


def _canaries(text: str) -> set[str]:
    return set(re.findall(r"CANARY[a-z]+", text))


def _listing(bench: Bench) -> str:
    snapshot = bench.snapshot()
    rows = [
        *snapshot.tasks.values(),
        *snapshot.shards.values(),
        *snapshot.quarantine,
        *snapshot.operations,
    ]
    return "\n".join(
        f"{name}={value}" for row in rows for name, value in row.items()
        if name not in PRIVATE_COLUMNS
    )  # fmt: skip
