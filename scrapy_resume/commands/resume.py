"""``scrapy resume``: what Scrapy's command line sees of it.

Every call of ``scrapy`` imports this file, whatever its command. So it is small, and the
rest is imported only once ``resume`` is the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand

if TYPE_CHECKING:
    import argparse


class ResumeCommand(ScrapyCommand):
    """Scrapy reads its global options (``-s`` and so on) wherever they stand; the rest is ours."""

    requires_crawler_process = False  # only two verbs crawl, and they make their own

    def syntax(self) -> str:
        """What follows ``scrapy resume``."""
        return "VERB [options]"

    def short_desc(self) -> str:
        """One line for the list that ``scrapy`` prints."""
        return "Run resumable crawls, and show what they have done and what is left"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add Scrapy's options; ``--help`` is kept for the verb that it is asked of."""
        super().add_options(parser)
        parser.add_argument("-h", "--help", action="store_true", help="show this help")

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Read the verb and its arguments into *opts*; help and mistakes exit here."""
        from scrapy_resume.commands import parser

        super().process_options(args, opts)
        parser.read([*args, "--help"] if opts.help else args, opts)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Do what the verb says; its exit code becomes the process's."""
        from scrapy_resume.commands import verbs

        assert self.settings is not None
        self.exitcode = verbs.run(opts.verb, self.settings, opts)
