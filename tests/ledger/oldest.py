"""``python -m tests.ledger.oldest`` makes an environment with the oldest Scrapy supported.

It lies in ``.cache/.venv-oldest``, is reused while what it holds stays the same, and
the path of its Python is printed.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRAPY = "scrapy==2.18.0"


def oldest_python() -> str:
    """The Python of that environment, which is made first if need be."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    with (cache / "oldest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return str(_made(cache / ".venv-oldest", _requirements()))


def _requirements() -> list[str]:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"].split()
    needed = [name for name in needed if not name.lower().startswith("scrapy>")]
    return [SCRAPY, *needed, "httpx"]  # httpx: its download handler without a reactor


def _made(venv: Path, requirements: list[str]) -> Path:
    python, stamp = venv / "bin" / "python", venv / "made"
    wanted = "\n".join([sys.version, *requirements])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    print(oldest_python())
