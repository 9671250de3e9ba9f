"""Unit tests: no server, no network, and no settings from the developer's environment."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import settings

# Times on a busy machine say nothing about a property.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RESUME_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks an address up, or connects, fails."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("an address was looked up")

    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
