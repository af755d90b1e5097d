"""Retries and the journal, in every interleaving: a run goes on where the last one was cut off.

A driver publishes tasks, has those run again that fail or lose their worker, writes each result
down and then tells it.  It may die at any point, with workers or without; the next run has a table
of its own, and knows nothing but what is written down.  (What a dead process has begun to write is
written, or never will be: it held the lock of the file.)  What holds in every state: nobody is told
a result that is not written down, and nothing is written down twice.  At the end every task is
told, with its result or that there is none, and none was tried more often than it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from model import GREEDY, Port, find_one, geometry
from model.places import OVER, Choose

from workpool import layout
from workpool.extents import Extent
from workpool.layout import NO_BLOB, Descriptor, Geometry
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Publisher, Row
from workpool.serializer import Kind
from workpool.testing import Explorer, Found, Memory, MemoryWindow

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

VALUE, FAILURE = int(Kind.VALUE), int(Kind.EXCEPTION)
MOST_CRASHES = 2  # a task that has lost so many workers is not tried again


@dataclass
class Places:
    """Where things are: a table for each run, then what outlives it, then who is dead."""

    rows: int
    runs: int
    workers: int
    tasks: int

    @property
    def shape(self) -> Geometry:
        return geometry(self.rows, 1 + self.workers)

    def table(self, run: int) -> int:
        return run * self.shape.nbytes

    def journal(self, task: int) -> int:
        return self.table(self.runs) + 8 * task

    def death_word_of_driver(self, run: int) -> int:
        return self.journal(self.tasks) + 8 * run

    def death_word_of_worker(self, member: int) -> int:
        return self.death_word_of_driver(self.runs) + 8 * member

    @property
    def nbytes(self) -> int:
        return self.death_word_of_worker(self.workers + 1)


class Table(Port):
    """The window of one run, which is a part of the whole memory."""

    def __init__(self, base: int) -> None:
        super().__init__(range(0))
        self.base = base

    def put(self, disp: int, buffer: Any) -> None:
        self.window.put(self.base + disp, buffer)

    def get(self, disp: int, buffer: Any) -> None:
        self.window.get(self.base + disp, buffer)

    def await_change(self, seen: list[int], *disps: int, seconds: float) -> list[int]:
        return self.peek(*disps)

    def copy(self, disp: int, nbytes: int) -> memoryview:
        return self.window.copy(self.base + disp, nbytes)

    def load(self, disp: int) -> int:
        return self.window.load(self.base + disp)

    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int:
        return self.window.compare_and_swap(self.base + disp, expected, desired)

    def compare_and_swap_all(self, steps: Any) -> list[int]:
        return self.window.compare_and_swap_all([(self.base + d, a, b) for d, a, b in steps])

    def put_and_swap(self, disp: int, buffer: Any, steps: Any) -> list[int]:
        moved = [(self.base + d, a, b) for d, a, b in steps]
        return self.window.put_and_swap(self.base + disp, buffer, moved)

    def get_and_swap(self, disp: int, nbytes: int, steps: Any) -> tuple[memoryview, list[int]]:
        moved = [(self.base + d, a, b) for d, a, b in steps]
        return self.window.get_and_swap(self.base + disp, nbytes, moved)

    def fetch_add(self, disp: int, amount: int) -> int:
        return self.window.fetch_add(self.base + disp, amount)

    def __reduce__(self) -> Any:
        return Table, (self.base,)


@dataclass
class Tried:
    """A task of one run."""

    task: int
    attempt: int = 0
    failures: int = 0
    crashes: int = 0


@dataclass
class Driver:
    """One run's: starts when the run before it is over, and skips what is written down."""

    places: Places
    run: int
    retries: int = 0
    kills: int = 0  # may end so many attempts
    hasty: bool = False  # tells before it has written down
    forgetful: bool = False  # does not look at what is written down

    begun: bool = False
    waiting: list[Tried] = field(default_factory=list)  # to be published
    held: dict[int, Tried] = field(default_factory=dict)  # by row number
    results: list[int] = field(default_factory=list)  # collected, not written down
    wrote: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)  # results
    failed: list[int] = field(default_factory=list)  # told that there is none

    def __post_init__(self) -> None:
        self.port = Table(self.places.table(self.run))
        self.publisher = Publisher(self.port, self.places.shape, 0)  # type: ignore[arg-type]
        self.publisher._ahead = 0

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        self.port.window = window
        if not self.begun:
            return self._begin(window)
        if self.results:
            self._write(window, self.results[0])
        elif self.waiting and self._publish():
            pass
        elif self.held:
            self._look(window, choose)
        elif not self.waiting:
            self.port.compare_and_swap(OVER, 0, 1)
            return False
        return True

    def _begin(self, window: MemoryWindow) -> bool:
        """Begin when those before are over; return False if nothing was left by them."""
        for before in range(self.run):  # which may have died before it began
            if window.load(self.places.table(before) + OVER):
                self.port.compare_and_swap(OVER, 0, 1)
                return False
            if not window.load(self.places.death_word_of_driver(before)):
                return True
        self.begun = True
        for task in range(self.places.tasks):
            if not self.forgetful and window.load(self.places.journal(task)):
                self.told.append(task)
            else:
                self.waiting.append(Tried(task))
        return True

    def _write(self, window: MemoryWindow, task: int) -> None:
        """Write a result down, which is one transaction; then somebody may see it."""
        if self.hasty and task not in self.told:
            self.told.append(task)
            return
        found = window.compare_and_swap(self.places.journal(task), 0, 1)
        assert found == 0, f"the result of task {task} is written down twice"
        self.results.remove(task)
        self.wrote.append(task)
        if task not in self.told:
            self.told.append(task)

    def _publish(self) -> bool:
        tried = self.waiting[0]
        extent = Extent(layout.INLINE, 0)
        descriptor = Descriptor(tried.task, 0, *NO_BLOB, *NO_BLOB, *extent)
        (row,) = self.publisher.publish([layout.write_descriptor(descriptor)], tried.attempt)
        if row is not None:
            self.held[row.number] = self.waiting.pop(0)
        return row is not None

    def _look(self, window: MemoryWindow, choose: Choose) -> None:
        words = self.publisher.look().tolist()
        for number in sorted(self.held):
            row = Row(number, words[number])
            state, owner = layout.state_of(row.word), layout.owner_of(row.word)
            if state == State.DONE:
                self._collect(row)
            elif (
                state == State.CLAIMED
                and window.load(self.places.death_word_of_worker(owner))
                and self.publisher.step(row, Step.RECLAIM)
            ):
                self._again(number, crashes=1)
            elif state == State.CLAIMED and self.kills and choose(2):
                self.kills -= 1
                if self.publisher.step(row, Step.RECLAIM):
                    self.failed.append(self.held.pop(number).task)

    def _collect(self, row: Row) -> None:
        kind, *_ = layout.read_outcome(self.publisher.read_record(row.number))
        self.publisher.retire([row])
        if kind == FAILURE:
            self._again(row.number, failures=1)
        else:
            self.results.append(self.held.pop(row.number).task)

    def _again(self, number: int, failures: int = 0, crashes: int = 0) -> None:
        """Try a task once more, if it may be."""
        tried = self.held.pop(number)
        tried.failures += failures
        tried.crashes += crashes
        if tried.failures > self.retries or tried.crashes >= MOST_CRASHES:
            self.failed.append(tried.task)
            return
        tried.attempt += 1
        self.waiting.append(tried)


