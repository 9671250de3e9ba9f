"""ResumeSpiderMixin: what a spider author inherits.

``class MySpider(ResumeSpiderMixin, scrapy.Spider)``. Three ways to page, simplest
first: a *chain* (``yield self.next_page(response.follow(href))``), *numbered* pages
(``page_url``, ``first_page``, ``last_page``, ``shard_pages``), and *free* paging
(override :meth:`plan` and :meth:`page_request`).

When the suite is off, and in ``scrapy shell``, ``parse`` and ``check``, the same
spider runs as a plain one: :meth:`next_page` hands the request through, and
numbered pages are walked one after the other from the first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request, Spider

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.ledger import EndOfShard, NextPage, current_page
from scrapy_resume.page import Page, Shard
from scrapy_resume.plain import PlainPages

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

_INTEGERS = ("first_page", "last_page", "shard_pages", "stop_on_empty")


class ResumeSpiderMixin(Spider):
    """Makes a spider's crawl resumable. Put it before the spider class."""

    page_url: str | None = None
    """Address of a numbered list page, with ``{page}`` in it."""
    first_page: int = 1
    """Number of the first list page."""
    last_page: int | None = None
    """Number of the last list page; None: until an end rule holds."""
    shard_pages: int = 10
    """How many pages a shard has (when ``last_page`` is known)."""
    paging: str | None = None
    """``"numbered"`` or ``"chain"``; None: numbered if ``page_url`` or ``last_page`` is set."""
    site: str | None = None
    """The site its shards are grouped under; None: the first allowed domain, else the spider's
    name."""
    identity_args: Iterable[str] | None = None
    """Names of the ``-a`` arguments that select the list; None: all that do not begin with
    ``_`` and do not look like a secret (token, password, api_key, ...)."""
    item_key: str | Iterable[str] | None = None
    """Names of the fields that make an item's key; None: a hash of the whole item."""
    item_table: Any = None
    """Where items go: an :class:`~scrapy_resume.ItemTable`, a SQLAlchemy Table or a class mapped
    to one, or a dict from item class (or its dotted path) to any of these; None: what
    ``RESUME_ITEM_TABLES`` says, else the product's own item table."""
    stop_on_empty: int = 2
    """How many empty pages in a row end an open-ended shard."""
    end_statuses: Iterable[int] = (404,)
    """HTTP statuses that mean "past the end" of an open-ended numbered shard."""
    resume_args: ClassVar[dict[str, Any]] = {}

    _resume_active: bool = False
    _mistake: ConfigurationError | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Build the spider and convert integer attributes given by ``-a``.

        One that is no integer ends the crawl before its first request, with one ERROR line.
        """
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.resume_args = dict(kwargs)  # type: ignore[misc]
        for name in _INTEGERS:
            value = kwargs.get(name, getattr(spider, name))
            if value is not None or name != "last_page":
                spider._convert(name, value)
        return spider

    def _convert(self, name: str, value: Any) -> None:
        try:
            setattr(self, name, _integer(name, value))
        except ConfigurationError as error:
            self._mistake = error

    # What a spider overrides

    def plan(self) -> Any:
        """The run's shards: a list, a generator or an asynchronous generator of Shards.

        May fetch (``await self.fetch(request)``). Runs once per run and fixes its bound.
        The default makes shards of ``shard_pages`` numbered pages each, or none if the
        spider is not numbered (its start requests are the plan then).
        """
        if not self.is_numbered:
            return ()
        return numbered_shards(self.first_page, self.last_page, self.shard_pages)

    def page_request(self, page: Page) -> Request:
        """The request for a list page. May be async. The default formats ``page_url``."""
        if self.page_url is None:
            raise ConfigurationError(
                f"spider {self.name!r} plans shards but has neither page_url nor page_request()"
            )
        return Request(self.page_url.format(page=page.number))

    def parse_page(self, response: Response, page: Page) -> Any:
        """Read a list page. The default is the spider's ``parse``, with the ``cb_kwargs``.

        Yields items, requests, ``self.next_page(...)`` or ``self.end_of_shard(reason)``.
        An exception fails the page: it is retried in place, then held.
        """
        return self._parse(response, **response.cb_kwargs)

    def check_page(self, response: Response, page: Page) -> Any:
        """Called with each list response before it is parsed; may be async. No-op.

        Raise :class:`~scrapy_resume.NotAPage` to have the page asked for again,
        :class:`~scrapy_resume.SiteBlocked` to say that the site refuses us. Return True to
        vouch for a page that may rightly hold nothing: it is then stored as it is.
        """

    def probe(self, site: str) -> Any:
        """A request for a page that holds items as long as *site* is well. May be async.

        Asked for when the site was blocked and may be tried again, and to learn whether
        pages without items are true. It is read by its callback, or as a list page, which has
        to yield something; nothing of it is stored. None, as by default: a list page will do.
        """
        return None

    async def warm_up(self) -> None:
        """Awaited before the first page of a process: log in, collect cookies. No-op."""

    def stated_total(self, response: Response) -> int | None:
        """The number of rows the site says the shard's list has, if it says so.

        A shard that read fewer rows is not complete. The default knows nothing.
        """
        return None

    def make_item_key(self, item: Any) -> str | None:
        """A key that the item's fields do not hold; None: use ``item_key``."""
        return None

    # What a spider calls

    def next_page(self, following: Any) -> Any:
        """Say how to ask for the page after this one; yield what it returns.

        *following* is a Request, or with free paging any JSON value: the cursor that
        :meth:`page_request` gets as ``page.cursor``. None says that there is no next page.
        """
        if following is None:
            return None
        if not isinstance(following, Request):
            return NextPage(following)
        if self._resume_active:
            following.meta["resume_next"] = True
        return following

    def end_of_shard(self, reason: str = "the spider says so") -> Any:
        """Say that this page is the shard's last; yield what it returns."""
        reason = str(reason or "the spider says so")
        return EndOfShard(reason) if self._resume_active or self.plans_pages else None

    async def fetch(self, request: Request) -> Response:
        """Download *request* outside the crawl, e.g. in :meth:`plan` or :meth:`warm_up`."""
        return await self.crawler.engine.download_async(request)

    # The suite's side

    @property
    def is_numbered(self) -> bool:
        """Whether pages are asked for by their number."""
        if self.paging is not None:
            return self.paging == "numbered"
        return self.page_url is not None or self.last_page is not None

    @property
    def states_totals(self) -> bool:
        """Whether the spider overrides ``stated_total()``."""
        return type(self).stated_total is not ResumeSpiderMixin.stated_total

    @property
    def logs_in(self) -> bool:
        """Whether the spider overrides ``warm_up()``."""
        return type(self).warm_up is not ResumeSpiderMixin.warm_up

    @property
    def has_probe(self) -> bool:
        """Whether the spider overrides ``probe()``."""
        return type(self).probe is not ResumeSpiderMixin.probe

    @property
    def plans_pages(self) -> bool:
        """Whether the pages come from a plan and not only from start requests."""
        return self.is_numbered or type(self).plan is not ResumeSpiderMixin.plan

    @property
    def has_own_start(self) -> bool:
        """Whether the spider overrides ``start()``."""
        return type(self).start is not ResumeSpiderMixin.start

    def parse_list_page(self, response: Response, **kwargs: Any) -> Any:
        """The callback of list requests that have none of their own."""
        opened = current_page()
        if opened is not None:
            return self.parse_page(response, opened.page)
        return PlainPages(self).parse(response)

    async def start(self) -> AsyncIterator[Any]:
        """Plain start: the first page of every shard, or the spider's start requests."""
        if self._resume_active or not self.plans_pages:
            async for output in super().start():
                yield output
        else:
            async for request in PlainPages(self).start():
                yield request


def numbered_shards(first: int, last: int | None, size: int) -> Iterable[Shard]:
    """Shards of *size* pages from *first* to *last*; a single open-ended one without."""
    if last is None:
        yield Shard(f"{first}-", first)
        return
    for low in range(first, last + 1, size):
        high = min(low + size - 1, last)
        yield Shard(f"{low}-{high}", low, high)


def _integer(name: str, value: Any) -> int | None:
    text = str(value).strip()
    if name == "last_page" and text.lower() in ("", "none"):
        return None
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < (0 if name == "first_page" else 1):
        least = 0 if name == "first_page" else 1
        raise ConfigurationError(
            f"the spider has {name}={value!r}; it must be a whole number from {least} on"
        )
    return number
