"""The texts of the bench's project: settings, and the spiders that most tests begin with."""

from __future__ import annotations

SETTINGS = """\
BOT_NAME = "bench"
SPIDER_MODULES = ["bench.spiders"]
ADDONS = {"scrapy_resume.ResumeAddon": 500}
LOG_LEVEL = "INFO"
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 16
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
RETRY_TIMES = 1
RESUME_PAGE_RETRIES = 1
RESUME_PAGE_RETRY_DELAY = 0.01
RESUME_BACKOFF_BASE = 0.02
RESUME_BACKOFF_MAX = 0.1
RESUME_MAX_WAIT = 0
RESUME_LEASE = 2.5
RESUME_HEARTBEAT = 0.5
"""

# What fails is due when the next process starts, and not in the same one, however slow it is.
LATER = {"RESUME_BACKOFF_BASE": 100000, "RESUME_BACKOFF_MAX": 100000}

PAGES = '''\
"""What the spiders of the bench share."""

import os

import scrapy
from scrapy import Request

from scrapy_resume import ItemTable, NotAPage, ResumeSpiderMixin, Shard, SiteBlocked

SITE = os.environ["BENCH_SITE"]


def number_of(response):
    return int(response.url.partition("page=")[2].partition("&")[0] or 1)


def row_of(row):
    return {
        "key": row.attrib["data-key"],
        "title": row.css("a.title::text").get(),
        "price": row.css(".price::text").get(),
    }


def rows(response):
    return [row_of(row) for row in response.css("li.row")]


class Chain(ResumeSpiderMixin, scrapy.Spider):
    """The smallest spider of the documentation."""

    item_key = "key"
    start_urls = [SITE + "/list?page=1"]

    def parse(self, response):
        yield from rows(response)
        for href in response.css("a.next::attr(href)").getall():
            yield self.next_page(response.follow(href))


class Numbered(ResumeSpiderMixin, scrapy.Spider):
    item_key = "key"
    page_url = SITE + "/list?page={page}"
    last_page = 12
    shard_pages = 4

    def parse(self, response):
        yield from rows(response)


class Details(Numbered):
    """Every row from a detail page."""

    def parse(self, response):
        for row in response.css("li.row a.title"):
            yield response.follow(row, self.parse_item)

    def parse_item(self, response):
        yield {
            "key": response.css(".key::text").get(),
            "title": response.css("h1.title::text").get(),
            "price": response.css(".price::text").get(),
        }
'''

HEADER = "from bench.pages import *\n\n\n"

CHAIN = "class Rows(Chain):\n    name = 'rows'\n"
NUMBERED = "class Rows(Numbered):\n    name = 'rows'\n"
DETAILS = "class Rows(Details):\n    name = 'rows'\n"
