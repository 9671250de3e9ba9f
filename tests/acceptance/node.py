"""A scrapyd of the tests' own: one machine to which eggs are deployed and jobs are given.

It is asked by the same JSON calls as in the field. Its jobs are its child processes; those
that outlive it are ended by :meth:`Node.discard`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.acceptance.crawl import Crawl, wait_until
from tests.services import Service

PROJECT = "example_project"
_CONFIG = "[scrapyd]\nhttp_port = {}\npoll_interval = 0.1\nmax_proc = 4\n"


class Node(Service):
    """One scrapyd; *env* is what its jobs find in their environment."""

    name = "scrapyd"

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        super().__init__(home)
        self.resume_home = home / "resume"
        self._env = {**_own_environment(), **env, "RESUME_HOME": str(self.resume_home)}
        self._pids: set[int] = set()
        (home / "scrapyd.conf").write_text(_CONFIG.format(self.port))

    def command(self) -> list[str]:
        given = [f"{name}={value}" for name, value in self._env.items()]
        return ["env", "--ignore-environment", *given, sys.executable, "-m", "scrapyd"]

    def answers(self) -> bool:
        with suppress(OSError):
            return self.call("daemonstatus.json")["status"] == "ok"
        return False

    def discard(self) -> None:
        super().discard()
        for pid in self._pids:
            if is_job(pid, self.home):
                os.kill(pid, signal.SIGKILL)

    def call(self, what: str, **given: object) -> dict[str, Any]:
        """Ask *what* of the JSON API, by POST if anything is *given*."""
        data = urllib.parse.urlencode(given, doseq=True).encode() if given else None
        with urllib.request.urlopen(f"{self.url}{what}", data, timeout=30) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/"

    def deploy(self, project: Path) -> None:
        """What a user does: ``scrapyd-deploy`` in a copy of the project."""
        config = f"[settings]\ndefault = {PROJECT}.settings\n[deploy]\nurl = {self.url}\n"
        (project / "scrapy.cfg").write_text(f"{config}project = {PROJECT}\nversion = r1\n")
        script = Path(sysconfig.get_path("scripts"), "scrapyd-deploy")
        done = subprocess.run(
            [sys.executable, str(script)], cwd=project, env=_own_environment(),
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0 and '"status": "ok"' in done.stdout, done.stdout + done.stderr

    @property
    def egg(self) -> Path:
        """The egg that was deployed."""
        return self.home / "eggs" / PROJECT / "r1.egg"

    def take_egg(self, egg: Path) -> None:
        """Hold the same egg as another node, as shared storage does it."""
        self.egg.parent.mkdir(parents=True)
        shutil.copy(egg, self.egg)

    def schedule(self, spider: str, job: str, **given: str) -> None:
        """Schedule *spider* with these arguments as the job *job*."""
        self.call("schedule.json", project=PROJECT, spider=spider, jobid=job, **given)

    def pid(self, job: str) -> int:
        """The process of *job*, once it runs."""
        wait_until(lambda: self._running(job), 40, 0.1)
        pid: int = self._running(job)["pid"]
        self._pids.add(pid)
        return pid

    def cancel(self, job: str) -> None:
        """One polite signal, as ``cancel.json`` sends it."""
        self.call("cancel.json", project=PROJECT, job=job)

    def wait_for_end(self, job: str) -> None:
        """Wait until scrapyd says that *job* is over."""
        wait_until(lambda: any(one["id"] == job for one in self._jobs["finished"]), 40, 0.1)

    def log_of(self, job: str, spider: str = "blocks") -> Crawl:
        """What *job* logged."""
        return Crawl(None, self.home / "logs" / PROJECT / spider / f"{job}.log")  # type: ignore[arg-type]

    def _running(self, job: str) -> dict[str, Any]:
        return next((one for one in self._jobs["running"] if one["id"] == job), {})

    @property
    def _jobs(self) -> dict[str, Any]:
        return self.call(f"listjobs.json?project={PROJECT}")


def _own_environment() -> dict[str, str]:
    """Nothing of this checkout on the path: a job takes its project from its egg."""
    dropped = ("RESUME_", "SCRAPY", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def is_job(pid: int, home: Path) -> bool:
    """Does the process *pid* run, and as a job of the node at *home*?"""
    with suppress(OSError):
        return str(home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
