"""A local web site with real content and switchable misbehaviour.

``python -m example_project.site`` serves it; in a test::

    with Site() as site:
        rule = site.behave(page=7, hold=True)
        ...                         # start a crawl of site.url + "/list?page=1"
        rule.wait()                 # page 7 was asked for
        rule.release()
        assert site.hits(page=7) == 1

It holds the Unicode character catalogue (``/``, ``/block/…``, ``/character/…``, ``/chain``,
``/api/…``), a plain list of rows made for tests (``/list``, ``/item/…``, ``/search``,
``/cursor``, ``/feed``) and a bookshop with the page shapes of books.toscrape.com (``/books/``).
"""

from example_project.site.behaviour import Rule
from example_project.site.listing import Row
from example_project.site.log import Served
from example_project.site.site import Site

__all__ = ["Row", "Rule", "Served", "Site"]
