"""The driver's steps with so few frames left of the stack, at every depth.

Who calls us deep in a recursion gets a RecursionError; tasks that were submitted before must not be
lost with it, nor run twice.  What a cut step had in the arena may stay there.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from stepped import Stepped, outcomes

from workpool.tasks import Task
from workpool.testing import MemoryWindow

#: Frames that are left: the deepest step takes some 30.
LEFT = range(2, 40)

#: Frames that the window in memory may take; MPI takes none.
WINDOW_FRAMES = 100

TASKS = 10

PAYLOADS = {"in a row": bytes(200), "apart": np.ones(5000)}

ran: Counter[int] = Counter()


def note(number: int, numbers: Any, payload: Any) -> Any:
    """Count this run, and add it to an accumulator."""
    ran[number] += 1
    numbers.add(1)
    return payload


@pytest.fixture(autouse=True)
def lend_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the window in memory take nothing of the stack, as MPI does not."""
    for name, verb in vars(MemoryWindow).items():
        if callable(verb) and not name.startswith("_"):
            monkeypatch.setattr(MemoryWindow, name, with_more(verb))


def with_more(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has more of the stack."""

    def call(*args: Any, **kwargs: Any) -> Any:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + WINDOW_FRAMES)
        try:
            return verb(*args, **kwargs)
        finally:
            sys.setrecursionlimit(limit)

    return call


def nest(frames: int, act: Callable[[], object]) -> None:
    """Do something below so many frames of ours."""
    if frames > 0:
        nest(frames - 1, act)
    else:
        act()


def is_cut(left: int, act: Callable[[], object]) -> bool:
    """Do something with so many frames left; return whether these were too few.

    Nothing is collected there: what another test has left might find too few frames for its end.
    """
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    gc.disable()
    try:
        nest(sys.getrecursionlimit() - depth - left, act)
    except RecursionError:
        return True
    finally:
        gc.enable()
    return False


class Case:
    """A job whose function is known to be short, so that its tasks share rows."""

    def __init__(self, job: Stepped, payload: str) -> None:
        self.job = job
        self.numbers = job.accumulator()
        self.code = job.code(note)
        self.payload = PAYLOADS[payload]
        job.submit(note, -1, self.numbers, self.payload, code=self.code)
        job.go(3)
        shared = job.driver._store.code(self.code)
        shared.measured(1, [20_000] * 1000)
        self.held_nbytes = self.held()
        ran.clear()

    def held(self) -> int:
        """Return how many bytes of the driver's arena are in use when nothing waits."""
        self.job.driver._collector.retire()
        return self.job.driver._store.busy_nbytes

    def task(self, number: int) -> Task:
        """Return a task that is not submitted."""
        return self.job.task(note, number, self.numbers, self.payload, code=self.code)

    def alone(self, alone: bool) -> None:
        """Have the next task published by itself, or with those that wait."""
        driver = self.job.driver
        driver._dispatcher._again_s = 0.0
        driver._advanced_s = float("inf") if alone else 0.0

    def check(self, tasks: list[Task]) -> None:
        """Check that each of some tasks has run, ended and counted once."""
        self.alone(False)
        for _ in range(2):  # rows that are lost are looked for now and then
            self.job.driver._dispatcher._recover_s = 0.0
            self.job.go(40)
        wrong = [found for found in outcomes(tasks) if isinstance(found, BaseException)]
        assert not wrong
        assert set(ran.values()) <= {1}, f"runs: {ran}"
        assert len(ran) == len(tasks)
        assert self.numbers.value() == self.job.ended == 1 + len(tasks)
        assert self.held() == self.held_nbytes


@pytest.fixture
def carries() -> bool:
    """Return whether outcomes carry what they contribute."""
    return False


@pytest.fixture
def job(carries: bool) -> Iterator[Stepped]:
    """Return a job."""
    job = Stepped(carries=carries)
    yield job
    job.leave()


sweep = pytest.mark.parametrize("left", LEFT)
payloads = pytest.mark.parametrize("payload", PAYLOADS)


@pytest.mark.parametrize("carries", [False, True])
@payloads
@sweep
def test_what_is_collected_is_not_lost(job: Stepped, payload: str, left: int) -> None:
    case = Case(job, payload)
    tasks = [case.task(number) for number in range(TASKS)]
    for task in tasks:
        job.driver.submit(task, case.code)
    job.driver.progress()
    for _ in range(2):
        for _ in range(4):
            job.work()
        is_cut(left, job.driver.progress)
    case.check(tasks)


@payloads
@sweep
def test_what_is_published_is_not_lost(job: Stepped, payload: str, left: int) -> None:
    case = Case(job, payload)
    tasks = [case.task(number) for number in range(TASKS)]
    job.driver._dispatcher._again_s = float("inf")  # they wait for each other
    for task in tasks:
        job.driver.submit(task, case.code)
    for _ in range(2):
        is_cut(left, job.driver.progress)
    case.check(tasks)


@payloads
@sweep
def test_what_was_submitted_before_is_not_lost(job: Stepped, payload: str, left: int) -> None:
    case = Case(job, payload)
    tasks = []
    for number in range(TASKS):
        task = case.task(number)
        case.alone(not number % 2)
        cut = is_cut(left, lambda task=task: job.driver.submit(task, case.code))  # type: ignore[misc]
        # Who submits one in vain withdraws it: he has no future of it.
        if not (cut and (job.driver.cancel(task) or job.driver.kill(task))):
            tasks.append(task)
    case.check(tasks)


def test_some_depths_are_too_little_and_some_enough(job: Stepped) -> None:
    case = Case(job, "in a row")
    job.driver.submit(case.task(0), case.code)
    cuts = [is_cut(left, job.driver.progress) for left in (LEFT.start, LEFT.stop)]
    assert cuts == [True, False]
