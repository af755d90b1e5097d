"""Run the cases of one script on one executor, and report each as it starts and as it ends.

A case script holds functions named ``case_...`` and ends with ``sys.exit(main(globals()))``.
It is started as a script, so that its tasks, classes and exceptions belong to ``__main__`` and
cross to the workers by value, as a user's do. More cases may stand in modules next to it, named
after it (``contract_map`` for ``contract``); they import what their tasks run from ``__main__``::

    mpiexec -n 5 python -m workpool contract.py --workers 4 --cases case_one,case_two
    python contract.py --executor threads

A case asks for what it needs by the names of its parameters:

``pool``
    An open pool, shared by the cases of one start; a case must leave it idle.
``make``
    ``make(**options)`` opens a pool of the case's own, closed when the case ends.
``gate``
    A :class:`Gate`, which tasks wait at until the case opens it.
``tmp``
    An empty directory that every rank can see.
``workers``
    How many tasks can run at the same time.

The report is one JSON object to a line, written at once to the file that ``WORKPOOL_TEST_REPORT``
names, else to stdout: the last case that started and has not ended is the one that hangs, or that
took the job down.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

__all__ = [
    "END_OF_JOB",
    "LIMIT_S",
    "PATIENCE_S",
    "SHARED",
    "STDLIB_MAP",
    "Gate",
    "Skip",
    "drain",
    "hold",
    "limit",
    "main",
    "needs",
    "only",
    "raises",
    "twice",
    "until",
]

SHARED = "threads share their objects"
STDLIB_MAP = "ThreadPoolExecutor.map ignores it before Python 3.14"
"""Why a case says nothing about threads."""

END_OF_JOB = "end_of_job"
"""What the report calls the time after the last case, when the script has only to return."""

LIMIT_S = 30.0
"""How long a case may take, when it does not say otherwise."""

PATIENCE_S = 10.0
"""How long a case waits for something that must come."""

Case = Callable[..., None]


class Skip(Exception):
    """Raised by a case that does not apply here; its argument says why."""


def only(executor: str, why: str) -> Callable[[Case], Case]:
    """Mark a case that applies to one executor: ``workpool`` or ``threads``."""

    def mark(case: Case) -> Case:
        case.only = (executor, why)  # type: ignore[attr-defined]
        return case

    return mark


def needs(workers: int) -> Callable[[Case], Case]:
    """Mark a case that means something only when so many tasks can run at the same time."""

    def mark(case: Case) -> Case:
        case.needs = workers  # type: ignore[attr-defined]
        return case

    return mark


def limit(seconds: float) -> Callable[[Case], Case]:
    """Give a case its own limit."""

    def mark(case: Case) -> Case:
        case.limit_s = seconds  # type: ignore[attr-defined]
        return case

    return mark


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until `condition` holds; AssertionError naming `what` when it does not in time."""
    give_up = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"waited {patience_s:g} s in vain for: {what}")
        time.sleep(0.002)


@contextmanager
def raises(*kinds: type[BaseException]) -> Iterator[list[BaseException]]:
    """Expect one of `kinds`; the list given holds the exception afterwards."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    else:
        raise AssertionError(f"nothing raised, expected {' or '.join(k.__name__ for k in kinds)}")


def drain(iterator: Iterator[Any], given: list[Any]) -> None:
    """Append to `given` until `iterator` ends or raises; list() would lose what came before."""
    for value in iterator:
        given.append(value)  # extend() need not keep what came before an error


def twice(number: float) -> float:
    """Stand for a function of a module next to the script, which crosses by reference."""
    return 2 * number


class Gate:
    """A directory that tasks write their names into, and wait at until it is open: `hold`."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = str(place)

    def entered(self) -> set[str]:
        """Return the names of the tasks that came to the gate."""
        return {name for name in os.listdir(self.place) if name != "open"}

    def wait_for(self, number: int) -> None:
        """Wait until so many tasks stand at the gate."""
        until(lambda: len(self.entered()) >= number, f"{number} tasks at the gate")

    def open(self) -> None:
        """Let everybody through, now and later."""
        Path(self.place, "open").touch()


def hold(place: str, name: object = "one", value: Any = None) -> Any:
    """Write `name` at a gate, as a task, wait there until it is open, and return `value`."""
    with suppress(FileNotFoundError):
        Path(place, str(name)).touch()

    def is_open() -> bool:
        return not os.path.isdir(place) or os.path.exists(os.path.join(place, "open"))

    until(is_open, f"{place} to open", 2 * PATIENCE_S)
    return value


