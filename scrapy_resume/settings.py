"""Every setting, declared once: type, default, unit, bounds and meaning.

A value is taken from Scrapy's settings, else from the environment variable of the
same name, else from the default here. Names that begin with ``RESUME_`` and are not
declared here are refused, since a misspelt setting is a silently missing one.
``python -m scrapy_resume.settings`` prints the reference table.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from scrapy.utils.conf import closest_scrapy_cfg

from scrapy_resume.address import DatabaseAddress
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.health import STATUSES, HealthLimits
from scrapy_resume.intake import Intake
from scrapy_resume.redisaddress import RedisAddress
from scrapy_resume.rule import Rule, Switch, number, seconds, setting

PREFIX = "RESUME_"


class SettingsSource(Protocol):
    """What settings are read from: Scrapy's settings or any mapping of names to values."""

    def __iter__(self) -> Iterator[Any]: ...

    def get(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class ResumeSettings:
    """The settings of one crawl, valid and with every default filled in.

    Raises ConfigurationError: one sentence with the setting, its value and what is
    allowed. With *enabled* false nothing else is looked at.
    """

    enabled: bool = setting(True, "False turns the suite off: a plain Scrapy spider runs.")
    home: Path = setting(
        None,
        "Directory of the local state: worker slots and the SQLite file.",
        kind=Path,
        default_text="`.scrapy/resume` beside the closest `scrapy.cfg`, else in the current"
        " directory",
    )
    database_url: str = setting(
        None,
        "Address of the database, percent-escaped.",
        kind=str,
        secret=True,
        default_text="the SQLite file `resume.db` in `RESUME_HOME`",
        allowed="a mysql+pymysql:// (or mysql://, mariadb://) or sqlite:/// URL",
    )
    database_host: str | None = setting(
        None,
        "Host of the database, instead of a URL; IPv6 with or without brackets.",
        kind=str,
        allowed="a host name or address",
    )
    database_port: int | None = setting(
        None, "Port of the database.", kind=int, low=1, high=65535, default_text="3306"
    )
    database_user: str | None = setting(None, "User name, as raw text.", kind=str)
    database_password: str | None = setting(
        None, "Password, as raw text; best given by the environment.", kind=str, secret=True
    )
    database_name: str | None = setting(None, "Name of the database.", kind=str)
    redis_url: str | None = setting(
        None,
        "Address of Redis, percent-escaped; `off`: no Redis, even if scrapy-redis' settings name"
        " one.",
        kind=str,
        secret=True,
        default_text="scrapy-redis' settings, else no Redis",
        allowed="a redis://, rediss:// or unix:// URL, or off",
    )
    redis_host: str | None = setting(
        None,
        "Host of Redis, instead of a URL; IPv6 with or without brackets, or a Unix socket's path.",
        kind=str,
        allowed="a host name or address, or an absolute path",
    )
    redis_port: int | None = setting(
        None, "Port of Redis.", kind=int, low=1, high=65535, default_text="6379"
    )
    redis_user: str | None = setting(None, "User name (ACL), as raw text.", kind=str)
    redis_password: str | None = setting(
        None, "Password, as raw text; best given by the environment.", kind=str, secret=True
    )
    redis_db: int | None = setting(
        None, "Number of the database in Redis.", kind=int, low=0, high=99999, default_text="0"
    )
    redis_tls: bool = setting(
        False, "Speak TLS with `RESUME_REDIS_HOST`; a URL says so by rediss://."
    )
    on_redis_eviction: str = setting(
        "warn",
        "What a Redis does to the crawl that may throw keys away when it is full.",
        choices=("warn", "refuse"),
    )
    shared_fingerprints: bool = setting(
        False,
        "Tell the run's other processes by Redis which requests are committed, and drop those"
        " that they committed as duplicates.",
    )
    table_prefix: str = setting(
        "resume_",
        "What the names of the product's tables begin with.",
        pattern=r"[A-Za-z_][A-Za-z0-9_]{0,23}",
        allowed="up to 24 ASCII letters, digits and underscores, no digit first",
    )
    lease: float = seconds(
        15.0, "Time after which others may take a silent worker's shards.", 0.25, 3600
    )
    heartbeat: float = seconds(
        3.0, "Time between two renewals; a lease must last at least five.", 0.05, 720
    )
    shards: int = number(
        8, "Shards read at once; one that only waits for its last pages does not count.",
        "shards", 1, 2000,
    )  # fmt: skip
    pages_in_flight: int = number(4, "Pages read at once in each shard.", "pages", 1, 1000)
    commit_pages: int = number(20, "A commit goes when it holds this many.", "pages", 1, 10000)
    commit_items: int = number(
        1000, "A commit, or a batch of items of no page, goes when it holds this many.",
        "items", 1, 100000,
    )  # fmt: skip
    commit_delay: float = seconds(
        0.05, "A commit goes when its first page has waited this long.", 0, 3600
    )
    batch_delay: float = seconds(
        1.0, "A batch of items of no page goes when its first one has waited this long.", 0, 3600
    )
    page_retries: int = number(
        3, "Times a failed page is tried again in place, from 0.", "retries", 0, 1000
    )
    page_retry_delay: float = seconds(
        1.0, "Delay before the first retry; doubled each time, with full jitter.", 0, 3600
    )
    max_wait: float = seconds(
        60.0,
        "How far ahead a shard may fall due, or a blocked site be tried, for an idle process to"
        " wait for it.",
        0,
        604800,
    )
    max_attempts: int = number(
        10, "Attempts without progress after which a shard has failed.", "attempts", 1, 10000
    )
    backoff_base: float = seconds(
        5.0, "Delay before a shard's second attempt; doubled each time, full jitter.", 0, 604800
    )
    backoff_max: float = seconds(1800.0, "The longest such delay.", 0, 604800)
    item_tables: Mapping[str, Any] | None = setting(
        None,
        "Where items go if the spider has no `item_table`: by item class.",
        kind=dict,
        default_text="the product's own table",
        allowed='a dict, or one as JSON text, from the dotted path of an item class, or `"*"`, to'
        " an ItemTable, a table's name or a dict of an ItemTable's fields",
    )
    item_checks: Mapping[str, Any] | None = setting(
        None,
        "What is done about an item table that is not as it should be: by the name of the check.",
        kind=dict,
        default_text="as docs/how-to/item-tables.md lists them",
        allowed="a dict, or text such as `second_unique_index=warn, collation=refuse`, from a"
        " check to refuse, warn or ignore",
    )
    normalize_keys: bool = setting(
        False, "Keys of items are brought into Unicode's composed form (NFC)."
    )
    leave_out: str = setting(
        "unset",
        "Which fields of a dataclass, attrs or pydantic item count as missing: None in a pydantic"
        " field that nobody set, all that hold their default, or none.",
        choices=("unset", "defaults", "nothing"),
    )
    on_failed_record: str = setting(
        "quarantine",
        "What a failed item or detail request does: go to quarantine, or hold its page.",
        choices=("quarantine", "hold"),
    )
    on_failed_page: str = setting(
        "hold",
        "What a failed list page does: stay below the watermark and be tried again, or go to"
        " quarantine.",
        choices=("hold", "quarantine"),
    )
    run: str = setting(
        "auto",
        "The run to work on: the unfinished one or else a new one, always a new one, only an"
        " unfinished one, or the one of that name.",
        pattern=r"auto|new|resume|(?!(?i:auto|new|resume)\Z)\w[\w.:+@/-]{0,99}",
        allowed="auto, new, resume, or a name of up to 100 letters, digits and any of _.:+@/-",
    )
    join: bool = setting(True, "May join a run that other processes work on.")
    lanes: str = setting(
        "",
        "Lanes this process takes shards of: those never begun, those begun before; both if empty.",
        allowed="fresh, resumed, or both with a comma",
        default_text="all",
    )
    priorities: str = setting(
        "",
        "Priorities this process takes shards of, 0 being the most urgent; all if empty.",
        allowed="numbers and ranges with commas, such as 0-2,5",
        default_text="all",
    )
    sites: tuple[str, ...] = setting(
        (),
        "Sites this process takes shards of; all if empty.",
        kind=tuple,
        default_text="all",
        allowed="names with commas, or a list of them",
    )
    site_shards: int = number(
        0,
        "Shards of one site that all processes of all runs together read at once; 0: no limit.",
        "shards",
        0,
        1000000,
    )
    health: bool = setting(
        True, "Watch the health of the sites; False takes every answer and empty page as it comes."
    )
    health_window: float = seconds(
        60.0, "How long an answer of a site counts for its health.", 1, 86400
    )
    health_least: int = number(
        10, "Answers before a share of bad ones blocks a site; so many bad ones in a row do too.",
        "answers", 2, 10000,
    )  # fmt: skip
    health_share: float = setting(
        0.5, "Share of bad answers that blocks a site.", unit="share", low=0.01, high=1
    )
    health_empty_pages: int = number(
        5, "Pages without items that are kept back until it is known whether they are true;"
        " 0: list pages are not watched.", "pages", 0, 1000,
    )  # fmt: skip
    health_statuses: frozenset[int] = setting(
        STATUSES,
        "HTTP statuses that are bad answers.",
        kind=frozenset,
        default_text="`" + ",".join(map(str, sorted(STATUSES))) + "`",
        allowed="numbers from 100 to 999 with commas, or a list of them",
    )
    health_wait: float = seconds(
        30.0, "How long a blocked site is left alone at first; doubled each time.", 0, 604800
    )
    health_wait_max: float = seconds(
        1800.0, "The longest such wait, and the longest `Retry-After` that is honoured.", 0, 604800
    )
    grace: float = seconds(
        8.0, "Time a polite stop gives the pages in flight before it abandons them.", 0, 3600
    )
    journal: bool | str = setting(
        "auto",
        "Keep what is read in the worker slot's `journal.db` until the database has it, so that the"
        " crawl goes on while the database is away; `auto`: unless the database is SQLite.",
        kind=Switch,
    )
    journal_max_pages: int = number(
        2000, "Pages that wait in the journal before nothing more is asked for; at half of it the"
        " crawl goes on.", "pages", 2, 10000000,
    )  # fmt: skip
    journal_max_bytes: int = number(
        256_000_000, "The same by the size of what waits.", "bytes", 10_000, 1_000_000_000_000
    )
    store_patience: float = seconds(
        600.0,
        "How long the start, pages and batches wait for an unreachable database before the crawl"
        " stops.",
        0,
        604800,
    )
    loop_patience: float = seconds(
        300.0,
        "How long code may keep the event loop to itself before the leases are left to end.",
        0.25,
        604800,
    )
    stalled_after: float = seconds(
        900.0, "When a run of which no page is stored counts as stalled; 0: never.", 0, 604800
    )
    seen_max: int = number(
        100000,
        "Fingerprints of committed pages' requests remembered against duplicates.",
        "fingerprints",
        0,
        100000000,
    )
    progress: bool = setting(True, "Show a progress line when the output is a terminal.")
    inner_scheduler: str | type | None = setting(
        None,
        "The scheduler that ours wraps; set by the add-on.",
        kind=object,
        default_text="Scrapy's own",
        allowed="a class or its import path",
    )
    fault: str | None = setting(
        None,
        "Failures to inject, comma separated; for tests and drills only.",
        kind=str,
        allowed="POINT:N:ACTION",
    )

    @classmethod
    def from_settings(
        cls, settings: SettingsSource, environ: Mapping[str, str] = os.environ
    ) -> ResumeSettings:
        """Read them from *settings* above *environ*. None there means "not set".

        An empty text unsets an optional setting in *settings*, and any in *environ*.
        """
        given: dict[str, Any] = {
            name: text for name, text in environ.items() if name.startswith(PREFIX) and text
        }
        names = [name for name in settings if str(name).startswith(PREFIX)]
        given |= {name: value for name in names if (value := settings.get(name)) is not None}
        if not _read(_FIELDS["RESUME_ENABLED"], given.get("RESUME_ENABLED", True)):
            return cls(enabled=False)
        _refuse_unknown([*given, *names])
        return cls(**{_FIELDS[name].name: value for name, value in given.items()})

    @property
    def redacted_database_url(self) -> str:
        """The database's address without its password, for logs and people."""
        return DatabaseAddress.parse(self.database_url).redacted_url

    def __post_init__(self) -> None:
        object.__setattr__(self, "enabled", _read(_FIELDS["RESUME_ENABLED"], self.enabled))
        if not self.enabled:
            return
        for one in _FIELDS.values():
            object.__setattr__(self, one.name, _read(one, getattr(self, one.name)))
        self._check_together()
        home = (self.home or _default_home()).expanduser().absolute()
        object.__setattr__(self, "home", home)
        object.__setattr__(self, "database_url", self._address().url)
        redis = self.redis_address
        object.__setattr__(self, "redis_url", self.redis_url if redis is None else redis.url)

    def _check_together(self) -> None:
        self._check_intake()
        self._check_health()
        if self.lease < 5 * self.heartbeat - 1e-9:
            raise ConfigurationError(
                f"RESUME_LEASE is {self.lease:g}; it must be at least five times"
                f" RESUME_HEARTBEAT, which is {self.heartbeat:g}"
            )
        if self.backoff_max < self.backoff_base:
            raise ConfigurationError(
                f"RESUME_BACKOFF_MAX is {self.backoff_max:g}; it must not be below"
                f" RESUME_BACKOFF_BASE, which is {self.backoff_base:g}"
            )

    @property
    def journals(self) -> bool:
        """Whether there is a journal."""
        return self.journal is True or (
            self.journal == "auto" and not self.database_url.startswith("sqlite")
        )

    @property
    def health_limits(self) -> HealthLimits:
        """From where on a site is ill."""
        return HealthLimits(
            self.health_window, self.health_least, self.health_share, self.health_empty_pages,
            self.health_statuses,
        )  # fmt: skip

    def _check_health(self) -> None:
        if not all(100 <= status <= 999 for status in self.health_statuses):
            raise ConfigurationError(
                f"RESUME_HEALTH_STATUSES is {sorted(self.health_statuses)}; allowed are"
                f" {_FIELDS['RESUME_HEALTH_STATUSES'].metadata['rule'].allowed_text}"
            )
        if self.health_wait_max < self.health_wait:
            raise ConfigurationError(
                f"RESUME_HEALTH_WAIT_MAX is {self.health_wait_max:g}; it must not be below"
                f" RESUME_HEALTH_WAIT, which is {self.health_wait:g}"
            )

    @property
    def intake(self) -> Intake:
        """What this process takes."""
        return Intake.parse(self.lanes, self.priorities, self.sites)

    def _check_intake(self) -> None:
        for name in ("lanes", "priorities"):
            try:
                Intake.parse(**{name: getattr(self, name)})
            except ValueError as error:
                raise ConfigurationError(
                    f"{PREFIX}{name.upper()} is {getattr(self, name)!r}; allowed are"
                    f" {_FIELDS[PREFIX + name.upper()].metadata['rule'].allowed_text}: {error}"
                ) from None

    @property
    def redis_address(self) -> RedisAddress | None:
        """The address of Redis, if one of our own settings gives it."""
        parts = {part: getattr(self, f"redis_{part}") for part in _REDIS_PARTS}
        return RedisAddress.given(self.redis_url, parts, tls=self.redis_tls)

    def _address(self) -> DatabaseAddress:
        parts = {part: getattr(self, f"database_{part}") for part in _PARTS}
        if all(value is None for value in parts.values()):
            if self.database_url:
                return DatabaseAddress.parse(self.database_url)
            return DatabaseAddress.of_file(self.home / "resume.db")
        address = DatabaseAddress.of_parts(**parts)
        # Equal only when this object was made from another one, as dataclasses.replace does.
        if self.database_url not in (None, address.url):
            given = ", ".join(f"RESUME_DATABASE_{p.upper()}" for p, v in parts.items() if v)
            raise ConfigurationError(
                f"RESUME_DATABASE_URL and {given} are both set (environment variables count);"
                " give the address either as a URL or in parts"
            )
        return address


_PARTS = ("host", "port", "user", "password", "name")
_REDIS_PARTS = ("host", "port", "user", "password", "db")
_FIELDS: dict[str, Field[Any]] = {PREFIX + f.name.upper(): f for f in fields(ResumeSettings)}


def switched_on(settings: SettingsSource, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``RESUME_ENABLED`` is true, whatever the other settings are."""
    value = settings.get("RESUME_ENABLED")
    value = environ.get("RESUME_ENABLED") or None if value is None else value
    return bool(_read(_FIELDS["RESUME_ENABLED"], value))


def reference_table() -> str:
    """Every setting as a Markdown table, for the reference page."""
    lines = ["| Setting | Default | Unit | Allowed | Meaning |", "|---|---|---|---|---|"]
    for name, one in _FIELDS.items():
        rule: Rule = one.metadata["rule"]
        default = "not set" if one.default is None else f"`{one.default}`"
        cells = (f"`{name}`", rule.default_text or default, rule.unit, rule.allowed_text)
        lines.append("| " + " | ".join((*cells, rule.meaning)) + " |")
    return "\n".join(lines)


def _default_home() -> Path:
    config = closest_scrapy_cfg()
    return (Path(config).parent if config else Path.cwd()) / ".scrapy" / "resume"


def _refuse_unknown(names: list[str]) -> None:
    for name in names:
        if name not in _FIELDS:
            close = difflib.get_close_matches(name, _FIELDS, 1)
            hint = f"did you mean {close[0]}?" if close else "see docs/reference/settings.md"
            raise ConfigurationError(f"{name} is not a setting of scrapy_resume; {hint}")


def _read(one: Field[Any], value: Any) -> Any:
    if value is None or (value == "" and one.default is None):
        return one.default
    rule: Rule = one.metadata["rule"]
    return rule.read(PREFIX + one.name.upper(), value)


if __name__ == "__main__":
    print(reference_table())
