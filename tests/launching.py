"""Commands that start ranks, looked at from outside: what they print, how they end, what is left.

    with run("-w", "2", "script.py") as started:     workpool run -w 2 script.py
        started.signal(signal.SIGINT, after="ready")
        ended = started.wait()

A command that takes too long, or that leaves a process behind, fails its test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from processes import PATIENCE, marked, outlives
from stacks import Stacks

from workpool.launch import mpiexec
from workpool.system.shared_memory import mpi_files, remove

ROOT = Path(__file__).resolve().parent.parent

LIMIT_S = 40.0

#: Those that end a job in order.
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Ended(NamedTuple):
    """What came of a command."""

    status: int
    out: str
    err: str


class Started:
    """A command under way, in a session of its own."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        place: Path,
        mark: str,
        stacks: Stacks,
        lasting: bool,
    ) -> None:
        self.process = process
        self.place = place
        self._stacks = stacks
        self.mpi_files: set[str] = set()  #: what its processes had in shared memory when last seen
        self._mark = mark
        self._lasting = lasting

    def wait(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end, and see that no process is left."""
        try:
            status = self.process.wait(limit_s * PATIENCE)
        except subprocess.TimeoutExpired:
            stacks = self._stacks.show(self.members())
            raise AssertionError(f"not ended in time: {self._ended(-1)}\n{stacks}") from None
        left = outlives(self._mark) if self._lasting else self.members()
        assert not left, f"left behind: {left}, after {self._ended(status)}"
        return self._ended(status)

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it has written `text` so many times."""
        give_up = time.monotonic() + LIMIT_S * PATIENCE
        while True:
            over = self.process.poll() is not None  # before what it has written is read
            written = self._ended(-1)
            if (written.out + written.err).count(text) >= times:
                return
            assert not over, f"ended: {written}"
            if time.monotonic() > give_up:
                stacks = self._stacks.show(self.members())
                raise AssertionError(f"{text!r} does not come: {written}\n{stacks}")
            time.sleep(0.02)

    def signal(self, signum: int, *, after: str = "", group: bool = False) -> None:
        """Send a signal to the command, or to its process group as a terminal does.

        It is sent when the command has written the text `after`.
        """
        self.until(after)
        (os.killpg if group else os.kill)(self.process.pid, signum)

    def stop(self, seconds: float) -> None:
        """Stop all of its processes for so long; the command goes on first, then the driver."""
        first = [self.process.pid, *self.ranks()[:1]]
        pids = [*first, *(self.members().keys() - set(first))]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # Open MPI's mpiexec hands it on
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.1)

    def members(self) -> dict[int, str]:
        """Note what its processes have in shared memory; return their command lines, by id."""
        found = marked(self._mark)
        self.mpi_files.update(path for pid in found for path in mpi_files(pid))
        return found

    def gone_within(self, limit_s: float) -> None:
        """Wait until every process of the job has gone."""
        give_up = time.monotonic() + limit_s
        while (left := self.members()) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert not left

    def ranks(self) -> list[int]:
        """Return the process ids of the ranks, rank 0 first."""
        found = {}
        for pid, line in self.members().items():
            if "supervisor.py" in line:
                continue  # the parent of a rank, whose environment it shares
            with contextlib.suppress(OSError):
                for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    name, _, value = word.partition(b"=")
                    if name in (b"PMI_RANK", b"OMPI_COMM_WORLD_RANK"):
                        found[int(value)] = pid
        return [found[rank] for rank in sorted(found)]

    def _ended(self, status: int) -> Ended:
        out, err = ((self.place / name).read_text(errors="replace") for name in ("out", "err"))
        return Ended(status, out, err)


@contextlib.contextmanager
def job(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    text: str = "",
    cwd: Path | None = None,
    lasting: bool = False,
) -> Iterator[Started]:
    """Start a command with `text` as its standard input, and end it with everything it started.

    What it has started may outlive it by a moment if it is `lasting`, as an mpiexec by itself is.
    """
    mark = uuid.uuid4().hex
    given = dict(os.environ if environment is None else environment)
    given.pop("PYTHONUNBUFFERED", None)  # it tears the lines of several ranks to pieces
    given["WORKPOOL_TEST_JOB"] = mark
    with tempfile.TemporaryDirectory(prefix="workpool-test-") as name:
        place = Path(name)
        stacks = Stacks(place / "hook")
        given |= stacks.variables
        paths = [str(ROOT), given.get("PYTHONPATH"), stacks.path]  # after a hook of the test's
        given["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        given["TMPDIR"] = name  # what a killed launcher leaves goes with it
        (place / "in").write_text(text)
        with (
            open(place / "in", "rb") as stdin,
            open(place / "out", "wb") as out,
            open(place / "err", "wb") as err,
        ):
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=cwd or place,
                env=given,
                start_new_session=True,
            )
        started = Started(process, place, mark, stacks, lasting)
        try:
            yield started
        finally:
            while left := started.members():
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.poll()
                time.sleep(0.02)
            process.wait()
            remove(started.mpi_files)


def run(
    *words: str, text: str = "", cwd: Path | None = None
) -> contextlib.AbstractContextManager[Started]:
    """Start ``workpool run`` with these words."""
    return job([sys.executable, "-m", "workpool.launch.cli", "run", *words], text=text, cwd=cwd)


def alone(place: Path, script: str, *args: str, status: int = 0) -> Ended:
    """Run a script in one process."""
    (place / "driver.py").write_text(textwrap.dedent(script))
    with job([sys.executable, "driver.py", *args], cwd=place) as started:
        ended = started.wait()
    assert ended.status == status, ended
    return ended


def by_hand(*words: str, cwd: Path | None = None) -> contextlib.AbstractContextManager[Started]:
    """Start ``mpiexec -n 3 python -m workpool`` with these words."""
    found = mpiexec.find()
    command = mpiexec.command_line(found, 3, [sys.executable, "-m", "workpool", *words])
    return job(command, mpiexec.environment(found.kind, os.environ), cwd=cwd, lasting=True)


def stored(path: Path) -> list[bytes]:
    """Return the keys of all results in a journal."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT keys FROM records").fetchall()
    connection.close()
    return [keys[at : at + 16] for (keys,) in rows for at in range(0, len(keys), 16)]
