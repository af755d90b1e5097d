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
from pathlib import Path
from typing import Any, NamedTuple

from processes import PATIENCE, marked, outlives
from stacks import Stacks

from workpool.launch.mpiexec import Mpiexec, command_line, environment, find
from workpool.system.shared_memory import mpi_files, remove

ROOT = Path(__file__).resolve().parent.parent

LIMIT_S = 40.0

LEASH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Put before a job's command: the kernel ends the job when the tests themselves are killed."""


class JobError(AssertionError):
    """A job ended otherwise than it should."""


class HangError(JobError):
    """A job did not end in time; the message shows the stacks of its ranks."""


class Ended(NamedTuple):
    """What came of a command."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"status {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Job:
    """One command, in a session of its own, and every process that it starts.

    Parameters
    ----------
    command : sequence of str
        What to start.
    env : mapping, optional
        Its environment; default: ours.
    text : str
        Its standard input.
    cwd : Path, optional
        Where it runs; default: `place`.
    lasting : bool
        Whether what it starts may outlive it by a moment, as it does an mpiexec by itself.

    Attributes
    ----------
    process : subprocess.Popen
    place : Path
        A directory of its own.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        text: str = "",
        cwd: Path | None = None,
        lasting: bool = False,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="workpool-job-")
        self.place = Path(self._directory.name)
        self._stacks = Stacks(self.place / "hook")
        self._report = self.place / "report"
        self._report.touch()
        self._mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._mpi_files: set[str] = set()
        self._lasting = lasting
        given = dict(os.environ if env is None else env)
        given.pop("PYTHONUNBUFFERED", None)  # it tears the lines of several ranks to pieces
        # A hook of the test's own comes before that of the stacks.
        paths = [str(ROOT), given.get("PYTHONPATH"), self._stacks.path]
        variables = {
            **given,
            "TMPDIR": str(self.place),  # what killed processes leave behind goes with the job
            "WORKPOOL_TEST_JOB": self._mark,
            **self._stacks.variables,
            "WORKPOOL_TEST_REPORT": str(self._report),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        (self.place / "in").write_text(text)
        with (
            open(self.place / "in", "rb") as stdin,
            open(self.place / "out", "wb") as out,  # no pipes: nobody below can hold us up
            open(self.place / "err", "wb") as err,
        ):
            self.process = subprocess.Popen(
                [sys.executable, "-ISc", LEASH, str(os.getpid()), *command],
                cwd=cwd or self.place,
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=variables,
                start_new_session=True,
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def status(self) -> int | None:
        """Return the exit status, or None while the job runs."""
        return self.process.poll()

    def result(self) -> Ended:
        """Return what the job has written by now, and its status (-1 while it runs)."""
        status = self.process.poll()  # before what it has written is read
        out, err = ((self.place / name).read_text(errors="replace") for name in ("out", "err"))
        return Ended(-1 if status is None else status, out, err)

    def wait(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end, and see that no process is left.

        Raises
        ------
        HangError
            Not ended in time; shows every rank's stacks.
        JobError
            Processes are left behind.
        """
        try:
            self.process.wait(limit_s * PATIENCE)
        except subprocess.TimeoutExpired:
            raise HangError(
                f"not ended within {limit_s * PATIENCE:g} s\n{self.stacks()}\n{self.result()}"
            ) from None
        if left := self.orphans():
            raise JobError(f"left behind: {left}, after {self.result()}")
        return self.result()

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it has written `text` so many times."""
        give_up = time.monotonic() + LIMIT_S * PATIENCE
        while True:
            over = self.process.poll() is not None  # before what it has written is read
            written = self.result()
            if (written.out + written.err).count(text) >= times:
                return
            assert not over, f"ended: {written}"
            assert time.monotonic() < give_up, f"{text!r} does not come: {written}\n{self.stacks()}"
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

    def gone_within(self, limit_s: float) -> None:
        """Wait until every process of the job has gone."""
        give_up = time.monotonic() + limit_s * PATIENCE
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

    def members(self) -> dict[int, str]:
        """Note what its processes have in shared memory; return their command lines, by id."""
        found = marked(self._mark)
        self._mpi_files.update(path for pid in found for path in mpi_files(pid))
        return found

    def stacks(self) -> str:
        """Return the stacks of every Python process of this job, as they are now."""
        return self._stacks.show(self.members())

    def orphans(self) -> dict[int, str]:
        """Return what outlives the command, if it is lasting by more than its grace."""
        return outlives(self._mark) if self._lasting else self.members()

    def close(self) -> None:
        """End every process of the job, and remove what it had in shared memory; idempotent."""
        while left := self.members():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()
        remove(self._mpi_files)
        self._directory.cleanup()


@functools.lru_cache(maxsize=1)
def launcher() -> Mpiexec:
    """Return the mpiexec of this environment; asking for it takes a moment."""
    return find()


def start_ranks(
    n: int,
    program: Sequence[str],
    more: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Job:
    """Start `n` ranks of a Python program under mpiexec, with `more` environment variables."""
    found = launcher()
    command = command_line(found, n, [sys.executable, *program])
    variables = environment(found.kind, {**os.environ, **(more or {})})
    return Job(command, variables, cwd=cwd, lasting=True)