@dataclass
class Worker:
    """Runs tasks of one run after the other; an attempt may fail."""

    places: Places
    member: int
    failures: int = 0  # so often one of its attempts fails

    run: int = 0
    ran: list[tuple[int, int]] = field(default_factory=list)  # in which run, which task
    claim: Claim | None = None

    def __post_init__(self) -> None:
        self._enter()

    def _enter(self) -> None:
        self.port = Table(self.places.table(self.run))
        taker = TAKERS["pointer"](self.port, GREEDY)  # type: ignore[arg-type]
        shape = self.places.shape
        self.claimant = Claimant(self.port, shape, self.member, taker)  # type: ignore[arg-type]

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        self.port.window = window
        if self.claim is not None:
            self._deliver(self.claim, choose)
            return True
        if window.load(self.places.death_word_of_driver(self.run)):
            self.run += 1
            if self.run < self.places.runs:
                self._enter()
            return self.run < self.places.runs
        found = find_one(self.claimant)
        if isinstance(found, Claim):
            self.claim = found
        return not (found is Miss.EMPTY and self.port.over)

    def _deliver(self, claim: Claim, choose: Choose) -> None:
        self.ran = sorted([*self.ran, (self.run, claim.descriptor[0].task_id)])
        fails = bool(self.failures and choose(2))
        self.failures -= fails
        outcome = FAILURE if fails else VALUE, 0, layout.INLINE, 0
        self.claimant.complete(
            claim, layout.write_outcome(*outcome).ljust(layout.OUTCOME_NBYTES, b"\0")
        )
        self.claim = None


