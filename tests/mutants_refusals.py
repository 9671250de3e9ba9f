"""Safeguards against refusals, depth limits and robots.txt, and the alerts; see :mod:`mutants`."""

from __future__ import annotations

from mutants_acts import Given

BLK, TOLD = "../acceptance/test_blk.py::test_", "../acceptance/test_alerts.py::test_"
REFUSED, ALERTS = "../unit/test_refused_pages.py::test_", "../unit/test_alerts.py::test_"

MUTANTS: tuple[Given, ...] = (
    (
        "a page that its whole site refuses is held against its list",
        (("doubts.py", "return self._is_refused(shard, end) or (", "return ("),),
        (f"{BLK}blk_3_a_lone_chain_that_is_refused_everything_spends_no_attempt[403]",),
    ),
    (
        "every page that fails is doubted, though its site answers others",
        (("doubts.py", "return refusals >= tries and not", "return not"),),
        (f"{REFUSED}a_page_that_got_no_good_answer_since_it_was_first_asked_for_is_doubted",),
    ),
    (
        "an answer that is no refusal counts as one",
        (("page.py", "site and (self.status is None or self.status in statuses)", "site"),),
        (f"{REFUSED}what_is_no_refusal_is_not_doubted",),
    ),
    (
        "pages beyond a depth limit are asked for one after the other",
        (("boundedwalk.py", "if self._refused_from is None else self._beyond(number)", ""),),
        ("../acceptance/test_pag.py::test_pag_5_a_site_that_refuses_to_go_deeper_is_not_hammered",),
    ),
    (
        "a few bad pages count as a depth limit, though one behind them was read",
        (("boundedwalk.py", "and self.position.highest <= first:", ":"),),
        (f"{REFUSED}so_does_one_that_an_earlier_claim_read",),
    ),
    (
        "robots.txt is forgotten by those that wait for it together",
        (("session.py", "lambda loop: robots.obey(crawler)", "lambda loop: None"),),
        (f"{BLK}blk_7_what_robots_txt_forbids_is_said_with_its_page",),
    ),
    (
        "the crawl does not wait for those who are told",
        (
            (
                "alerts.py",
                "        if self._sending:\n            done",
                "        if False:\n            done",
            ),
        ),
        (f"{TOLD}a_blocked_site_is_told_once_by_a_handler_that_takes_its_time",),
    ),
    (
        "a site that is tried in vain is told each time",
        (("alerts.py", "            self._ill.add(site)\n", ""),),
        (f"{ALERTS}a_blocked_site_is_told_once_until_a_page_of_it_is_stored",),
    ),
    (
        "what an operator wished is told as a failure",
        (("alerts.py", "if shard.walk.leaving:", "if False:"),),
        (f"{ALERTS}what_an_operator_wished_is_not_told",),
    ),
)
