"""The command ``scrapy resume VERB``; one file per verb, all arguments in ``parser``."""
