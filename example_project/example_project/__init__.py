"""A real Scrapy project that uses scrapy_resume, and a local site for it to crawl."""
