"""Settings that map names to values: as a dict, as JSON, as a plain text."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.settings import ResumeSettings

WANTED = {"second_unique_index": "warn", "collation": "refuse"}


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        '{"second_unique_index": "warn", "collation": "refuse"}',
        " second_unique_index=warn,collation = refuse ,",
    ],
)
def test_item_checks(given: Any) -> None:
    settings = ResumeSettings.from_settings({"RESUME_ITEM_CHECKS": given}, {})
    assert settings.item_checks == WANTED


@pytest.mark.parametrize("given", ["collation", "=warn", "collation=", "{", "[1]", 7])
def test_item_checks_that_are_none(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"RESUME_ITEM_CHECKS is .* from a check to"):
        ResumeSettings.from_settings({"RESUME_ITEM_CHECKS": given}, {})


def test_item_checks_of_the_environment() -> None:
    settings = ResumeSettings.from_settings({}, {"RESUME_ITEM_CHECKS": "engine=warn"})
    assert settings.item_checks == {"engine": "warn"}
