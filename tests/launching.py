"""Commands that start ranks, or are one, as ``jobs``: what they print, how they end, what is left.

    with run("-w", "2", "script.py") as started:     workpool run -w 2 script.py
        started.signal(signal.SIGINT, after="ready")
        ended = started.wait()

A command that takes too long, or that leaves a process behind, fails its test.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import textwrap
from pathlib import Path

from jobs import Ended, Job, start_ranks

#: Those that end a job in order.
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def run(*words: str, text: str = "", cwd: Path | None = None) -> Job:
    """Start ``workpool run`` with these words."""
    command = [sys.executable, "-m", "workpool.launch.cli", "run", *words]
    return Job(command, text=text, cwd=cwd)


def alone(place: Path, script: str, *args: str, status: int = 0) -> Ended:
    """Run a script in one process."""
    (place / "driver.py").write_text(textwrap.dedent(script))
    with Job([sys.executable, "driver.py", *args], cwd=place) as started:
        ended = started.wait()
    assert ended.status == status, ended
    return ended


def by_hand(*words: str, cwd: Path | None = None) -> Job:
    """Start ``mpiexec -n 3 python -m workpool`` with these words."""
    return start_ranks(3, ["-m", "workpool", *words], cwd=cwd)


def stored(path: Path) -> list[bytes]:
    """Return the keys of all results in a journal."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT keys FROM records").fetchall()
    connection.close()
    return [keys[at : at + 16] for (keys,) in rows for at in range(0, len(keys), 16)]
