"""MPI runs as subprocesses: bounded in time, with every rank's stacks when they hang, no orphans.

    result = run_ranks(3, "from workpool import WorkPool ...")      one script, one mpiexec
    batch = Batch("contract", names, workers=2)                     many cases, one mpiexec
    batch.outcome("case_submit")                                    what became of one of them

``jobs`` says how the processes of a job are found, and how they are ended.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import textwrap
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jobs import ROOT, Job, JobError, start_ranks
from processes import PATIENCE

CASES = ROOT / "tests" / "cases"
END_OF_JOB = "end_of_job"

START_LIMIT_S = 30.0
"""How long mpiexec and the imports may take before the first case starts."""

HANGS_BORNE = 3
"""After so many hangs in one batch its other cases fail at once."""


class Result(NamedTuple):
    """What came of a job that ended."""

    stdout: str
    stderr: str
    status: int
    seconds: float


def run_ranks(
    n: int,
    script: str | Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    expect_status: int | None = 0,
    spmd: bool = False,
    module: str = "workpool",
) -> Result:
    """Run `script` under mpiexec and wait for its end.

    Parameters
    ----------
    n : int
        Number of ranks: one driver, `n` - 1 workers.
    script : str or Path
        The driver: a file, or its text.
    *args : str
        Its arguments.
    env : mapping, optional
        More environment variables.
    timeout : float
        Limit in seconds.
    expect_status : int, optional
        The exit status that is right; None takes any.
    spmd : bool
        Start the script itself on every rank, without ``-m``.
    module : str
        What runs it otherwise.

    Returns
    -------
    Result
        Output and status.

    Raises
    ------
    HangError
        Not ended in time; shows every rank's stacks.
    JobError
        Another status than expected, or processes left behind.
    """
    with tempfile.TemporaryDirectory(prefix="workpool-script-") as place:
        if isinstance(script, str):
            driver = Path(place, "driver.py")
            driver.write_text(textwrap.dedent(script))
        else:
            driver = script
        program = [*([] if spmd else ["-m", module]), str(driver), *args]
        begun = time.monotonic()
        with start_ranks(n, program, env) as job:
            ended = job.wait(timeout)
    if expect_status is not None and ended.status != expect_status:
        raise JobError(f"expected status {expect_status}, got {ended}")
    return Result(ended.out, ended.err, ended.status, time.monotonic() - begun)


# Many cases in one job.


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``passed``, ``failed`` or ``skipped``, and why."""

    outcome: str
    text: str = ""


def case_names(module: str) -> list[str]:
    """Return the cases of a script under ``tests/cases`` and of its modules, without running it."""
    script = CASES / f"{module}.py"
    files = [script, *sorted(CASES.glob(f"{module}_*.py"))]
    return [
        node.name
        for file in files
        for node in ast.parse(file.read_bytes()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


class Batch:
    """The cases of one script, run by one job; each outcome is there as soon as its case ended.

    A case that hangs, or that takes the job down, fails by its own name; the cases after it run in
    a new job.

    Parameters
    ----------
    module : str
        Name of the script under ``tests/cases``.
    names : sequence of str
        The cases to run, in this order, and ``end_of_job``.
    workers : int, optional
        Number of worker ranks; 0 for one rank alone. None runs the cases on the standard library's
        ThreadPoolExecutor, without MPI.
    """

    def __init__(self, module: str, names: Sequence[str], workers: int | None = None) -> None:
        self.module = module
        self.workers = workers
        self._waiting = [name for name in names if name != END_OF_JOB]
        self._outcomes: dict[str, Outcome] = {}
        self._job: Job | None = None
        self._events: Generator[dict[str, Any], None, None]  # of the job
        self._running: str | None = None
        self._give_up = 0.0
        self._hangs = 0

    def outcome(self, name: str) -> Outcome:
        """Wait for a case to end, and return what became of it."""
        while name not in self._outcomes:
            if self._hangs >= HANGS_BORNE:
                return Outcome("failed", f"not run: {self._hangs} cases of this batch have hung")
            if self._job is None:
                self._start()
            self._follow()
            time.sleep(0.005)
        return self._outcomes[name]

    def check(self, name: str) -> None:
        """Wait for a case to end, and skip or fail the present test as it did."""
        case = self.outcome(name)
        if case.outcome == "skipped":
            pytest.skip(case.text)
        if case.outcome == "failed":
            pytest.fail(case.text, pytrace=False)

    def close(self) -> None:
        """End the job."""
        if self._job is not None:
            self._events.close()
            self._job.close()
            self._job = None

    def _start(self) -> None:
        program = [str(CASES / f"{self.module}.py"), "--workers", str(self.workers or 1)]
        program += ["--cases", ",".join(self._waiting)]
        if self.workers is None:
            self._job = Job([sys.executable, *program, "--executor", "threads"])
        else:
            self._job = start_ranks(self.workers + 1, ["-m", "workpool", *program])
        self._events = self._job.events()
        self._running = None
        self._give_up = time.monotonic() + START_LIMIT_S * PATIENCE

    def _follow(self) -> None:
        """Take in what the job has reported; settle the running case when the job is over."""
        assert self._job is not None
        ended = self._job.status()  # before the report is read: it is complete if this is not None
        for event in iter(lambda: next(self._events), {}):
            name = event["case"]
            if "outcome" in event:
                self._settle(name, event["outcome"], event["text"])
            else:
                if self._running is None:
                    self._job.members()  # notes their files: a case may end them
                self._running = name
                self._give_up = time.monotonic() + event["limit_s"] * PATIENCE
        name = self._running or (self._waiting[0] if self._waiting else END_OF_JOB)
        if ended is not None:
            result, orphans = self._job.result(), self._job.orphans()
            well = self._running == END_OF_JOB and not self._waiting and ended == 0 and not orphans
            text = "" if well else f"the job ended in here: {result}\nleft behind: {orphans}"
            self._settle(name, "passed" if well else "failed", text)
            self.close()
        elif time.monotonic() > self._give_up:
            stacks = self._job.stacks()
            self._hangs += 1
            self._settle(name, "failed", f"hangs\n{stacks}\n{self._job.result()}")
            self.close()

    def _settle(self, name: str, outcome: str, text: str) -> None:
        self._outcomes[name] = Outcome(outcome, text)
        if name in self._waiting:
            self._waiting.remove(name)
