"""What can be wrong with an item table, and what is done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scrapy_resume.exceptions import ConfigurationError

ACTIONS = ("refuse", "warn", "ignore")
CODES: dict[str, str] = {
    "missing_table": "refuse",
    "missing_column": "refuse",
    "no_key": "refuse",
    "view": "refuse",
    "generated_column": "refuse",
    "no_unique_index": "refuse",
    "nullable_key": "refuse",
    "second_unique_index": "refuse",
    "prefix_index": "refuse",
    "engine": "refuse",
    "collation": "warn",
    "padding": "warn",
    "charset": "warn",
    "small_id": "warn",
    "trigger": "warn",
    "strict_mode": "warn",
}
"""What is looked for, and what a finding does unless RESUME_ITEM_CHECKS says otherwise."""
FIXED = frozenset(
    {"missing_table", "missing_column", "no_key", "view", "generated_column", "no_unique_index"}
)
"""What cannot be lived with: these stay refusals."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a table; *mend* is the SQL that would mend it, where SQL can.

    *refuse* says that items cannot go there.
    """

    code: str
    table: str
    column: str | None
    text: str
    mend: str | None = None
    refuse: bool = True

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        mend = f" (mend: {self.mend})" if self.mend else ""
        return f"table {self.table}{column}: {self.text}{mend}"

    def as_wanted(self, actions: Mapping[str, str]) -> Finding | None:
        """The finding with its consequence by *actions*; None if it is to be ignored."""
        action = actions[self.code]
        return None if action == "ignore" else replace(self, refuse=action == "refuse")


def actions(given: Mapping[str, str]) -> dict[str, str]:
    """Every code's action, *given* over the defaults. Raises ConfigurationError."""
    for code, action in given.items():
        if code not in CODES:
            _refuse(f"names the check {code}; there are {', '.join(CODES)}")
        if action not in ACTIONS:
            _refuse(f"sets {code} to {action}; allowed is one of {', '.join(ACTIONS)}")
        if code in FIXED and action != "refuse":
            _refuse(f"sets {code} to {action}; it cannot be lived with and stays a refusal")
    return CODES | dict(given)


def quoted(dialect: str, *names: str) -> str:
    """*names* as SQL text has them, separated by commas."""
    sign = "`" if dialect == "mysql" else '"'
    return ", ".join(sign + name.replace(sign, sign * 2) + sign for name in names)


def _refuse(what: str) -> None:
    raise ConfigurationError(f"RESUME_ITEM_CHECKS {what}")
