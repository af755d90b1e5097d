"""One command with every process below it: bounded in time, looked into, nothing left behind.

Every process of a job is found by a mark in its environment, and not by its session or its process
group: MPICH's hydra gives each rank a session of its own. A job that takes too long shows its
`stacks`; then the whole job is ended, and what its ranks held in ``/dev/shm`` or left in
``$TMPDIR`` is removed.  Among that are the session directories of Open MPI, named after process
ids: the next mpiexec of that id would not start.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import END_GRACE_S, marked, outlives
from stacks import Stacks

from workpool.launch.mpiexec import Mpiexec, command_line, environment, find
from workpool.system.shared_memory import mpi_files, remove

TESTS = Path(__file__).resolve().parent

LEASH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Put before a job's command: the kernel ends the job when the tests themselves are killed."""


class JobError(AssertionError):
    """A job ended otherwise than it should."""


class HangError(JobError):
    """A job did not end in time; the message shows the stacks of its ranks."""


@dataclass(frozen=True)
class Result:
    """What came of a job that ended."""

    stdout: str
    stderr: str
    status: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"status {self.status} after {self.seconds:.1f} s"
            f"\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        )


class Job:
    """One command, in a session of its own, and every process that it starts.

    Parameters
    ----------
    command : sequence of str
        What to start.
    env : mapping
        Its environment.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="workpool-job-")
        self.place = Path(self._directory.name)
        self._stacks = Stacks(self.place / "hook")
        self._report = self.place / "report"
        self._report.touch()
        self._mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._mpi_files: set[str] = set()
        paths = [self._stacks.path, env.get("PYTHONPATH", ""), str(TESTS.parent)]
        variables = {
            **env,
            "TMPDIR": str(self.place),  # what killed processes leave behind goes with the job
            "WORKPOOL_TEST_JOB": self._mark,
            **self._stacks.variables,
            "WORKPOOL_TEST_REPORT": str(self._report),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        leash = [sys.executable, "-ISc", LEASH, str(os.getpid())]
        self._started = time.monotonic()
        with open(self.place / "stdout", "wb") as out, open(self.place / "stderr", "wb") as err:
            self._process = subprocess.Popen(
                [*leash, *command],
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=out,  # files, not pipes: nobody below can hold the harness up
                stderr=err,
                env=variables,
                start_new_session=True,
            )

    def status(self) -> int | None:
        """Return the exit status, or None while the job runs."""
        return self._process.poll()

    def result(self) -> Result:
        """Return what the job has written by now, and its status (-1 while it runs)."""
        status = self._process.poll()
        return Result(
            (self.place / "stdout").read_text(errors="replace"),
            (self.place / "stderr").read_text(errors="replace"),
            -1 if status is None else status,
            time.monotonic() - self._started,
        )

    def events(self) -> Generator[dict[str, Any], None, None]:
        """Yield each line of the job's report, and ``{}`` whenever there is none yet."""
        text = ""
        with self._report.open() as lines:
            while True:
                text += lines.readline()
                if text.endswith("\n"):
                    yield json.loads(text)
                    text = ""
                else:
                    yield {}

    def members(self) -> list[int]:
        """Return the ids of every live process of this job, mpiexec included."""
        return list(marked(self._mark))

    def stacks(self) -> str:
        """Return the stacks of every Python process of this job, as they are now."""
        return self._stacks.show(self.members())

    def orphans(self) -> list[str]:
        """Return the commands that outlive mpiexec by more than their grace."""
        return [f"{pid}: {command}" for pid, command in outlives(self._mark).items()]

    def note_mpi_files(self) -> None:
        """Note what the job has in shared memory now, where its processes may leave it."""
        self._mpi_files.update(path for pid in self.members() for path in mpi_files(pid))

    def close(self) -> None:
        """End every process of the job, and remove what it had in shared memory; idempotent."""
        if self.members():
            self.note_mpi_files()
            if self._process.poll() is None:
                self._process.terminate()  # mpiexec tidies up behind itself when it can
            give_up = time.monotonic() + END_GRACE_S
            while self.members() and time.monotonic() < give_up:
                time.sleep(0.02)
            give_up = time.monotonic() + END_GRACE_S
            while (left := self.members()) and time.monotonic() < give_up:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        self._process.wait()
        remove(self._mpi_files)
        self._directory.cleanup()


@functools.lru_cache(maxsize=1)
def launcher() -> Mpiexec:
    """Return the mpiexec of this environment; asking for it takes a moment."""
    return find()


def start_ranks(n: int, program: Sequence[str], more: Mapping[str, str] | None = None) -> Job:
    """Start `n` ranks of a Python program under mpiexec, with `more` environment variables."""
    found = launcher()
    command = command_line(found, n, [sys.executable, *program])
    return Job(command, environment(found.kind, {**os.environ, **(more or {})}))
