"""Checks: a page known to have items is asked for once more, to learn how its site is.

At most one at a time for each site. Each is asked in a shard that has doubted pages, by the
opener and through the ledger like any page; nothing of it is stored, and what it leads to
is not fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.suspicion import Sight


@dataclass(eq=False, slots=True)
class Check:
    """One question, asked in *shard*; *words* name its page."""

    shard: HeldShard
    words: str = ""
    page: OpenPage | None = None
    sight: Sight | None = None
    begun: bool = False

    @property
    def site(self) -> str:
        """The site it is about."""
        return self.shard.site


class Checks:
    """The checks under way, by site."""

    def __init__(self, abandon: Callable[[OpenPage], None]) -> None:
        self._abandon = abandon
        self._by_site: dict[str, Check] = {}

    def at(self, site: str) -> Check | None:
        """The check of *site*, if there is one."""
        return self._by_site.get(site)

    def of(self, page: OpenPage) -> Check | None:
        """The check that *page* was opened for."""
        return next((one for one in self._by_site.values() if one.page is page), None)

    def begin(self, shard: HeldShard) -> None:
        """One is wanted, and *shard* is to ask it."""
        self._by_site[shard.site] = Check(shard)

    def wanted(self, shard: HeldShard) -> Check | None:
        """The check to be asked in *shard*, from now on its opener's business."""
        check = self._by_site.get(shard.site)
        if check is None or check.shard is not shard or check.begun:
            return None
        check.begun = True
        return check

    def opened(self, check: Check, page: OpenPage, sight: Sight, words: str) -> bool:
        """Its page is about to be asked for; False if it is not wanted any more."""
        check.page, check.sight, check.words = page, sight, words
        return self._by_site.get(check.site) is check

    def end(self, check: Check | None) -> bool:
        """It is answered, or not wanted any more; False if it was over already."""
        if check is None or self._by_site.get(check.site) is not check:
            return False
        del self._by_site[check.site]
        if check.page is not None and not check.page.closed:
            self._abandon(check.page)
        return True
