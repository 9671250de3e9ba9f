"""The safeguards of stops and of jobs; see :mod:`mutants`."""

from __future__ import annotations

from mutants_acts import Given

STOP, UNIT = "test_stop.py::test_", "../unit/"

MUTANTS: tuple[Given, ...] = (
    (
        "downloads are not cancelled after the grace",
        (("departure.py", "        loop.ledger.abort()\n", ""),),
        (f"{STOP}a_stop_gives_what_does_not_come_its_grace_and_then_to_others",),
    ),
    (
        "code that waits for ever is not ended",
        (("cancellation.py", "                task.cancel()\n", "                pass\n"),),
        (f"{STOP}code_that_never_ends_does_not_outlive_the_grace[generator]",),
    ),
    (
        "code of pages begins after the end of the grace",
        (
            (
                "cancellation.py",
                "        if self._ended:\n"
                '            raise Abandoned("the crawl was stopped")\n'
                "        self._tasks",
                "        self._tasks",
            ),
        ),
        (f"{STOP}code_that_never_ends_does_not_outlive_the_grace[pipeline]",),
    ),
    (
        "a stopped crawl connects again to a database that does not answer",
        (
            (
                "store/cutoff.py",
                "        if self._made:\n            raise",
                "        if False:\n            raise",
            ),
        ),
        ("../store/test_cutoff.py::test_what_waits_for_a_frozen_server_is_cut",),
    ),
    (
        "calls that wait for a frozen database are not cut",
        (
            (
                "store/cutoff.py",
                "        for connection in list(self._open):",
                "        for connection in []:",
            ),
        ),
        ("../store/test_cutoff.py::test_what_waits_for_a_frozen_server_is_cut",),
    ),
    (
        "shards are claimed although the crawl was stopped while Redis was asked",
        (("claimer.py", "        if loop.flow.stopping:  #", "        if False:  #"),),
        (f"{UNIT}test_claimer.py::test_a_stop_while_redis_is_asked_leaves_the_database_alone",),
    ),
    (
        "the id of a job makes a task",
        (("planning.py", " and name != _JOB}", "}"),),
        (f"{UNIT}test_planning.py::test_a_job_s_id_is_never_part_of_the_name",),
    ),
    (
        "the database is waited for without end",
        (
            (
                "departure.py",
                "        self._loop.session.database.cut()\n",
                "",
            ),
        ),
        (
            f"{UNIT}test_departure.py::test_the_database_is_waited_for_until_some_time_after_the_grace",
        ),
    ),
    (
        "pages whose downloads and code are ended by the stop are judged",
        (("departure.py", "        loop.flow.abandon()\n", ""),),
        (f"{STOP}a_stop_in_an_outage_puts_nothing_into_quarantine",),
    ),
    (
        "whoever waits for the last record is not told that the journal was only looked at",
        (("journalling.py", "        self.ready(())  # whoever waits", "        # whoever waits"),),
        (f"{UNIT}test_journalling.py::test_a_stop_does_not_wait_for_a_disk_that_has_room_again",),
    ),
    (
        "a crawl reads on provisionally although it was stopped while it opened",
        (("provisional.py", "        if self._loop.flow.stopping:\n", "        if False:\n"),),
        (
            f"{UNIT}test_provisional.py::"
            "test_a_crawl_that_is_stopped_while_it_opens_does_not_begin_to_read",
        ),
    ),
)
