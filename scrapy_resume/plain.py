"""A mixin spider without the suite: its planned pages as ordinary requests.

Used when the suite is off. Bounded shards are asked for page by page, open-ended
ones until ``stop_on_empty`` empty pages, chains as long as a page names the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import arg_to_iter

from scrapy_resume.ledger import EndOfShard, NextPage
from scrapy_resume.page import Page

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_resume.mixins import ResumeSpiderMixin

_META = "resume_plain"


async def iterate(outputs: Any) -> AsyncIterator[Any]:
    """Whatever a callback or ``plan()`` returned, as one asynchronous iterator."""
    if not hasattr(outputs, "__aiter__"):
        outputs = await ensure_awaitable(outputs)
    if hasattr(outputs, "__aiter__"):
        async for output in outputs:
            yield output
    else:
        for output in arg_to_iter(outputs):
            yield output


class PlainPages:
    """Walks the pages of one spider without a checkpoint."""

    def __init__(self, spider: ResumeSpiderMixin) -> None:
        self._spider = spider

    async def start(self) -> AsyncIterator[Request]:
        """The first page of every planned shard."""
        async for shard in iterate(self._spider.plan()):
            yield await self._request(Page(shard.first_page, shard, shard.cursor), 0)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        """Parse a list page and follow it with the next one."""
        page, empty = response.meta.get(_META) or (None, 0)
        if page is None:  # scrapy parse, or a request of the user's own
            async for output in iterate(self._spider._parse(response, **response.cb_kwargs)):
                yield output
            return
        following, ended, yielded = None, False, 0
        async for output in iterate(self._spider.parse_page(response, page)):
            if isinstance(output, NextPage):
                following = replace(page, number=page.number + 1, cursor=output.cursor)
            elif isinstance(output, EndOfShard):
                ended = True
            else:
                yielded += 1
                yield output
        empty = 0 if yielded else empty + 1
        following = following or self._next_number(page, empty)
        if following is not None and not ended:
            yield await self._request(following, empty)

    def _next_number(self, page: Page, empty: int) -> Page | None:
        last = page.shard.last_page
        numbered = self._spider.is_numbered and not page.shard.ordered
        wanted = empty < self._spider.stop_on_empty if last is None else page.number < last
        return replace(page, number=page.number + 1) if numbered and wanted else None

    async def _request(self, page: Page, empty: int) -> Request:
        request = await ensure_awaitable(self._spider.page_request(page))
        if request.callback is None:
            request = request.replace(callback=self._spider.parse_list_page)
        request.meta[_META] = (page, empty)
        return request
