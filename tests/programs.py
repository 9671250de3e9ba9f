"""Server programs: found, else installed, else asked for in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


class ServiceMissing(Exception):
    """A server program is not installed and cannot be installed from here."""


def program(name: str, package: str) -> str:
    """The path of the program *name* of the Debian *package*. Raises ServiceMissing."""
    search = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin"
    found = shutil.which(name, path=search)
    if found is None:
        _install(package)
        found = shutil.which(name, path=search)
    if found is None:
        raise ServiceMissing(f"the tests need {name}; install it with: apt-get install {package}")
    return found


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServiceMissing(f"the tests need a server; install it with: apt-get install {package}")
    with tempfile.TemporaryDirectory() as directory:
        # Debian starts services when they are installed, unless this program says no.
        policy = Path(directory) / "policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        target = Path("/usr/sbin/policy-rc.d")
        ours = not target.exists()
        if ours:
            shutil.copy(policy, target)
        try:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["update", "-q"], ["install", "-y", "-q", package]):
                subprocess.run(["apt-get", *command], env=environment, capture_output=True)
        finally:
            if ours:
                target.unlink(missing_ok=True)
