"""The acts of an operator, each one transaction with its rows in ``operation``.

All take *actor* (who), *reason* (why) and *dry_run* (say what would change, change
nothing), return an ActResult, and raise ActRefused with a sentence for what cannot be
done, ConfigurationError for a run that there is not.
"""

from __future__ import annotations

from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.backfills import backfill
from scrapy_resume.store.requeues import requeue, resolve
from scrapy_resume.store.restarts import reset, restart
from scrapy_resume.store.retries import retry
from scrapy_resume.store.runacts import cancel, pause, unpause
from scrapy_resume.store.wishes import carry_out

__all__ = [
    "ActResult",
    "backfill",
    "cancel",
    "carry_out",
    "pause",
    "requeue",
    "reset",
    "resolve",
    "restart",
    "retry",
    "unpause",
]
