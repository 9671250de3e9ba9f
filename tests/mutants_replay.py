"""The safeguards of the replay of journals, and of salvage; see :mod:`mutants`."""

from __future__ import annotations

from mutants_acts import Given

REPLAY, LOST = "../store/test_replay.py::test_", "../store/test_replay_lost.py::test_"
SALVAGE = "../store/test_salvage.py::test_"
HELD_LAST = f"{REPLAY}a_held_page_at_the_end_keeps_a_list_unfinished"
RESTORED = f"{LOST}a_database_that_is_older_than_the_journal_is_caught_up[sqlite]"
FRESH = f"{LOST}an_operators_fresh_start_is_not_undone"

MUTANTS: tuple[Given, ...] = (
    (
        "the journal forgets lost pages before they are settled",
        (("recordreplay.py", "            if not self._lost:\n", "            if True:\n"),),
        (f"{REPLAY}a_database_that_goes_away_leaves_the_rest_in_the_journal",),
    ),
    (
        "a finish is believed where pages are missing",
        (("recordreplay.py", "return not missing and claim", "return claim"),),
        (RESTORED, f"{REPLAY}a_finish_alone_is_not_believed"),
    ),
    (
        "a finish is believed where a page was held",
        (("recordreplay.py", "return not missing and claim not in self._holes",
          "return not missing"),),
        (HELD_LAST,),
    ),
    (
        "a database that is older than the journal is not noticed",
        (("lostpages.py", "return older or short or", "return short or"),),
        (RESTORED,),
    ),
    (
        "an id that was given a second time counts as the same shard",
        (("lostpages.py", "return now if known == ", "return now if known or "),),
        (f"{LOST}an_id_that_was_given_a_second_time_gets_no_strange_pages",),
    ),
    (
        "a token that was given a second time counts as ours",
        (("store/standings.py", "return ours and worker in (None, self.worker)", "return ours"),),
        (f"{LOST}or_another_workers",),
    ),
    (
        "pages come back that an operator has had read again",
        (("lostpages.py", "return now.fencing_token != token and now.read_again_at",
          "return False and now.read_again_at"),),
        (FRESH,),
    ),
    (
        "pages that others have committed are salvaged",
        (("lostpages.py", "if now is None or not now.position.has(page.page)]", "]"),),
        (f"{LOST}the_new_owners_items_and_pages_stand",),
    ),
    (
        "a shard that is taken over in between is forgotten",
        (("recordreplay.py", "if record.shard_id in result.fenced:", "if False:"),),
        (f"{LOST}a_shard_that_is_taken_over_in_between",),
    ),
    (
        "what is behind a record that cannot be understood is replayed",
        (("recordreplay.py", "            self._unread.add(entry.shard_id)\n", ""),),
        (f"{REPLAY}a_record_of_a_newer_version_is_kept_aside",),
    ),
    (
        "a salvage overwrites",
        (("store/salvage.py", "declared.values(), keep=True)", "declared.values())"),),
        (f"{SALVAGE}absent_rows_are_inserted_and_present_ones_stay",),
    ),
    (
        "a salvage inserts what has no declared key",
        (("store/salvage.py", "for row in every if _has_key(row)]", "for row in every]"),),
        (f"{SALVAGE}items_without_a_declared_key_are_left_out_and_it_is_said",),
    ),
    (
        "a salvage that is repeated is recorded again",
        (("store/salvage.py", "if conn.execute(there.limit(1)).first() is None:", "if True:"),),
        (f"{SALVAGE}repeating_it_changes_nothing",),
    ),
    (
        "a dead neighbour's tokens are raised before its journal is replayed",
        (("reaper.py", "        for _ in journalreplay.steps(\n",
          "        for _ in () and journalreplay.steps(\n"),),
        ("test_replayed.py::test_txn_9_a_neighbour_stores_what_a_dead_process_had_read",),
    ),
    (
        "our earlier instance's tokens are raised before its journal is replayed",
        (("work.py", "        self._replay()\n", ""),),
        ("test_replayed.py::test_txn_9_killed_in_the_replay_too",),
    ),
    (
        "a slot in use is relayed",
        (("commands/relay.py", "if path.name == FILE and not", "if path.name == '' and not"),),
        ("../commands/test_commands_relay.py::test_a_slot_in_use_is_refused",),
    ),
    (
        "a database that lost commits is built upon",
        (
            (
                "store/fences.py",
                "    if current.version < position.version:\n",
                "    if False:\n",
            ),
        ),
        (
            "../store/test_commit.py::"
            "test_a_database_that_lost_commits_is_not_built_upon[sqlite]",
        ),
    ),
    (
        "a finish does not look at the version",
        (("store/fences.py", "    if with_pages or final:\n", "    if with_pages:\n"),),
        (
            "../store/test_commit.py::"
            "test_a_database_that_lost_commits_is_not_built_upon[sqlite]",
        ),
    ),
)  # fmt: skip
