"""One crawl's shared state: where scheduler, middleware, pipeline and extension meet.

A session belongs to one Crawler. Nothing is opened before it is needed: ``scrapy
shell`` never runs ``start()`` and so opens nothing. A mistake in the settings is kept
until the crawl begins and then ends it with one sentence instead of a traceback.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object
from twisted.internet.defer import CancelledError

from scrapy_resume import clock, faults, robots
from scrapy_resume.alerts import Alerts
from scrapy_resume.claimloop import ClaimLoop
from scrapy_resume.exceptions import (
    ConfigurationError,
    ResumeError,
    RunRefused,
    StoreUnavailable,
)
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.ledger import Ledger
from scrapy_resume.openpage import WaitlessPipeline
from scrapy_resume.outage import Outage
from scrapy_resume.refusallog import RefusalLog
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.engine import Database
from scrapy_resume.storing import Storing
from scrapy_resume.threads import StoreThread
from scrapy_resume.troubles import safe_text

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

NEEDED = ("ShardScheduler", "PageMiddleware", "CheckpointExtension")
_PLAIN_STARTS = frozenset({"scrapy.commands.parse", "scrapy.commands.check"})


class Session:
    """What the components of one crawl share. Get it with :meth:`of`."""

    _all: ClassVar[WeakKeyDictionary[Crawler, Session]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.ledger: Ledger | None = None
        self.loop: ClaimLoop | None = None
        self.components: set[str] = set()
        self.on_loop: list[Callable[[ClaimLoop], None]] = []
        self._database: Database | None = None
        self._commits: StoreThread | None = None
        self._refusal: ConfigurationError | None = None
        self.rows: ItemRows | None = None
        self.pipeline: WaitlessPipeline | None = None
        self.store_loose_rows: Callable[[], Awaitable[None]] | None = None
        self.verdict: str | None = None
        self._ended = self._told = self._failed = False
        self.failure: str | None = None  # what stopped the crawl, once the store failed
        self.refusals = RefusalLog()
        self.storing = Storing(self)
        try:
            self.settings = ResumeSettings.from_settings(crawler.settings)
            if self.settings.enabled:
                if self.settings.fault:
                    faults.arm(self.settings.fault)
                refuse_persistent_state(crawler, self.settings.inner_scheduler)
        except ConfigurationError as error:
            self._refusal, self.settings = error, ResumeSettings(enabled=False)
        self.outage = Outage(self.settings.store_patience)
        self.watch = SiteWatch(
            self.settings.health_limits, on=self.settings.health,
            longest_rest=self.settings.health_wait_max, inc_stat=self.inc_stat,
        )  # fmt: skip
        self.alerts = Alerts(crawler, self.watch, self.inc_stat, self.settings.stalled_after)
        self.on_loop += [self.alerts.opened, lambda loop: robots.obey(crawler)]

    @classmethod
    def of(cls, crawler: Crawler, component: str) -> Session:
        """The session of *crawler*, made at the first call; *component* says who asks."""
        session = cls._all.get(crawler)
        if session is None:
            session = cls._all[crawler] = cls(crawler)
        session.components.add(component)
        return session

    @property
    def mistake(self) -> ConfigurationError | None:
        """What in the settings or arguments cannot work."""
        return self._refusal or getattr(self.crawler.spider, "_mistake", None)

    @property
    def resumes(self) -> bool:
        """Whether this crawl claims shards: the suite is on and the spider has the mixin.

        Raises CloseSpider, after one ERROR line, if a setting cannot work.
        """
        spider: Any = self.crawler.spider
        if self.mistake is not None:
            self.refuse(self.mistake)
        if not self.settings.enabled or self._is_inspection:
            return False
        if not hasattr(spider, "parse_list_page"):
            return False
        return self.is_whole()

    def is_whole(self) -> bool:
        """Whether no component that checkpoints need is off; else says which, once."""
        missing = [name for name in NEEDED if name not in self.components]
        if missing and not self._told:
            self._told = True
            logger.warning(
                "%s is off: the spider runs from its first page and keeps no checkpoint",
                " and ".join(missing), extra={"action": "plain"},
            )  # fmt: skip
        return not missing

    @property
    def database(self) -> Database:
        """The database, described at the first use; nothing is sent yet."""
        if self._database is None:
            settings = self.settings
            if settings.database_url.startswith("sqlite"):
                settings.home.mkdir(parents=True, exist_ok=True)
            self._database = Database.connect(
                settings.database_url, prefix=settings.table_prefix, max_connections=2
            )
        return self._database

    @property
    def commits(self) -> StoreThread:
        """The thread that writes pages and items, made at the first use."""
        if self._commits is None:
            self._commits = StoreThread("commit")
            self.alerts.begin()
        return self._commits

    def inc_stat(self, name: str, count: float = 1) -> None:
        """Add *count* to the stat ``resume/<name>``."""
        if count:
            self.crawler.stats.inc_value(f"resume/{name}", count)  # type: ignore[arg-type]

    async def crawl(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What ``start()`` yields when the crawl resumes: list requests until nothing is left.

        A mistake or a refusal ends the crawl with one ERROR line (CloseSpider).
        """
        try:
            self.loop = loop = ClaimLoop(self)
            async for output in loop.outputs(start):
                yield output
        except RunRefused as error:
            self.set_verdict("nothing_to_do", str(error))
            self.refuse(error, "resume_nothing_to_do")
        except StoreUnavailable as error:
            if self.loop is None or self.loop.task is None:
                self.refuse(error)
            self._store_failed(error)
            raise CloseSpider("resume_store_failed") from error
        except ResumeError as error:
            self.refuse(error)
        except CloseSpider:
            raise
        except CancelledError:  # without asyncio: the engine stops, and would log an error
            return
        except Exception as error:  # of plan(), start() or warm_up(): Scrapy shows the traceback
            self.crawler.stats.set_value(
                "resume/error", safe_text(f"{type(error).__name__}: {error}")
            )
            raise

    async def plain(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What ``start()`` yields in a plain crawl, once the item tables were looked at."""
        if self.rows is not None and not self._is_inspection:
            try:
                await self.commits.run(self.storing.prepare)
            except ResumeError as error:
                self.refuse(error)
        async for output in start:
            yield output

    @property
    def alone(self) -> bool:
        """Whether the pipeline is the only component of ours in a spider that crawls."""
        crawls = self.crawler.crawling and not self._is_inspection  # ``scrapy shell`` does not
        return crawls and "PageMiddleware" not in self.components

    @property
    def _is_inspection(self) -> bool:
        """Whether ``scrapy parse`` or ``scrapy check`` put its own start() into the spider."""
        start: Any = getattr(type(self.crawler.spider), "start", None)
        return getattr(start, "__module__", None) in _PLAIN_STARTS

    def set_verdict(self, verdict: str, reason: str) -> None:
        """Make the verdict known to the finish reason, the stats and the log."""
        self.verdict = verdict
        self.crawler.stats.set_value("resume/verdict", verdict)
        self.crawler.stats.set_value("resume/verdict_reason", reason)

    def _store_failed(self, error: BaseException) -> None:
        """Say why nothing can be stored any more; once, whichever duty noticed it first."""
        if not self._failed:
            self._failed = True
            self.failure = safe_text(str(error))
            logger.error(
                "The crawl stops, since nothing can be stored: %s", error,
                extra={"action": "store_failed"},
            )  # fmt: skip
            self.crawler.stats.set_value("resume/error", str(error))

    def give_up(self, error: BaseException) -> None:
        """The store failed for good: close the spider, with one ERROR line."""
        self._store_failed(error)
        closing = self.crawler.engine.close_spider_async(reason="resume_store_failed")
        self._closing = deferred_from_coro(closing)

    def hurry(self) -> None:
        """The crawl closes: from now on nothing is repeated for longer than the grace."""
        if self._database is not None:
            deadline = clock.monotonic() + self.settings.grace
            self._database.deadline = min(deadline, self._database.deadline)

    async def end(self, reason: str) -> None:
        """Release what is held, say the verdict and close everything; once."""
        if self._ended:
            return
        self._ended = True
        if self.loop is not None:
            await self.loop.close()
        if self.loop is not None and self.loop.task is not None and self.verdict is not None:
            name, rejects = self.loop.task.name, self.verdict == "complete_with_rejects"
            logger.log(
                logging.INFO if self.verdict == "complete" else logging.WARNING,
                "Run %d of %r is %s: %s%s", self.loop.task.run_no, name, self.verdict,
                self.crawler.stats.get_value("resume/verdict_reason"),
                f"; `scrapy resume why {shlex.quote(name)}` lists them" if rejects else "",
                extra={"action": "verdict", "finish_reason": reason},
            )  # fmt: skip
        await self.alerts.close(self.settings.grace)
        await self.close()
        if self.loop is not None:
            self.loop.departure.over()

    def refuse(self, error: Exception, reason: str = "resume_refused") -> None:
        """Say in one line why the crawl cannot go on, and close it. Raises CloseSpider."""
        logger.error("%s", error, extra={"action": "refused"})
        self.crawler.stats.set_value("resume/error", str(error))
        raise CloseSpider(reason) from error

    async def close(self) -> None:
        """Close threads and connections, unless a call still hangs; harmless when repeated."""
        self.refusals.close()
        commits, self._commits = self._commits, None
        idle = commits is None or await commits.stop(self.settings.grace)
        if self.loop is not None:
            idle = idle and self.loop.idle
        if self._database is not None:
            if idle:
                self._database.close()
            else:
                self._database.cut()  # nobody waits for its answer, but the process for its thread


def refuse_persistent_state(crawler: Crawler, inner: str | type | None) -> None:
    """Refuse JOBDIR and persistent queues and filters. Raises ConfigurationError."""
    if load_object(inner or crawler.settings["SCHEDULER"]).__module__.startswith("scrapy_redis."):
        raise ConfigurationError(
            "SCHEDULER is scrapy-redis' own, which loses the requests a killed process held;"
            " leave SCHEDULER unset, the shards are handed out by the database"
        )
    if crawler.settings.get("JOBDIR"):
        raise ConfigurationError(
            "JOBDIR is set; it must not be, since after a kill its files hide exactly the"
            " requests that were lost, and scrapy_resume resumes without it"
        )
    dupefilter = load_object(crawler.settings["DUPEFILTER_CLASS"])
    if dupefilter.__module__.startswith("scrapy_redis."):
        raise ConfigurationError(
            f"DUPEFILTER_CLASS is {dupefilter.__name__} of scrapy-redis; it must not be, since a"
            " filter that outlives the crawl drops the requests a killed process lost"
        )
