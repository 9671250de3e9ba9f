"""Every way to name a Redis reaches it, with real servers behind the addresses."""

from __future__ import annotations

import datetime
import ipaddress
import logging
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scrapy.settings import Settings

from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.redisclient import TIMEOUT, RedisClient
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.shardqueue import ShardQueue
from tests.queue.links import Linked, in_loop
from tests.services import Redis, free_port

PASSWORDS = ["iA/127c=", "pass[word", "a#b", "x@y", "a b", "100%", ":?&+", "日本 ü", "]'\"\\"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis that also listens on a Unix socket; a test gives it a password."""
    home = tmp_path_factory.mktemp("locked")
    server = Redis(home, "--unixsocket", str(home / "c d.sock"))
    server.start()
    yield server
    server.discard()


@pytest.fixture
def password(locked: Redis, request: pytest.FixtureRequest) -> Iterator[str]:
    """The password of *locked*, and of its user "cr@wl/er"."""
    word: str = request.param
    admin = locked.client()
    admin.execute_command("ACL", "SETUSER", "cr@wl/er", "on", f">{word}", "~*", "&*", "+@all")
    admin.config_set("requirepass", word)
    yield word
    admin.config_set("requirepass", "")
    admin.execute_command("ACL", "DELUSER", "cr@wl/er")


def rehearse(scrapy_settings: dict[str, Any] | None = None, **settings: Any) -> RedisClient:
    """Do all that a crawl does with the Redis that these settings name."""
    client = RedisClient.of(ResumeSettings(**settings), Settings(scrapy_settings))
    assert client is not None
    try:
        ShardQueue(client, "addresses", 1, "a").rehearse()
    finally:
        client.close()
    return client


@pytest.mark.parametrize("password", PASSWORDS, indirect=True)
def test_cfg_3_a_password_with_special_characters(locked: Redis, password: str) -> None:
    host, port, word = locked.host, locked.port, quote(password, safe="")
    parts = {"redis_host": host, "redis_port": port, "redis_password": password}
    ways: list[dict[str, Any]] = [
        {"redis_url": f"redis://:{word}@{host}:{port}/0"},
        {"redis_url": f"redis://cr%40wl%2Fer:{word}@{host}:{port}/3"},
        {"redis_url": f"unix://:{word}@{quote(str(locked.home))}/c%20d.sock?db=1"},
        parts,
        {**parts, "redis_user": "cr@wl/er", "redis_db": 3},
        {"redis_host": str(locked.home / "c d.sock"), "redis_password": password},
        {"scrapy_settings": {"REDIS_URL": f"redis://:{word}@{host}:{port}"}},
        {"scrapy_settings": {"REDIS_HOST": host, "REDIS_PORT": port,
                             "REDIS_PARAMS": {"password": password, "db": 2}}},
        {"scrapy_settings": {"REDIS_HOST": host, "REDIS_PORT": str(port),
                             "REDIS_PARAMS": {"username": "cr@wl/er", "password": password}}},
    ]  # fmt: skip
    for way in ways:
        shown = rehearse(**way).shown
        assert password not in shown and word not in shown
        with pytest.raises(ConfigurationError, match="refuses us") as caught:
            rehearse(**_wrong(way, password))
        assert password not in str(caught.value) and "canary" not in str(caught.value)


def _wrong(way: Any, password: str) -> Any:
    """The same with another password."""
    if isinstance(way, dict):
        return {name: _wrong(value, password) for name, value in way.items()}
    if isinstance(way, str):
        return way.replace(quote(password, safe=""), "canary").replace(password, "canary")
    return way


@pytest.mark.parametrize("password", PASSWORDS[:5])
@pytest.mark.parametrize("setting", ["RESUME_REDIS_URL", "REDIS_URL"])
def test_cfg_3_a_password_that_is_not_escaped_is_explained(setting: str, password: str) -> None:
    url = f"redis://:{password}@redis.invalid:6379/0"
    ours = {"redis_url": url} if setting.startswith("RESUME") else {}
    theirs = {"REDIS_URL": url}
    with pytest.raises(ConfigurationError, match="percent-escaped") as caught:
        RedisClient.of(ResumeSettings(**ours), Settings(theirs))
    assert str(caught.value).startswith(setting + " has")
    assert password not in str(caught.value) and "RESUME_REDIS_PASSWORD" in str(caught.value)


@pytest.mark.parametrize("form", ["url", "host", "bracketed host", "scrapy-redis"])
def test_cfg_4_redis_on_ipv6(tmp_path: Path, form: str) -> None:
    server = Redis(tmp_path, host="::1")
    server.start()
    try:
        ways: dict[str, dict[str, Any]] = {
            "url": {"redis_url": server.url},
            "host": {"redis_host": "::1", "redis_port": server.port},
            "bracketed host": {"redis_host": "[::1]", "redis_port": server.port},
            "scrapy-redis": {"scrapy_settings": {"REDIS_HOST": "::1", "REDIS_PORT": server.port}},
        }
        assert f"[::1]:{server.port}/0" in rehearse(**ways[form]).shown
    finally:
        server.discard()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of the loopback that vouches for itself, and its key."""
    home = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (home / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    (home / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return home / "cert.pem", home / "key.pem"


def test_cfg_3_rediss(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    tls = free_port()
    server = Redis(
        tmp_path, "--tls-port", str(tls), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
        "--tls-auth-clients", "no", "--requirepass", "x@y a/b",
    )  # fmt: skip
    server.start()
    url = f"rediss://:x%40y%20a%2Fb@127.0.0.1:{tls}/0"
    parts = {"redis_host": "127.0.0.1", "redis_port": tls, "redis_password": "x@y a/b"}
    try:
        assert rehearse(redis_url=f"{url}?ssl_ca_certs={quote(str(cert))}").shown.startswith("redi")
        given = {"REDIS_URL": url, "REDIS_PARAMS": {"ssl_ca_certs": str(cert)}}
        rehearse(scrapy_settings=given)
        with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
            rehearse(redis_url=url)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        rehearse(redis_url=url)
        rehearse(**parts, redis_tls=True)
        with pytest.raises(QueueUnavailable):  # no TLS where TLS is spoken
            rehearse(**parts)
    finally:
        server.discard()


def test_scrapy_redis_settings_are_followed_but_not_its_time_limits(locked: Redis) -> None:
    client = rehearse(
        {
            "REDIS_URL": f"redis://{locked.host}:{locked.port}/1?socket_timeout=99&client_name=us",
            "REDIS_ENCODING": "latin-1",
            "REDIS_DECODE_RESPONSES": True,
            "REDIS_PARAMS": {"redis_cls": "redis.client.StrictRedis", "socket_timeout": 30,
                             "retry_on_timeout": True, "socket_connect_timeout": 30},
        }
    )  # fmt: skip
    options = client.redis.connection_pool.make_connection()
    assert (options.socket_timeout, options.socket_connect_timeout) == (TIMEOUT, TIMEOUT)
    assert (options.db, options.client_name) == (1, "us")
    assert options.retry._retries == 0


def test_ours_go_before_those_of_scrapy_redis(locked: Redis) -> None:
    client = rehearse({"REDIS_URL": "redis://redis.invalid:1/0"}, redis_url=locked.url)
    assert client.shown == locked.url


@pytest.mark.parametrize(
    ("settings", "scrapy_settings", "match"),
    [
        ({"redis_url": "redis://h?nonsense=1"}, {}, "nonsense"),
        ({"redis_url": "redis://h?ssl_min_version=canary"}, {}, "cannot use|does not know"),
        ({}, {"REDIS_HOST": "h", "REDIS_PARAMS": {"nonsense": "canary"}}, "nonsense"),
        ({"redis_password": "canary"}, {}, "RESUME_REDIS_HOST is needed"),
    ],
)
def test_what_redis_py_cannot_use_is_refused_at_once(
    settings: dict[str, Any], scrapy_settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match) as caught:
        RedisClient.of(ResumeSettings(**settings), Settings(scrapy_settings))
    assert "canary" not in str(caught.value)


def opened(url: str, **settings: Any) -> Linked:
    """Open a link and close it."""

    async def work() -> Linked:
        one = Linked(url, **settings)
        try:
            await one.link.open("addresses", 1)
        finally:
            await one.link.close(5)
        return one

    return in_loop(work)


def test_a_redis_that_refuses_us_is_a_mistake_in_the_settings(locked: Redis) -> None:
    with pytest.raises(ConfigurationError, match=r"/99 refuses us.*DB index"):
        opened(f"redis://{locked.host}:{locked.port}/99")
    admin = locked.client()
    for number, lacking in enumerate(
        ("-zadd", "-eval -evalsha", "-publish", "-subscribe", "-xadd", "-time")
    ):
        admin.execute_command(
            "ACL", "SETUSER", f"u{number}", "on", ">canarypw", "~*", "&*", "+@all",
            *lacking.split(),
        )  # fmt: skip
        with pytest.raises(ConfigurationError, match="refuses us") as caught:
            opened(f"redis://u{number}:canarypw@{locked.host}:{locked.port}/0")
        assert "canary" not in str(caught.value)
    admin.execute_command("ACL", "SETUSER", "narrow", "on", ">canarypw", "~else:*", "&*", "+@all")
    with pytest.raises(ConfigurationError, match="refuses us"):
        opened(f"redis://narrow:canarypw@{locked.host}:{locked.port}/0")


def test_the_documented_permissions_suffice(locked: Redis) -> None:
    page = Path(__file__).parents[2] / "docs/reference/redis.md"
    (line,) = [text for text in page.read_text().splitlines() if text.startswith("ACL SETUSER ")]
    words = line.split()
    assert words[2:4] == ["crawler", "on"]
    locked.client().execute_command(*[word.replace("PASSWORD", "pw") for word in words])
    opened(f"redis://crawler:pw@{locked.host}:{locked.port}/0")


@pytest.mark.parametrize("trouble", ["down", "refused", "full"])
def test_cfg_2_no_secret_in_any_log(
    locked: Redis, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    admin = locked.client()
    admin.execute_command("ACL", "SETUSER", "c", "on", ">CANARY@/x", "~*", "&*", "+@all")
    secret = "CANARYwrong" if trouble == "refused" else "CANARY%40%2Fx"
    port = free_port() if trouble == "down" else locked.port
    if trouble == "full":
        admin.config_set("maxmemory", 1)
    with suppress(ConfigurationError) if trouble == "refused" else nullcontext():
        opened(f"redis://c:{secret}@{locked.host}:{port}/0")
    admin.config_set("maxmemory", 0)
    ours = [record for record in caplog.records if record.name.startswith("scrapy_resume")]
    assert "CANARY" not in caplog.text
    assert [record.levelname for record in ours] == ([] if trouble == "refused" else ["WARNING"])
    if trouble != "refused":
        assert f"redis://c:***@{locked.host}:{port}/0" in ours[0].getMessage()
