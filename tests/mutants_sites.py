"""The safeguards of the gate, taken out one by one; see :mod:`mutants_acts`."""

from __future__ import annotations

from mutants_acts import Given

STORE, GATE = "../store/test_site_circuit.py::test_", "../unit/test_sitegate.py::test_"
REAL = "test_gate.py::test_"
ATTACKED = "../unit/test_site_attacked.py::test_"

MUTANTS: tuple[Given, ...] = (
    (
        "a blocked site whose time is over is handed out untried",
        (("store/sites.py", 'if row.state == "blocked" or not _over', "if not _over"),),
        (f"{STORE}a_blocked_site_has_no_shard_handed_out_to_anybody[sqlite]",),
    ),
    (
        "several workers may try a site at once",
        (("store/circuits.py", "if taken and old.probe_instance != instance:", "if False:"),),
        (f"{STORE}of_many_who_come_at_once_one_may_try_it[sqlite]",),
    ),
    (
        "the row of a site is not locked before the right to try it is given",
        (
            (
                "store/circuits.py",
                "        old, now = find(conn, db, site, lock=True), db.now(conn)\n"
                '        if old is None or old.state != "blocked" or not',
                "        old, now = find(conn, db, site), db.now(conn)\n"
                '        if old is None or old.state != "blocked" or not',
            ),
        ),
        (f"{STORE}of_many_who_come_at_once_one_may_try_it[mariadb]",),
    ),
    (
        "a dead prober keeps the right",
        (
            (
                "store/circuits.py",
                "taken = old.probe_until is not None and old.probe_until > now",
                "taken = old.probe_until is not None",
            ),
        ),
        (f"{STORE}a_dead_prober_keeps_the_right_for_a_lease[sqlite]",),
    ),
    (
        "a prober that lost the right is heard all the same",
        (
            (
                "store/circuits.py",
                'old.state != "blocked" or old.probe_instance != instance:',
                'old.state != "blocked":',
            ),
        ),
        (f"{STORE}a_dead_prober_keeps_the_right_for_a_lease[sqlite]",),
    ),
    (
        "a heartbeat does not renew the right to try",
        (("store/leases.py", "renew_probes(conn, db, probes, instance, until)", "pass"),),
        (f"{STORE}a_living_prober_keeps_it[sqlite]",),
    ),
    (
        "workers end an operator's pause",
        (("store/circuits.py", 'if old.state == "paused":', "if False:"),),
        (f"{STORE}no_judgement_ends_an_operators_pause[sqlite-blocked]",),
    ),
    (
        "a worker that sees nothing bad ends a block",
        (("store/circuits.py", '    if old.state == "blocked":\n        return True\n', ""),),
        (f"{STORE}suspicion_is_told_and_ends_but_ends_no_block[sqlite]",),
    ),
    (
        "a site blocked again at once rests no longer than before",
        (("store/circuits.py", "by, again=again)", "by, again=False)"),),
        (f"{STORE}a_site_blocked_again_at_once_rests_for_longer[sqlite]",),
    ),
    (
        "the parked shards of a site that passed go on waiting",
        (("store/circuits.py", "waits.raise_parked(db, site)", "pass"),),
        (f"{STORE}a_site_that_passes_is_healthy_and_its_shards_are_due_at_once[sqlite]",),
    ),
    (
        "whoever tries a site gets a shard of it without the right",
        (("store/candidates.py", "held[site].prober == instance", "instance"),),
        (f"{STORE}only_who_has_the_right_gets_a_shard_to_try_it_with[sqlite]",),
    ),
    (
        "shards that were never begun do not count as blocked",
        (("store/finishing.py", "if not row.held_site or", "if True or"),),
        (f"{STORE}a_run_with_nothing_but_a_blocked_site_left_is_blocked[sqlite]",),
    ),
    (
        "what others judged is not acted upon",
        (("sitegate.py", "self._leave(parked[site])", "pass"),),
        (f"{GATE}shards_of_a_site_that_others_blocked_are_given_back",),
    ),
    (
        "an old answer undoes what we said",
        (("sitegate.py", "if not tried and site not in self._unsaid:", "if True:"),),
        (f"{GATE}what_is_older_than_our_own_word_is_not_heard",),
    ),
    (
        "what the database could not be told is forgotten",
        (("sitegate.py", "for site in self._unsaid.keys() - self._saying:", "for site in ():"),),
        (f"{GATE}what_could_not_be_told_is_told_with_the_next_heartbeat",),
    ),
    (
        "a site is tried by who holds shards of it",
        (("sitegate.py", "any(shard.site == site or shard", "any(shard"),),
        (f"{GATE}who_still_holds_shards_of_it_does_not_try_it",),
    ),
    (
        "a site is tried with more than one page",
        (
            (
                "heldshard.py",
                "self.walk.may_open and not (self.trying and self.begun)",
                "self.walk.may_open",
            ),
        ),
        (f"{REAL}an_empty_page_is_no_sign_that_a_site_is_well",),
    ),
    (
        "a refused page is asked for again when it is a try",
        (
            (
                "pageopener.py",
                '        if shard.trying:\n            request.meta["dont_retry"]',
                '        if False:\n            request.meta["dont_retry"]',
            ),
        ),
        (f"{REAL}a_blocked_site_is_asked_for_nothing_before_its_time_and_tried_once_then",),
    ),
    (
        "probe() is not asked",
        (("sitegate.py", "elif self._loop.spider.has_probe:", "elif False:"),),
        (f"{REAL}what_probe_says_is_asked_for_and_not_stored",),
    ),
    (
        "a page whose details are refused ends a block",
        (
            (
                "doubts.py",
                "if not failed and not self.watch.facts(shard.site).window.refuses:",
                "if not failed:",
            ),
        ),
        (f"{ATTACKED}a_page_whose_details_are_refused_is_no_sign_that_a_site_is_well",),
    ),
    (
        "a run that stored nothing ends a block that others can judge",
        (("doubts.py", "if others and check.shard.trying:", "if False:"),),
        (f"{ATTACKED}an_empty_page_does_not_end_a_block_that_others_can_judge[True]",),
    ),
    (
        "a check that met an outage is never asked",
        (("pageopener.py", "check.begun = False", "check.begun = True"),),
        (f"{ATTACKED}a_check_that_meets_an_outage_is_asked_once_it_is_over",),
    ),
    (
        "nobody tries a site that has only a suspect",
        (("sitework.py", "alone=alone", "alone=False"),),
        (f"{STORE}a_site_with_nothing_but_a_suspect_is_tried_by_who_holds_nothing",),
    ),
    (
        "a shard that waits for its site keeps all others from being claimed",
        (("claimer.py", "(shard.begun or shard.waits)", "shard.begun"),),
        (
            "../unit/test_claimer.py::test_a_shard_that_waits_for_its_site_keeps_only_its_site"
            "_from_being_claimed",
        ),
    ),
    (
        "who lost the right goes on trying",
        (("sitegate.py", " and parked[site].prober == ours", ""),),
        (f"{GATE}a_site_is_not_tried_against_an_operators_word_nor_without_the_right",),
    ),
    (
        "a block is not told while something else is",
        (
            (
                "sitegate.py",
                "if unsaid is None or unsaid is not self._failed.get(site):",
                "if unsaid is None:",
            ),
        ),
        (f"{GATE}a_block_is_told_although_a_suspicion_is_still_on_its_way",),
    ),
    (
        "a shard that comes while its blocked site's end is read",
        (("pageflow.py", "        self.doubts.held(shard)\n", ""),),
        (f"{ATTACKED}a_shard_that_comes_while_others_of_its_blocked_site_end_ends_too",),
    ),
)
