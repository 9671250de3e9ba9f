"""The settings of the sites' health."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.health import STATUSES, HealthLimits
from scrapy_resume.settings import ResumeSettings


def test_the_defaults_are_those_of_the_rules() -> None:
    assert ResumeSettings().health_limits == HealthLimits()
    assert ResumeSettings().health_statuses == STATUSES


@pytest.mark.parametrize("given", ["403, 429", [403, 429], (429, "403"), {403, 429}, "403,,429"])
def test_statuses_may_be_text_or_any_collection(given: Any) -> None:
    settings = ResumeSettings.from_settings({"RESUME_HEALTH_STATUSES": given}, {})
    assert settings.health_limits.statuses == {403, 429}


def test_they_come_from_the_environment_too() -> None:
    given = {"RESUME_HEALTH_STATUSES": "500", "RESUME_HEALTH_LEAST": "4", "RESUME_HEALTH": "no"}
    settings = ResumeSettings.from_settings({}, given)
    assert (settings.health_limits.statuses, settings.health_limits.least) == ({500}, 4)
    assert settings.health is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statuses", "99"), ("statuses", [1000]), ("statuses", "4xx"), ("statuses", 403),
        ("statuses", [True]), ("share", 0), ("share", 1.1), ("least", 1), ("empty_pages", -1),
        ("window", 0), ("wait", -1), ("wait_max", 29),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"RESUME_HEALTH_{name.upper()} is"):
        ResumeSettings.from_settings({f"RESUME_HEALTH_{name.upper()}": value}, {})
