"""The safeguards of the journal, of outages and of the mirror; see :mod:`mutants`."""

from __future__ import annotations

from mutants_acts import Given

KEPT, OUTAGE = "test_gauntlet_journal.py::test_", "test_outages.py::test_txn_9_"
FILE, DAMAGE = "../unit/test_journal.py::test_", "../unit/test_journal_damage.py::test_"
MIRROR, REPLAY = "../queue/test_mirror.py::test_", "../store/test_replay.py::test_"

MUTANTS: tuple[Given, ...] = (
    (
        "a page's place is free before the journal holds it",
        (
            (
                "journalling.py",
                "        self._waiting.append(submission)\n",
                "        self._waiting.append(submission)\n"
                "        if submission.let_go is not None:\n"
                "            submission.let_go()\n",
            ),
        ),
        ("test_gauntlet.py::test_the_pages_in_flight_are_bounded[mariadb]",),
    ),
    (
        "the journal forgets a page before it is committed",
        (
            (
                "journalling.py",
                "        self.backlog.look()\n        self.ready(batch)\n",
                "        self._thread.post(self._trim, max(one.seq or 0 for one in batch), {})\n"
                "        self.backlog.look()\n        self.ready(batch)\n",
            ),
        ),
        (f"{OUTAGE}killed_in_the_outage",),
    ),
    (
        "the tokens are raised before the journal is replayed",
        (
            (
                "work.py",
                "        self._replay()\n"
                "        leases.reclaim_worker(db, worker=slot.worker, instance=slot.instance)\n",
                "        leases.reclaim_worker(db, worker=slot.worker, instance=slot.instance)\n"
                "        self._replay()\n",
            ),
        ),
        (f"{OUTAGE}killed_in_the_outage",),
    ),
    (
        "a record with a wrong checksum is believed",
        (
            (
                "journal/file.py",
                "return record if record.crc(file_id) == crc else None",
                "return record",
            ),
        ),
        (f"{DAMAGE}every_field_of_a_record_counts[token]",),
    ),
    (
        "what came after a lost record of its shard is used",
        (
            (
                "journal/copying.py",
                "elif record.before > floor and tails.get(record.shard_id) != record.before:",
                "elif False:",
            ),
        ),
        (f"{DAMAGE}of_a_shard_nothing_behind_its_first_lost_record_is_used",),
    ),
    (
        "a holder stops reading when its leases end in an outage",
        (("heartbeat.py", "return not (self.missing or self._unanswered)", "return True"),),
        (f"{OUTAGE}the_crawl_goes_on_and_catches_up",),
    ),
    (
        "leases that ended in an outage are taken back at once",
        (("reaper.py", "settled = self._contact.heard() > loop.settings.lease", "settled = 1"),),
        (f"{OUTAGE}a_holder_has_a_lease_of_time_to_come_back_after_it",),
    ),
    (
        "a full journal stops nothing",
        (("journalling.py", "return self.backlog.full or self.failing", "return self.failing"),),
        ("test_outages.py::test_prc_6_reading_stops_when_the_journal_is_full",),
    ),
    (
        "lost pages are not salvaged",
        (("lostpages.py", "    if not pages:\n        return", "    if pages:\n        return"),),
        (f"{KEPT}killed_while_lost_pages_are_salvaged",),
    ),
    (
        "what is salvaged replaces what is there",
        (("store/salvage.py", "declared.values(), keep=True)", "declared.values())"),),
        ("../store/test_replay_lost.py::test_the_new_owners_items_and_pages_stand",),
    ),
    (
        "a dead neighbour's journal is not replayed",
        (("reaper.py", "            yield 0\n", "            break\n"),),
        ("test_replayed.py::test_txn_9_a_neighbour_stores_what_a_dead_process_had_read",),
    ),
    (
        "an old position in the mirror replaces a newer one",
        (
            (
                "lua/mirror.lua",
                "  elseif itstoken < token or (itstoken == token and itsversion <= version) then",
                "  else",
            ),
        ),
        (f"{MIRROR}a_position_never_moves_back",),
    ),
)
