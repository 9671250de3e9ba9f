"""Redis addresses: what is accepted, what is refused, and what a refusal keeps to itself."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import parse_url

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.redisaddress import RedisAddress
from scrapy_resume.settings import ResumeSettings

PASSWORDS = [
    "iA/127c=",
    "pass[word",
    "a#b",
    "x@y",
    "a b",
    "a:b",
    "100%",
    "ö ü",
    "a?b",
    "[x]",
    "p+q",
]
UNESCAPED = ["iA/127c=@", "iA/127c=", "pass[word", "a#b", "x@y", "a b", "100%", "ö", "a?b", "]"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("password", PASSWORDS)
def test_cfg_3_an_escaped_url_keeps_the_password(password: str) -> None:
    address = RedisAddress.parse(f"rediss://me:{quote(password, safe='')}@r:6380/4")
    assert (address.user, address.password) == ("me", password)
    assert (address.scheme, address.host, address.port, address.db) == ("rediss", "r", 6380, 4)
    assert password not in repr(address) and password not in address.redacted_url


@pytest.mark.parametrize("password", UNESCAPED)
@pytest.mark.parametrize(
    "form", ["redis://:{}@r:6379/0", "rediss://me:{}@[::1]/0", "unix://:{}@/s"]
)
def test_cfg_3_an_unescaped_url_is_refused_and_told_how_to_escape(form: str, password: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisAddress.parse(form.format(password))
    message = str(caught.value)
    assert message.startswith("RESUME_REDIS_URL has") and "%5B" in message
    assert password not in message or len(password) == 1


@given(password=TEXT, user=st.none() | TEXT, db=st.integers(0, 99999))
def test_redis_py_reads_the_normal_form_as_we_mean_it(
    password: str, user: str | None, db: int
) -> None:
    for host in ("r", "::1", "fe80::1%eth0", "/run/a b%.sock"):
        address = RedisAddress.of_parts(host=host, db=db, user=user, password=password)
        read = parse_url(address.url)
        assert (read.get("username"), read["password"]) == (user, password)
        assert read.get("host", read.get("path")) == host
        assert read["db"] == db
        assert RedisAddress.parse(address.url) == address


@pytest.mark.parametrize(
    "url",
    [
        "canary",
        "http://:canary@r",
        "redis://canary@r",
        "redis://:canary@r/canary",
        "redis://:canary@r/1/2",
        "redis://:canary@r:99999/0",
        "redis://:canary@::1/0",
        "redis://:canary@/0",
        "redis://:canary@r?db=canary",
        "redis://r?password=canary",
        "unix://canary/run/redis.sock",
        "unix://:canary@",
        "redis://:can%ffary@r",
    ],
)
def test_a_refusal_repeats_nothing(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisAddress.parse(url)
    assert "canary" not in str(caught.value) and "RESUME_REDIS_URL" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cfg_4_brackets_stand_in_urls_only() -> None:
    for host in ("::1", "[::1]"):
        address = RedisAddress.of_parts(host=host, port=7, password="p")
        assert (address.host, address.url) == ("::1", "redis://:p@[::1]:7/0")
        assert address.redacted_url == "redis://:***@[::1]:7/0"
    assert RedisAddress.parse("redis://[::1]").host == "::1"


def test_what_a_url_may_leave_out() -> None:
    address = RedisAddress.parse(" redis://r ")
    assert (address.port, address.db, address.user, address.password) == (None, 0, None, None)
    assert RedisAddress.parse("redis://r/").db == 0
    assert RedisAddress.parse("redis://r?db=5&client_name=x").url == "redis://r/5?client_name=x"
    assert RedisAddress.parse("redis://me:@r").user == "me"  # a user without a password
    assert "canary" not in RedisAddress.parse("rediss://r?ssl_password=canary").redacted_url


def settings(**values: Any) -> ResumeSettings:
    return ResumeSettings(**values)


def test_the_settings_take_either_form_and_not_both() -> None:
    parts = settings(redis_host="r", redis_port=7, redis_password="x@y", redis_tls=True)
    assert parts.redis_url == "rediss://:x%40y@r:7/0"
    assert dataclasses.replace(parts, lease=30).redis_url == parts.redis_url
    assert "x%40y" not in repr(parts) and "x@y" not in repr(parts)
    with pytest.raises(ConfigurationError, match="RESUME_REDIS_URL and RESUME_REDIS_HOST"):
        settings(redis_url="redis://r", redis_host="r2")
    with pytest.raises(ConfigurationError, match="RESUME_REDIS_TLS"):
        settings(redis_url="redis://r", redis_tls=True)
    assert settings(redis_url="rediss://r", redis_tls=True).redis_url == "rediss://r/0"


def test_off_means_no_redis() -> None:
    off = settings(redis_url="off", redis_host="r")
    assert (off.redis_url, off.redis_address) == ("off", None)
    assert settings().redis_address is None
    assert ResumeSettings.from_settings({}, {"RESUME_REDIS_URL": ""}).redis_url is None
