"""The public interface as a user writes it. Checked by ``mypy --strict``, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from scrapy_resume import (
    ItemTable,
    NotAPage,
    Page,
    ResumeAddon,
    ResumeSpiderMixin,
    Shard,
    SiteBlocked,
)


@dataclass
class Book:
    isbn: str
    title: str


class Chain(ResumeSpiderMixin, Spider):
    name = "chain"
    start_urls = ["https://example.com/list"]
    item_key = "isbn"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield Book("1", "one")
        yield self.next_page(response.follow("/list?page=2"))


class Base(DeclarativeBase):
    pass


class MappedFilm(Base):
    __tablename__ = "film"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]


FILM = ItemTable(
    Table("other_film", MetaData(), Column("id", Integer, primary_key=True)),
    on_unknown_field="ignore",
)


class Numbered(ResumeSpiderMixin, Spider):
    name = "numbered"
    page_url = "https://example.com/list?page={page}"
    last_page = 50
    shard_pages = 10
    item_table = ItemTable("book", key=["isbn"], update="all", newer_by="scraped_at")

    def check_page(self, response: Response, page: Page) -> None:
        if b"captcha" in response.body:
            raise SiteBlocked("a captcha")
        if not response.body.startswith(b"<"):
            raise NotAPage(f"page {page.number} is not HTML")

    def parse_page(self, response: Response, page: Page) -> Iterator[Any]:
        yield {"isbn": "1", "page": page.number}
        if page.resumed:
            yield self.end_of_shard("seen enough")

    def stated_total(self, response: Response) -> int | None:
        return 500


class Free(ResumeSpiderMixin, Spider):
    name = "free"
    item_table = {
        Book: ItemTable("book", ["isbn"]),
        "myproject.items.Film": ItemTable(MappedFilm, update=[MappedFilm.title]),
        "*": FILM,
    }

    async def plan(self) -> AsyncIterator[Shard]:
        response = await self.fetch(Request("https://example.com/api/lists"))
        for name in response.text.split():
            yield Shard(name, spec={"list": name})

    def page_request(self, page: Page) -> Request:
        return Request(f"https://example.com/api/{page.shard.key}?token={page.cursor or ''}")

    def parse_page(self, response: Response, page: Page) -> Iterator[Any]:
        yield self.next_page({"token": "abc"})

    async def warm_up(self) -> None:
        await self.fetch(Request("https://example.com/login"))

    def make_item_key(self, item: Any) -> str | None:
        return str(item["id"])


ADDONS = {ResumeAddon: 500}
