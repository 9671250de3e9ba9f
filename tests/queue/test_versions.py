"""The queue's own tests with the other redis-py versions that people have.

They differ in their time limits, in what they repeat by themselves, and in how a
subscription waits. Each is installed once into ``.cache`` and put before the installed one.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ("test_wakeups.py", "test_redisclient.py", "test_shardqueue.py")


@pytest.mark.parametrize("version", ["5.0.8", pytest.param("6.4.0", marks=pytest.mark.stress)])
def test_red_9_with_other_versions_of_redis_py(version: str) -> None:
    path = f"{_installed(version)}{os.pathsep}{ROOT}"
    env = {**os.environ, "PYTHONPATH": path}
    asked = [sys.executable, "-c", "import redis; print(redis.__version__)"]
    assert subprocess.check_output(asked, env=env, text=True).strip() == version
    tests = [f"tests/queue/{name}" for name in TESTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


def _installed(version: str) -> Path:
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    home = cache / f"redis-{version}"
    with (cache / "redis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "made").exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
            wanted = ["--disable-pip-version-check", "--target", str(home), f"redis=={version}"]
            subprocess.run([*pip, *wanted], check=True, stdout=sys.stderr)
            (home / "made").touch()
    return home