class CaseRunner:
    """What the cases of one start have in common: the pool they share, and how to make others."""

    def __init__(self, executor: str, workers: int) -> None:
        self.executor = executor
        self.workers = workers
        self.shared: Executor | None = None

    def make(self, **options: Any) -> Executor:
        """Open a pool; ThreadPoolExecutor is given as many threads as there would be workers."""
        if self.executor == "threads":
            return ThreadPoolExecutor(**{"max_workers": self.workers, **options})
        from workpool import WorkPool

        return WorkPool(**options)

    def pool(self) -> Executor:
        """Return the shared pool, opened when it is first asked for."""
        if self.shared is None:
            self.shared = self.make()
        return self.shared

    def close(self) -> None:
        """Close the shared pool; the next case that asks for one gets a new one."""
        if self.shared is not None:
            shared, self.shared = self.shared, None
            shared.shutdown(cancel_futures=True)

    def refuse(self, case: Case) -> None:
        """Raise Skip when `case` does not apply here."""
        executor, why = getattr(case, "only", (self.executor, ""))
        if executor != self.executor:
            raise Skip(why)
        needed = getattr(case, "needs", 0)
        if needed > self.workers:
            raise Skip(f"needs {needed} workers, here are {self.workers}")

    def run(self, case: Case) -> None:
        """Run one case, with what its parameters ask for; every gate is open afterwards."""
        self.refuse(case)
        with ExitStack() as stack:
            tmp = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="case-")))
            gate = Gate(tmp / "gate")

            def make(**options: Any) -> Executor:
                pool = self.make(**options)
                stack.callback(pool.shutdown, cancel_futures=True)
                stack.callback(gate.open)
                return pool

            stack.callback(gate.open)
            offered: Mapping[str, Callable[[], object]] = {
                "pool": self.pool,
                "make": lambda: make,
                "gate": lambda: gate,
                "tmp": lambda: tmp,
                "workers": lambda: self.workers,
            }
            case(*(offered[name]() for name in inspect.signature(case).parameters))


def outcome_of(runner: CaseRunner, case: Case) -> tuple[str, str]:
    """Run `case`; return ``passed``, ``failed`` or ``skipped``, and the text that goes with it."""
    try:
        runner.run(case)
    except Skip as reason:
        return "skipped", str(reason)
    except BaseException:  # a case that lets SystemExit out has failed
        text = traceback.format_exc()
        try:
            runner.close()  # what the case has left in the shared pool must not meet the next one
        except BaseException:
            text += "\nand then, closing the shared pool:\n" + traceback.format_exc()
        return "failed", text
    return "passed", ""


def modules_of(script: Path) -> list[Path]:
    """Return the modules with more cases of a script."""
    return sorted(script.parent.glob(f"{script.stem}_*.py"))


def main(namespace: Mapping[str, Any]) -> int:
    """Run the cases of a script's `namespace` that the command line names; all when it names none.

    Returns
    -------
    int
        0, also when cases failed: what they did stands in the report.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--executor", choices=("workpool", "threads"), default="workpool")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cases", help="names with commas between; every case by default")
    options = parser.parse_args()
    cases = {name: case for name, case in namespace.items() if name.startswith("case_")}
    for module in modules_of(Path(namespace["__file__"])):
        found = vars(importlib.import_module(module.stem))
        cases.update((name, case) for name, case in found.items() if name.startswith("case_"))
    every = list(cases)
    names = every if options.cases is None else list(filter(None, options.cases.split(",")))
    runner = CaseRunner(options.executor, options.workers)
    with open(os.environ.get("WORKPOOL_TEST_REPORT", "/dev/stdout"), "a") as report:
        for name in names:
            case = cases[name]
            tell(report, case=name, limit_s=getattr(case, "limit_s", LIMIT_S))
            outcome, text = outcome_of(runner, case)
            tell(report, case=name, outcome=outcome, text=text)
        tell(report, case=END_OF_JOB, limit_s=LIMIT_S)
    runner.close()
    sys.stdout.flush()
    return 0


def tell(report: TextIO, **event: object) -> None:
    """Write one event, through to the file."""
    report.write(json.dumps(event) + "\n")
    report.flush()
