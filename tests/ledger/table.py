"""The path table: what is expected of a page on every path through Scrapy's engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from tests.ledger.harness import PathSpider

S = TypeVar("S", bound=type[PathSpider])


@dataclass(frozen=True)
class Expected:
    """What one page of a path must come to; *troubles* are ``where:kind:class``.

    None is not compared: with some failures it depends on what was handled first.
    """

    closed: int = 1
    live: int = 0
    decision: str = "complete"
    troubles: tuple[str, ...] = ()
    items: int = 0
    dropped: int = 0
    failed: int = 0
    children: int = 0
    filtered: int = 0
    ignored: int = 0
    yielded: int | None = None
    read: bool | None = True


@dataclass(frozen=True)
class Path:
    """One path: a spider that walks it, and what is expected of its pages."""

    name: str
    spider: type[PathSpider]
    pages: dict[int, Expected]
    reason: str = "finished"
    late: int = 0
    leaks: dict[str, int] = field(default_factory=dict)

    def expected(self, mode: str) -> dict[str, Any]:
        """The outcome in the shape in which the crawl reports it."""
        pages = {}
        for number, page in self.pages.items():
            pages[str(number)] = asdict(page) | {"troubles": sorted(page.troubles)}
            for name in ("yielded", "read"):
                if pages[str(number)][name] is None:
                    del pages[str(number)][name]
        # Twisted's own timers carry no context: there late work has never had a page.
        late = 0 if mode == "epoll" else self.late
        return {"pages": pages, "reason": self.reason, "late": late, "leaks": self.leaks}


PATHS: dict[str, Path] = {}


def path(
    *more: Expected, reason: str = "finished", late: int = 0, leaks: Any = None, **first: Any
) -> Callable[[S], S]:
    """Put the decorated spider into the table; *more* are its pages from the second on."""

    def add(spider: S) -> S:
        name = spider.__name__
        if name in PATHS:
            raise ValueError(f"two paths are named {name}")
        pages = dict(enumerate((Expected(**first), *more), start=1))
        PATHS[name] = Path(name, spider, pages, reason, late, leaks or {})
        spider.name = name
        spider.pages = len(pages)
        return spider

    return add


def failed(*troubles: str, **counts: Any) -> dict[str, Any]:
    """The keywords of a page that failed for *troubles* before it was read."""
    return {"decision": "failed", "troubles": troubles, "read": False, **counts}
