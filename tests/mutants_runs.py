"""The safeguards of the acts on runs and of the workers' side of them; see :mod:`mutants`."""

from __future__ import annotations

from mutants_acts import Given

ACTS, WALK = "../store/test_acts.py::test_", "../store/test_state_machine.py::test_"
CRAWL, LEAVE = "../acceptance/test_operator.py::test_", "../unit/test_leaving.py::test_"
RESTART = f"{ACTS}a_restart_reads_every_page_again_and_keeps_the_items[sqlite]"

MUTANTS: tuple[Given, ...] = (
    (
        "a process remembers what it read of pages that were put back",
        (("claimloop.py", "        self.ledger.duplicates.forget()\n", ""),),
        (f"{CRAWL}pages_that_are_put_back_ask_for_their_details_again_in_the_same_process",),
    ),
    (
        "an operator's wish is not heard",
        (("heartbeat.py", "        self._loop.flow.wish(renewal.desired)\n", ""),),
        (f"{CRAWL}no_page_is_asked_for_two_heartbeats_after_a_pause",),
    ),
    (
        "pages are tried again while their shard is wanted back",
        (("paging.py", "if self.leaving and self._in_place(trouble):", "if False:"),),
        (f"{LEAVE}what_is_in_flight_is_stored_and_the_rest_is_given_back",),
    ),
    (
        "a shard that is given back counts as read",
        (("paging.py", "if self.leaving and self._unread():", "if False:"),),
        (f"{LEAVE}what_is_in_flight_is_stored_and_the_rest_is_given_back",),
    ),
    (
        "what is given back in the moment of a pause is not paused",
        (("store/wishes.py", 'or_(has("pending"), ~settled)', "~settled"),),
        (f"{ACTS}a_shard_given_back_in_the_moment_of_a_pause_is_found_by_the_next_round",),
    ),
    (
        "records of pages that are read again stay open",
        (
            (
                "store/rereads.py",
                "settled = self._settle_records(row, None if row.ordered else pages)",
                "settled = 0",
            ),
        ),
        (f"{ACTS}a_retry_of_a_page_reads_one_that_was_set_aside[sqlite]",),
    ),
    (
        "a restart keeps the end that reading found",
        (("store/rereads.py", '"last_page": self._shard.c.planned_last_page,\n', ""),),
        (f"{ACTS}a_restart_forgets_the_end_that_reading_found[sqlite]",),
    ),
    (
        "the token stays when pages are put back",
        (("store/rereads.py", '"fencing_token": self._shard.c.fencing_token + 1,\n', ""),),
        (RESTART,),
    ),
    (
        "the workers are not told that pages were put back",
        (("store/rereads.py", "read_again_at=self._act.now", "reason=self._run.reason"),),
        (RESTART,),
    ),
    (
        "pages are put back while they are read",
        (("store/rereads.py", "        require_idle(self._act, self._run, rows)\n", ""),),
        (f"{ACTS}a_shard_that_is_being_read_is_left_alone",),
    ),
    (
        "an act whose reply was lost is done twice",
        (
            (
                "store/acting.py",
                "if self._landed is not None and self._is_stored(conn):",
                "if False:",
            ),
        ),
        (f"{ACTS}an_act_whose_commit_had_no_reply_is_done_once",),
    ),
    (
        "a page that was read after all is still one set aside",
        (("store/finishing.py", "        ~put_back,\n", ""),),
        (f"{ACTS}a_page_that_was_set_aside_and_is_read_after_all_counts_as_read",),
    ),
    (
        "a paused shard does not say who paused it",
        (("store/endings.py", '"paused", wish.reason)', '"paused", "paused")'),),
        (f"{ACTS}a_pause_stops_what_waits_at_once_and_what_runs_by_its_owner",),
    ),
    (
        "a task has two unfinished runs",
        (
            (
                "store/acting.py",
                "        self.require_alone(conn, run)\n        self.sentences",
                "        self.sentences",
            ),
        ),
        (f"{ACTS}what_cannot_be_done_is_refused_in_one_sentence",),
    ),
    (
        "a status is changed without a reason",
        (("store/transitions.py", "if not reason.strip():", "if False:"),),
        (f"{WALK}a_move_leads_nowhere_else_and_needs_a_reason",),
    ),
)
