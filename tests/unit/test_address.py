"""Database addresses: what is accepted, what is refused, and what a refusal keeps to itself."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from scrapy_resume.address import DatabaseAddress
from scrapy_resume.exceptions import ConfigurationError

PASSWORDS = ["p@ss", "p/w", "a#b", "a:b", "100%", "ö ü", "日本", " leading", "a?b", "[x]", "p+q"]
UNESCAPED = ["p@ss", "p/w", "12/w", "a#b", "100%", "ö ü", "日本", " leading", "a?b", "[x]", "a\tb"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
# SQLAlchemy 2.0 does not unquote a database's name, so there it is a name of words.
UNQUOTES = make_url("sqlite:///%61").database == "a"
NAME = TEXT if UNQUOTES else st.from_regex(r"[\w .-]+", fullmatch=True)


pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("password", PASSWORDS)
def test_cfg_1_an_escaped_url_keeps_the_password(password: str) -> None:
    address = DatabaseAddress.parse(f"mysql://me:{quote(password, safe='')}@db:3307/books")
    assert (address.user, address.password) == ("me", password)
    assert (address.host, address.port, address.database) == ("db", 3307, "books")


@pytest.mark.parametrize("password", UNESCAPED)
def test_cfg_1_an_unescaped_url_is_refused_and_told_how_to_escape(password: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DatabaseAddress.parse(f"mysql+pymysql://me:{password}@db/books")
    message = str(caught.value)
    assert "RESUME_DATABASE_URL" in message
    assert "%40" in message
    assert "RESUME_DATABASE_PASSWORD" in message


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:ca@nary@db/books",
        "mysql://me:canary@db:port/books",
        "mysql://me:canary@db:99999/books",
        "mysql://me:canary@::1/books",
        "mysql://me:canary@[zz]/books",
        "mysql://me:canary@db",
        "mysql://me:canary@db/",
        "mysql://me:canary@/books",
        "mysql://:canary@db/books",
        "mysql://me:canary%ff@db/books",
        "mysql://me:x@db/books?password=canary",
        "mysql://me:x@db/books?a=canary%ff",
        "postgresql://me:canary@db/books",
        "mysql+mysqldb://me:canary@db/books",
        "canary",
        "sqlite://canary@host/file",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_cfg_2_a_refusal_repeats_nothing_of_the_url(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DatabaseAddress.parse(url)
    assert "RESUME_DATABASE_" in str(caught.value)
    seen = [caught.value, caught.value.__cause__, caught.value.__context__]
    shown = "".join(str(e) for e in seen if e is not None and not e.__suppress_context__)
    assert "nary" not in shown + str(caught.value)


@given(user=TEXT, password=TEXT, name=NAME, port=st.none() | st.integers(1, 65535))
def test_cfg_1_sqlalchemy_reads_the_normal_form_back(
    user: str, password: str, name: str, port: int | None
) -> None:
    address = DatabaseAddress.of_parts(
        host="db", port=port, user=user, password=password, name=name
    )
    url = make_url(address.url)
    assert (url.drivername, url.host, url.port) == ("mysql+pymysql", "db", port)
    assert (url.username, url.password, url.database) == (user, password, name)
    assert DatabaseAddress.parse(address.url) == address


@given(password=TEXT.filter(lambda text: len(text) > 3))
def test_cfg_2_no_password_in_the_redacted_form_or_the_repr(password: str) -> None:
    address = DatabaseAddress.of_parts(host="db", user="u", password=password, name="n")
    assert address.redacted_url == "mysql+pymysql://u:***@db/n"
    assert "password" not in repr(address)


def test_cfg_2_passwords_of_the_driver_are_redacted_too() -> None:
    address = DatabaseAddress.parse("mysql://u@db/n?charset=utf8mb4&ssl_key_password=canary")
    assert address.redacted_url == "mysql+pymysql://u@db/n?charset=utf8mb4&ssl_key_password=***"
    assert dict(make_url(address.url).query)["ssl_key_password"] == "canary"


@pytest.mark.parametrize("host", ["::1", "[::1]", "fe80::1%eth0", "[2001:DB8::1]", " ::1 "])
def test_cfg_4_an_ipv6_host_setting_takes_brackets_or_none(host: str) -> None:
    address = DatabaseAddress.of_parts(host=host, port=3306, user="u", password="p", name="n")
    bare = host.strip().strip("[]").lower()
    assert address.host == bare
    assert make_url(address.url).host == bare
    assert address.redacted_url == f"mysql+pymysql://u:***@[{bare}]:3306/n"
    assert DatabaseAddress.parse(address.url) == address


def test_cfg_4_an_ipv6_url_needs_brackets() -> None:
    assert DatabaseAddress.parse("mysql://u:p@[::1]/n").host == "::1"
    assert DatabaseAddress.parse("mysql://u:p@[fe80::1%25eth0]:1/n").host == "fe80::1%eth0"
    for url in ("mysql://u:p@::1/n", "mysql://u:p@::1:3306/n", "mysql://2001:db8::1/n"):
        with pytest.raises(ConfigurationError, match="brackets"):
            DatabaseAddress.parse(url)


@pytest.mark.parametrize(
    "host", ["db:3306", "u@db", "db/books", "mysql://db", "a b", "[db]", "1:2:3", "[::1", "ss\n"]
)
def test_a_host_setting_takes_a_bare_host(host: str) -> None:
    if host == "ss\n":
        assert DatabaseAddress.of_parts(host=host, name="n").host == "ss"
        return
    with pytest.raises(ConfigurationError, match="RESUME_DATABASE_HOST"):
        DatabaseAddress.of_parts(host=host, name="n")


@pytest.mark.parametrize(
    "scheme", ["mysql", "MySQL", "mariadb", "mysql+pymysql", "mariadb+pymysql"]
)
def test_every_spelling_of_mysql_is_pymysql(scheme: str) -> None:
    assert DatabaseAddress.parse(f"{scheme}://db/n").url == "mysql+pymysql://db/n"


def test_a_login_may_lack_its_password() -> None:
    assert DatabaseAddress.parse("mysql://u:@db/n").url == "mysql+pymysql://u@db/n"


@pytest.mark.parametrize(
    "parts",
    [
        {"host": None, "name": "n"},
        {"host": "db", "name": None},
        {"host": "db", "name": "n", "password": "canary"},
        {"host": "db", "name": "n", "user": "u", "password": "canary\udce4"},
    ],
)
def test_incomplete_parts_are_refused(parts: dict[str, str | None]) -> None:
    with pytest.raises(ConfigurationError, match="RESUME_DATABASE_") as caught:
        DatabaseAddress.of_parts(**parts)  # type: ignore[arg-type]
    assert "canary" not in str(caught.value)


@given(TEXT.filter(lambda name: not set("/\x00" if UNQUOTES else "/\x00%?") & set(name)))
def test_any_file_name_comes_back_from_its_sqlite_url(name: str) -> None:
    path = Path("/data") / name
    address = DatabaseAddress.of_file(path)
    assert make_url(address.url).database == str(path)
    assert DatabaseAddress.parse(address.url) == address


def test_a_relative_sqlite_file_is_fixed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = DatabaseAddress.parse("sqlite+pysqlite:///books.db?timeout=3")
    assert address.url == f"sqlite:///{tmp_path}/books.db?timeout=3"
