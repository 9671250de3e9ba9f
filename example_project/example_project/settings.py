"""Settings of the example project. One line installs the suite; the rest is politeness."""

BOT_NAME = "example_project"
SPIDER_MODULES = ["example_project.spiders"]
NEWSPIDER_MODULE = "example_project.spiders"

# Items and checkpoints go into SQLite, .scrapy/resume/resume.db next to scrapy.cfg.
ADDONS = {"scrapy_resume.ResumeAddon": 500}

# When one machine is not enough, point every machine at the same MySQL or MariaDB. Nothing
# here has to change; set it in the environment, where it is in no file and no process list:
#
#   export RESUME_DATABASE_URL="mysql+pymysql://crawler:secret@db.example/crawl"
#
# A password with characters such as @ or / is easier to give in parts, as raw text:
# RESUME_DATABASE_HOST, RESUME_DATABASE_USER, RESUME_DATABASE_PASSWORD, RESUME_DATABASE_NAME.

USER_AGENT = "example_project (+https://github.com/example/scrapy-resume)"
ROBOTSTXT_OBEY = True

# The local site can be hurried; the public one cannot.
CONCURRENT_REQUESTS_PER_DOMAIN = 16
DOWNLOAD_SLOTS = {"books.toscrape.com": {"concurrency": 2, "delay": 0.25}}

FEED_EXPORT_ENCODING = "utf-8"
LOG_LEVEL = "INFO"
