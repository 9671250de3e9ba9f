"""Settings: where a value comes from, what is refused, and what a refusal says."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings
from sqlalchemy import make_url

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.settings import ResumeSettings, reference_table

ROOT = Path(__file__).parents[2]
PASSWORDS = ["p@ss", "p/w", "a#b", "a:b", "100%", "ö ü", "日本", " leading"]
NUMBERS = [f for f in fields(ResumeSettings) if f.metadata["rule"].low is not None]


def read(settings: dict[str, Any] | None = None, /, **environ: str) -> ResumeSettings:
    return ResumeSettings.from_settings(Settings(settings or {}), environ)


def refusal(settings: dict[str, Any] | None = None, /, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(settings, **environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_defaults_are_those_of_the_design() -> None:
    got = read()
    assert (got.enabled, got.table_prefix, got.run, got.join) == (True, "resume_", "auto", True)
    assert (got.lease, got.heartbeat, got.grace, got.max_wait) == (15.0, 3.0, 8.0, 60.0)
    assert (got.shards, got.pages_in_flight, got.max_attempts) == (8, 4, 10)
    assert (got.commit_pages, got.commit_items, got.commit_delay) == (20, 1000, 0.05)
    assert (got.page_retries, got.page_retry_delay) == (3, 1.0)
    assert (got.backoff_base, got.backoff_max) == (5.0, 1800.0)
    assert (got.on_failed_record, got.on_failed_page) == ("quarantine", "hold")
    assert (got.seen_max, got.progress, got.inner_scheduler, got.fault) == (
        100000,
        True,
        None,
        None,
    )


def test_scrapy_settings_rank_above_the_environment() -> None:
    got = read({"RESUME_SHARDS": 3}, RESUME_SHARDS="5", RESUME_GRACE="2.5")
    assert (got.shards, got.grace) == (3, 2.5)
    assert read({"RESUME_SHARDS": None}, RESUME_SHARDS="5").shards == 5


def test_the_environment_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESUME_RUN", "nightly")
    assert ResumeSettings.from_settings({}).run == "nightly"


def test_an_empty_text_unsets() -> None:
    url = "mysql://db/n"
    assert read({"RESUME_DATABASE_URL": ""}, RESUME_DATABASE_URL=url).database_url[:6] == "sqlite"
    assert read({"RESUME_FAULT": ""}).fault is None
    assert read(RESUME_SHARDS="").shards == 8
    assert "RESUME_SHARDS is ''" in refusal({"RESUME_SHARDS": ""})


@pytest.mark.parametrize("text", ["0", "false", "False", "no", "off", 0, False])
def test_false_in_every_spelling(text: Any) -> None:
    assert read({"RESUME_JOIN": text}).join is False


@pytest.mark.parametrize("text", ["1", "true", "True", "yes", "on", 1, True])
def test_true_in_every_spelling(text: Any) -> None:
    assert read({"RESUME_JOIN": text}).join is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESUME_JOIN", "maybe"),
        ("RESUME_JOIN", 2),
        ("RESUME_SHARDS", "many"),
        ("RESUME_SHARDS", 2.5),
        ("RESUME_SHARDS", True),
        ("RESUME_GRACE", "soon"),
        ("RESUME_GRACE", math.nan),
        ("RESUME_GRACE", "inf"),
        ("RESUME_GRACE", [1]),
        ("RESUME_ON_FAILED_PAGE", "drop"),
        ("RESUME_RUN", "Auto"),
        ("RESUME_RUN", "NEW"),
        ("RESUME_RUN", "two words"),
        ("RESUME_RUN", "x" * 101),
        ("RESUME_TABLE_PREFIX", "a-b"),
        ("RESUME_TABLE_PREFIX", ""),
        ("RESUME_TABLE_PREFIX", "x; DROP TABLE y"),
        ("RESUME_DATABASE_PORT", 0),
        ("RESUME_HOME", 7),
        ("RESUME_INNER_SCHEDULER", 7),
        ("RESUME_ENABLED", "perhaps"),
    ],
)
def test_a_refusal_names_setting_value_and_what_is_allowed(name: str, value: Any) -> None:
    message = refusal({name: value})
    assert message.startswith(f"{name} is {value!r}"[:60])
    assert "; allowed is " in message


@pytest.mark.parametrize("one", NUMBERS, ids=lambda f: f.name)
def test_bounds_are_inclusive(one: Any) -> None:
    rule, name = one.metadata["rule"], f"RESUME_{one.name.upper()}"
    step = 1 if rule.kind is int else 1e-3
    for value in (rule.low, rule.high):
        assert rule.read(name, str(value)) == value
    for value in (rule.low - step, rule.high + step):
        with pytest.raises(ConfigurationError, match=f"{name} is .* from .* to "):
            rule.read(name, value)


@given(st.integers(1, 2000), st.floats(0, 3600))
def test_numbers_may_be_text(shards: int, grace: float) -> None:
    got = read({"RESUME_SHARDS": str(shards)}, RESUME_GRACE=repr(grace))
    assert (got.shards, got.grace) == (shards, grace)


@given(st.floats(0.25, 3600), st.floats(0.05, 720))
def test_a_lease_lasts_five_heartbeats(lease: float, heartbeat: float) -> None:
    given = {"RESUME_LEASE": lease, "RESUME_HEARTBEAT": heartbeat}
    if lease >= 5 * heartbeat:
        assert read(given).lease == lease
    elif lease < 5 * heartbeat - 1e-6:
        message = refusal(given)
        assert "RESUME_LEASE" in message
        assert "RESUME_HEARTBEAT" in message


def test_decimal_leases_are_not_refused_by_rounding() -> None:
    for beat in (0.1, 0.3, 0.7, 1.1, 3.3):
        assert ResumeSettings(heartbeat=beat, lease=round(5 * beat, 1)).heartbeat == beat


def test_the_longest_backoff_is_not_below_the_first() -> None:
    assert "RESUME_BACKOFF_BASE" in refusal({"RESUME_BACKOFF_MAX": 4})
    assert read({"RESUME_BACKOFF_MAX": 5}).backoff_max == 5


@pytest.mark.parametrize("where", ["settings", "environment"])
def test_a_misspelt_setting_is_refused_with_the_nearest_name(where: str) -> None:
    wrong = {"RESUME_COMIT_PAGES": "5"}
    message = refusal(wrong) if where == "settings" else refusal(**wrong)
    assert "RESUME_COMIT_PAGES" in message
    assert "RESUME_COMMIT_PAGES?" in message


@pytest.mark.parametrize("name", ["RESUME_JOURNAL_DIR", "RESUME_MASTER_URL", "RESUME_REDIS_URI"])
def test_a_setting_of_nothing_we_have_is_refused(name: str) -> None:
    assert name in refusal({name: "secret://canary"})
    assert "canary" not in refusal({name: "secret://canary"})


def test_a_misspelt_setting_is_refused_even_when_it_is_none() -> None:
    assert "RESUME_SHARD " in refusal({"RESUME_SHARD": None})


@pytest.mark.parametrize("off", [False, "0", "false"])
def test_switched_off_nothing_else_is_looked_at(off: Any) -> None:
    wrong = {"RESUME_LEASE": "x", "RESUME_NONSENSE": 1, "RESUME_DATABASE_URL": "mysql://a@b@c"}
    assert read({"RESUME_ENABLED": off, **wrong}).enabled is False
    assert read({}, RESUME_ENABLED="0", **{k: str(v) for k, v in wrong.items()}).enabled is False


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("where", ["settings", "environment"])
def test_cfg_1_separate_settings_take_the_raw_password(password: str, where: str) -> None:
    parts = {
        "RESUME_DATABASE_HOST": "db",
        "RESUME_DATABASE_USER": "me",
        "RESUME_DATABASE_PASSWORD": password,
        "RESUME_DATABASE_NAME": "books",
    }
    got = read(parts) if where == "settings" else read(**parts)
    url = make_url(got.database_url)
    assert (url.username, url.password, url.host, url.database) == ("me", password, "db", "books")
    assert got.redacted_database_url == "mysql+pymysql://me:***@db/books"


def test_cfg_1_url_and_parts_together_are_refused() -> None:
    message = refusal(
        {"RESUME_DATABASE_URL": "mysql://u:canary@db/n"}, RESUME_DATABASE_PASSWORD="canary"
    )
    assert "RESUME_DATABASE_HOST" in message
    message = refusal(
        {"RESUME_DATABASE_URL": "mysql://u:canary@db/n"},
        RESUME_DATABASE_HOST="db",
        RESUME_DATABASE_NAME="n",
        RESUME_DATABASE_USER="u",
        RESUME_DATABASE_PASSWORD="canary2",
    )
    assert "RESUME_DATABASE_URL" in message
    assert "RESUME_DATABASE_HOST" in message
    assert "canary" not in message


def test_cfg_2_no_password_in_the_repr_or_in_a_refusal() -> None:
    by_url = read({"RESUME_DATABASE_URL": "mysql://u:canary@db/n"})
    parts = {"RESUME_DATABASE_HOST": "db", "RESUME_DATABASE_NAME": "n", "RESUME_DATABASE_USER": "u"}
    by_parts = read({**parts, "RESUME_DATABASE_PASSWORD": "canary"})
    assert "canary" not in repr(by_url) + repr(by_parts)
    assert "canary" not in refusal({"RESUME_DATABASE_URL": ["mysql://u:canary@db/n"]})
    assert "canary" not in refusal({"RESUME_DATABASE_PASSWORD": ["canary"]})


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_cfg_4_ipv6_host_settings(host: str) -> None:
    got = read(RESUME_DATABASE_HOST=host, RESUME_DATABASE_NAME="n", RESUME_DATABASE_PORT="3307")
    assert make_url(got.database_url).host == "::1"
    assert got.redacted_database_url == "mysql+pymysql://[::1]:3307/n"


def test_home_is_beside_the_closest_scrapy_cfg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "project" / "spiders"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert read().home == inner / ".scrapy" / "resume"
    (tmp_path / "project" / "scrapy.cfg").write_text("[settings]\n")
    got = read()
    assert got.home == tmp_path / "project" / ".scrapy" / "resume"
    assert got.database_url == f"sqlite:///{got.home}/resume.db"
    assert not got.home.exists()


def test_home_may_be_relative_or_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of/user")
    assert read(RESUME_HOME="state").home == tmp_path / "state"
    assert read({"RESUME_HOME": Path("~/state")}).home == Path("/home/of/user/state")


def test_a_changed_copy_is_checked_again() -> None:
    parts = {"RESUME_DATABASE_HOST": "db", "RESUME_DATABASE_NAME": "n"}
    assert replace(read(parts), shards=2).database_url == "mysql+pymysql://db/n"
    with pytest.raises(ConfigurationError, match="RESUME_SHARDS"):
        replace(read(), shards=0)


def test_the_reference_page_holds_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert reference_table() in page


def test_every_setting_says_what_it_means() -> None:
    for one in fields(ResumeSettings):
        rule = one.metadata["rule"]
        assert rule.meaning.endswith(".")
        assert rule.kind not in (int, float) or one.default is None or rule.unit
