"""Unit tests: no server, no network, and no settings from the developer's environment."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Times on a busy machine say nothing about a property.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RESUME_")]:
        monkeypatch.delenv(name)
