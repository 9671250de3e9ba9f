"""What all contenders share; whatever one adds is given by ``-s``.

Everything else is Scrapy as it comes. Its default log level would write every item out
and so slow plain Scrapy down, which would only flatter the suite.
"""

BOT_NAME = "benchmark"
EXTENSIONS = {"benchmarks.meter.Meter": 0}
LOG_LEVEL = "INFO"
