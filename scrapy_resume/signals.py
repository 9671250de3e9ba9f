"""The signals of the suite. Connect to them as to Scrapy's own::

    crawler.signals.connect(self.site_blocked, signal=signals.site_blocked)

They tell what a person may want to know at once. Each is sent in the event loop by the
process that found it out, and a handler may be a coroutine.
"""

from __future__ import annotations

site_blocked = object()
"""A site was found to be blocked. With *site*, *reason* and *spider*."""

shard_failed = object()
"""A shard is failed for good. With *shard_no*, *shard_key*, *reason* and *spider*."""

records_quarantined = object()
"""Records were set aside by one commit. With *records* (QuarantineRecord) and *spider*."""

crawl_stalled = object()
"""No page of the run was stored for a while. With *seconds*, *reason* and *spider*."""
