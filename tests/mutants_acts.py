"""The safeguards of the operator's verbs; :mod:`mutants` takes out one after the other.

Each is a name, the changes (file, text that is there once, text instead) and the tests,
one of which must notice.
"""

from __future__ import annotations

from typing import TypeAlias

Change: TypeAlias = tuple[str, str, str]
Given: TypeAlias = tuple[str, tuple[Change, ...], tuple[str, ...]]

ACTS, WHY = "../commands/test_commands_acts.py::test_", "../commands/test_commands_why.py::test_"
ASIDE = "../commands/test_commands_quarantine.py::test_"
SITES, LINE = "../store/test_health.py::test_", "../commands/test_commands_health.py::test_"

MUTANTS: tuple[Given, ...] = (
    (
        "an act of a whole run needs no confirmation",
        (("commands/acts.py", "return whole or opts.verb in _DANGEROUS", "return False"),),
        (f"{ACTS}what_is_not_confirmed_is_not_done",),
    ),
    (
        "an act on some shards wants to be confirmed as well",
        (("commands/acts.py", "whole = opts.verb ==", "whole = True or opts.verb =="),),
        (f"{ACTS}what_is_not_dangerous_asks_nothing",),
    ),
    (
        "the confirmation is not compared with the task",
        (("commands/confirmation.py", "if opts.confirm.strip() != str(task.id):", "if False:"),),
        (f"{ACTS}what_is_not_confirmed_is_not_done",),
    ),
    (
        "what is typed is not compared with the task",
        (
            (
                "commands/confirmation.py",
                "elif _asked(which, preview()) != str(task.id):",
                "elif _asked(which, preview()) is None:",
            ),
        ),
        (f"{ACTS}the_id_is_typed",),
    ),
    (
        "nobody is told what an act would do before it is confirmed",
        (("commands/confirmation.py", 'do this:", *sentences)', 'do this:",)'),),
        (f"{ACTS}the_id_is_typed",),
    ),
    (
        "a dry run of an act does it",
        (("commands/acts.py", "result = act(opts.dry_run)", "result = act(False)"),),
        (f"{ACTS}a_dry_run_says_it_and_changes_nothing[sqlite-retry]",),
    ),
    (
        "a dry run on the quarantine does it",
        (("commands/quarantine.py", '{"dry_run": opts.dry_run}', '{"dry_run": False}'),),
        (f"{ASIDE}a_dry_run_changes_nothing",),
    ),
    (
        "a dry run of a site's pause pauses it",
        (
            (
                "store/health.py",
                "self.db.look(self._judge) if dry_run else self.db.run(self._set)",
                "self.db.run(self._set)",
            ),
        ),
        (f"{SITES}a_dry_run_says_the_same_and_changes_nothing[sqlite]",),
    ),
    (
        "a dry run of a site makes its parked shards due",
        (
            (
                "store/health.py",
                "waits.count_parked if dry_run else waits.raise_parked",
                "waits.raise_parked",
            ),
        ),
        (f"{SITES}a_dry_run_says_the_same_and_changes_nothing[sqlite]",),
    ),
    (
        "an act on a site leaves no record",
        (("store/health.py", "record(conn, self.db, [act], at=new.updated_at)", "pass"),),
        (f"{SITES}a_paused_site_has_no_shard_handed_out[sqlite]",),
    ),
    (
        "a misspelt site is paused",
        (
            (
                "store/health.py",
                "    if conn.execute(select(known)).scalar():\n",
                "    if conn.execute(select(known)):\n",
            ),
        ),
        (f"{SITES}a_site_that_no_shard_has_is_refused[sqlite-False]",),
    ),
    (
        "an act on a site does not wait for another one",
        (("store/health.py", "self._judge(conn, lock=True)", "self._judge(conn)"),),
        (f"{SITES}an_act_waits_for_one_that_is_under_way_and_sees_what_it_did",),
    ),
    (
        "what waits for other reasons is taken for parked",
        (("store/waits.py", 'shard.c.error_kind == "blocked", shard.c.site', "shard.c.site"),),
        (f"{SITES}a_shard_that_waits_for_another_reason_goes_on_waiting[sqlite]",),
    ),
    (
        "the shards parked for other sites are made due",
        (("store/waits.py", '"blocked", shard.c.site == site)', '"blocked")'),),
        (f"{SITES}an_unpaused_site_is_healthy_and_its_parked_shards_are_due[sqlite]",),
    ),
    (
        "requeue of all there is takes records of no page",
        (
            (
                "commands/quarantine.py",
                'if opts.act == "resolve" or one["page"] is not None',
                "if one",
            ),
        ),
        (f"{ASIDE}requeue_of_all_that_a_task_has[sqlite]",),
    ),
    (
        "addresses of records are shown with their secrets",
        (("commands/quarantine.py", 'row["url"] and safe_url(row["url"])', 'row["url"]'),),
        (f"{ASIDE}one_record_is_shown_whole[sqlite]",),
    ),
    (
        "why tells the pause of a site that is over",
        (
            (
                "commands/mends.py",
                '(site["state"] == "paused" and not _is_over(site, now))',
                'site["state"] == "paused"',
            ),
        ),
        (f"{WHY}a_site_that_is_held",),
    ),
    (
        "why has a command for shards that their site holds back",
        (
            (
                "commands/mends.py",
                'return self._of_site(shard["site"])',
                "return self._retry([shard])",
            ),
        ),
        (f"{WHY}a_site_that_is_held",),
    ),
    (
        "a site's name is not quoted for the shell",
        (("commands/mends.py", "unpause --site {shlex.quote(site)}", "unpause --site {site}"),),
        (f"{WHY}a_site_that_is_held",),
    ),
    (
        "a pause for a time has no end",
        (("commands/acts.py", "seconds=opts.seconds, **done", "**done"),),
        (f"{LINE}times",),
    ),
)