def explore(
    *,
    tasks: int = 1,
    rows: int = 2,
    runs: int = 2,
    workers: int = 1,
    failures: int = 0,
    crashes: int = 1,
    retries: int = 0,
    mortal: tuple[str, ...] = ("driver",),
    **options: Any,
) -> Any:
    """Explore some runs, each of which begins when the one before it has died."""
    places = Places(rows, runs, workers, tasks)
    drivers = {f"driver {run}": Driver(places, run, retries, **options) for run in range(runs)}
    others = {
        f"worker {member}": Worker(places, member, failures) for member in range(1, 1 + workers)
    }
    death_words = {
        name: places.death_word_of_driver(driver.run) for name, driver in drivers.items()
    }
    death_words |= {name: places.death_word_of_worker(w.member) for name, w in others.items()}

    def check(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        ours = [process for process in processes.values() if isinstance(process, Driver)]
        wrote = sorted(task for driver in ours for task in driver.wrote)
        assert len(wrote) == len(set(wrote)), f"written down twice: {wrote}"
        for driver in ours:
            for task in driver.told:
                assert memory.word(places.journal(task)), f"task {task} is told and not written"
            assert len(driver.told) == len(set(driver.told)), f"told twice: {driver.told}"
            assert not {*driver.told} & {*driver.failed}, "a task has a result and has none"

    def end(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        for run in range(runs):
            driver = processes[f"driver {run}"]
            if not alive[f"driver {run}"] or not driver.begun:
                continue
            told = sorted([*driver.told, *driver.failed])
            assert told == list(range(tasks)), f"run {run} has told of {told} only"
            ours = [worker for worker in processes.values() if isinstance(worker, Worker)]
            for task in range(tasks):
                count = sum(worker.ran.count((run, task)) for worker in ours)
                assert count <= 1 + retries + crashes, f"task {task} was tried {count} times"
            if not (failures or options.get("kills")) and mortal == ("driver",):
                assert not driver.failed

    return Explorer(
        {**drivers, **others},
        places.nbytes,
        check,
        end,
        crashes=crashes,
        mortal=frozenset(name for name in (*drivers, *others) if name.startswith(mortal)),
        death_words=death_words,
        eager=True,
    ).run()


CASES: dict[str, tuple[dict[str, Any], int]] = {  # with thousand states at the least
    "the driver dies": ({"tasks": 2}, 66),
    "it dies twice": ({"runs": 3, "crashes": 2}, 54),
    "an attempt fails, the driver dies": ({"failures": 1, "retries": 1}, 11),
    "more attempts fail than may": ({"failures": 2, "retries": 1}, 21),
    "an attempt fails, in one row": ({"tasks": 2, "failures": 1, "retries": 1, "rows": 1}, 75),
    "an attempt is killed, the driver dies": ({"tasks": 2, "kills": 1}, 190),
    "an attempt fails, a worker dies": (
        {"failures": 1, "retries": 1, "workers": 2, "mortal": ("worker 1",), "rows": 3, "runs": 1},
        51,
    ),
    "a task loses two workers": (
        {"workers": 3, "crashes": 2, "mortal": ("worker 1", "worker 2"), "rows": 4, "runs": 1},
        125,
    ),
    "the driver dies, and a worker": (
        {"workers": 2, "crashes": 2, "mortal": ("driver", "worker 1"), "rows": 3},
        290,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_task_is_told_of_and_written_down_once(name: str) -> None:
    options, least = CASES[name]
    report = explore(**options)
    assert report.states >= 1000 * least, report
    assert report.crashed


def test_telling_before_it_is_written_down_is_found() -> None:
    with pytest.raises(Found, match="told and not written"):
        explore(hasty=True)


def test_a_run_that_does_not_look_is_found() -> None:
    with pytest.raises(Found, match="written down twice"):
        explore(forgetful=True)


def test_a_failure_that_is_never_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Driver._again

    def stubborn(self: Driver, number: int, failures: int = 0, crashes: int = 0) -> None:
        genuine(self, number)

    monkeypatch.setattr(Driver, "_again", stubborn)
    with pytest.raises(Found, match="was tried 2 times"):
        explore(failures=1, retries=0, crashes=0, runs=1)
