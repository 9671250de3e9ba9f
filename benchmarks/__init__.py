"""How fast the suite is, always as a ratio to plain Scrapy on the same machine.

``speed.py`` measures crawls, ``importtime.py`` their start. Each crawl is a ``scrapy``
process of its own against the local site, and contenders take turns, so that whatever
else the machine does meets all of them alike. No absolute time is ever judged.
"""
