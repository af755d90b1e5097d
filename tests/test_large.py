"""Large payloads and outcomes lie apart in the arena: each where it is said, as long as needed.

A driver and a worker take turns in one thread, so that whatever else happens while a task runs can
be done by the task itself: others are cancelled, killed, taken back, or have their row recalled.
The window in memory delays what is put until its flush.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import large_tasks
import numpy as np
import pytest
from large_tasks import FIRST, LARGE, DriverAndWorker, Pause

from workpool import accumulator, contributions
from workpool.context import LARGE_NBYTES
from workpool.driver import dispatcher as dispatcher_module
from workpool.driver import driver as driver_module
from workpool.loss import unstarted
from workpool.repository import Miss
from workpool.serializer import Kind, Packed
from workpool.tasks import Retry, Task
from workpool.worker import exchange as exchange_module


@pytest.fixture
def during() -> Iterator[Callable[[Callable[[int], object]], None]]:
    """Return what says what is done while tasks run."""

    def set_during(action: Callable[[int], object]) -> None:
        large_tasks.during = action

    yield set_during
    set_during(int)
    if large_tasks.failures:
        raise large_tasks.failures.pop(0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have what is submitted wait for others, however busy this machine is."""
    monkeypatch.setattr(driver_module, "TOGETHER_S", 60.0)
    monkeypatch.setattr(exchange_module, "Backoff", Pause)
    yield
    contributions.current.set(None)  # what `DriverAndWorker` has begun


def arrays(count: int, length: int = LARGE) -> list[Any]:
    return [np.full(length, float(n)) for n in range(count)]


def check(job: DriverAndWorker, given: dict[int, Any]) -> None:
    """See that all have come, none twice, each with its own numbers, and that no room is lost."""
    assert job.found.keys() == given.keys()
    for number, values in given.items():
        assert np.array_equal(job.found[number], 2 * values), number
    job.driver._collector.retire()
    assert job.regions() == job.free_nbytes


def test_large_tasks_share_rows_both_ways() -> None:
    job = DriverAndWorker()
    given = arrays(60)
    job.waiting(*given)
    job.finish()
    check(job, {FIRST: np.zeros(1), **dict(enumerate(given))})
    assert len(job.shared) <= 20, job.shared


def test_arguments_are_as_they_were_at_submit() -> None:
    job = DriverAndWorker()
    given = arrays(10)
    expected = {FIRST: np.zeros(1), **{n: values.copy() for n, values in enumerate(given)}}
    dispatcher = job.driver._dispatcher
    dispatcher._again_s = time.monotonic() + 60
    job.driver.progress()
    for number, values in enumerate(given):
        job.submit(number, values)
        values[:] = -1
    dispatcher._again_s = 0.0
    job.finish()
    check(job, expected)


@pytest.mark.parametrize("retry", [None, Retry(1, 0, (ValueError,))])
def test_what_is_lent_is_not_copied(retry: Retry | None, monkeypatch: pytest.MonkeyPatch) -> None:
    job = DriverAndWorker(arena_nbytes=1 << 21)  # of which some of them fill the driver's part
    given = arrays(60, 3 * LARGE)
    tobytes = Packed.tobytes

    def copied(packed: Packed) -> bytes:
        assert not packed.lent
        return tobytes(packed)

    monkeypatch.setattr(Packed, "tobytes", copied)
    for number, values in enumerate(given):
        job.submit(number, values, retry, lent=True)
    assert sum(isinstance(task.payload, Packed) for task in job.driver._backlog) > 10
    job.finish()
    check(job, {FIRST: np.zeros(1), **dict(enumerate(given))})


def test_one_that_is_taken_for_lost_has_its_arguments_again(during: Any) -> None:
    job = DriverAndWorker()
    given = arrays(12)
    tasks = job.waiting(*given)
    runs = []

    def action(number: int) -> None:
        runs.append(number)
        if number == 5 and runs.count(5) == 1:
            job.take_back(tasks[5])
            job.submit(100, np.full(LARGE, 100.0))  # which comes to where the lost one was

    during(action)
    job.finish()
    during(int)
    check(job, {FIRST: np.zeros(1), 100: np.full(LARGE, 100.0), **dict(enumerate(given))})
    assert runs.count(5) == 2


def test_what_waits_makes_way_for_what_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that holds an argument may run for long; perhaps it waits for what finds no room."""
    job = DriverAndWorker(arena_nbytes=4 << 20)
    driver = job.driver
    monkeypatch.setattr(dispatcher_module, "STUCK_S", 0.0)
    job.submit(0, np.zeros(LARGE))
    driver.progress()
    taken = job.service._claimant.take(1)  # and it runs
    assert not isinstance(taken, Miss)
    head = job.task(1, np.ones(100_000))
    head.keep()
    driver._backlog.tasks.append(head)
    given = {0: np.zeros(LARGE), 1: np.ones(100_000)}
    for number in range(2, 100):
        given[number] = np.full(LARGE, float(number))
        task = job.task(number, given[number])
        if not driver._store.place(task):
            break
        driver._backlog.tasks.append(task)
    assert driver._store.region.free_nbytes < len(head.payload)
    for _ in range(2):
        driver.progress()
    assert head.batch is not None, "it waits for the row that runs"


def test_what_a_row_may_name_that_nobody_knows_is_not_used_again() -> None:
    """What a signal's handler raises comes between the row and the note of it."""

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    job = DriverAndWorker()
    published = job.driver._published
    add, published.add = published.add, cut_off  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        job.submit(0, np.zeros(LARGE))
    published.add = add  # type: ignore[method-assign]
    lost = job.driver._backlog.tasks[0]
    extent = lost.extent
    assert extent is not None
    assert job.driver.cancel(lost)
    other = job.submit(1, np.ones(LARGE))
    job.driver.progress()
    assert other.extent is not None
    assert other.extent.offset != extent.offset
    job.finish()
    assert (job.found[1] == 2).all()


def test_an_attempt_that_its_worker_could_not_begin_has_its_arguments_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = DriverAndWorker()
    runner = job.service.attempts._runners.own
    call, failures = runner.call, [1]

    def lost(*args: Any) -> Any:
        return (Kind.LOST, unstarted(OSError(), 1, "here")) if failures.pop(0) else call(*args)

    for failures[:] in ([1, 0], [0, 1, 0, 0]):
        monkeypatch.setattr(runner, "call", lost)
        given = arrays(len(failures) - 1)
        job.waiting(*given)
        job.finish()
        monkeypatch.undo()
        check(job, {FIRST: np.zeros(1), **dict(enumerate(given))})
        for number in range(len(given)):
            del job.found[number]


def test_one_that_is_lost_for_good_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DriverAndWorker()
    job.tries_again = False
    runner = job.service.attempts._runners.own
    lost = Kind.LOST, unstarted(OSError(), 1, "here")
    monkeypatch.setattr(runner, "call", lambda *_: lost)
    job.waiting(*arrays(3))
    job.finish()
    assert len(job.found) == 4
    job.driver._collector.retire()
    assert job.regions() == job.free_nbytes


def test_what_adds_to_an_accumulator_counts_with_its_row(during: Any) -> None:
    job = DriverAndWorker()
    offset = job.driver._store._buffer.offset  # which nobody uses here
    spec = accumulator.spec_of((), "int64", "sum")._replace(offset=offset, pool=1)
    job.waiting(*arrays(8))
    job.finish()  # from here on there is room for outcomes as large as these
    job.found.clear()
    tasks = job.waiting(*arrays(8))
    runs: list[int] = []

    def action(number: int) -> None:
        noted = contributions.current.get()
        assert noted is not None
        noted.add(spec, np.array(1))
        runs.append(number)
        if len(runs) == 3:
            assert tasks[0].batch is tasks[number].batch
            job.recall(tasks[number])
            job.driver.progress()
            assert not job.found, "before what they add is in the window"

    during(action)
    job.finish()
    during(int)
    check(job, dict(enumerate(arrays(8))))
    assert int.from_bytes(job.window.copy(offset, 8), "little") == len(runs) == 8


def test_what_is_recalled_waits_again_while_the_first_task_of_its_row_runs(during: Any) -> None:
    def action(number: int) -> None:
        batch, driver = tasks[0].batch, job.driver
        if number == 0 and batch is not None:
            job.recall(tasks[0])
            recalled.extend(batch.tasks[1:])
            waiting.extend(driver._backlog.tasks)
            assert batch.row.number not in driver._published.batches  # it gives nothing back

    job = DriverAndWorker()
    recalled: list[Task] = []
    waiting: list[Task] = []
    tasks = job.waiting(*arrays(8))
    during(action)
    job.finish()
    during(int)
    assert recalled
    assert waiting[: len(recalled)] == recalled
    check(job, {FIRST: np.zeros(1), **dict(enumerate(arrays(8)))})


def test_nothing_is_placed_while_those_before_find_no_room() -> None:
    job = DriverAndWorker()
    job.driver.progress()
    job.driver._dispatcher._full = True
    task = job.submit(0, np.zeros(LARGE))
    assert task.extent is None
    assert isinstance(task.payload, bytes)


def test_an_outcome_for_which_there_is_no_memory_fails_its_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def short(nbytes: int) -> memoryview:
        if nbytes > LARGE_NBYTES:
            failures.append(nbytes)
            if len(failures) == 3:
                raise MemoryError
        return memoryview(bytearray(nbytes))

    failures: list[int] = []
    job = DriverAndWorker()
    job.waiting(*arrays(8))
    job.finish()
    job.found.clear()
    monkeypatch.setattr("workpool.driver.collector.empty", short)
    job.waiting(*arrays(8))
    job.finish()
    wrong = [n for n, found in job.found.items() if isinstance(found, MemoryError)]
    assert len(wrong) == 1
    assert all(n in wrong or (found == 2 * n).all() for n, found in job.found.items())


@pytest.mark.parametrize("tries", [1, 2])
def test_tasks_of_different_attempts_share_no_row(tries: int) -> None:
    job = DriverAndWorker()
    task = job.submit(0, np.zeros(LARGE))
    task.attempt = tries
    assert not task.goes_with(task)


def test_one_array_that_many_tasks_wait_with_is_kept_once_as_it_was() -> None:
    job = DriverAndWorker(arena_nbytes=4 << 20)
    values = np.zeros(1 << 18)
    waiting = []
    for number in range(20):
        if number % 5 == 0:
            values[-1] = number
        waiting.append(job.submit(number, values))
    kept = [task.payload for task in waiting if type(task.payload) is Packed]
    assert len(kept) > 10
    assert len({id(payload.segments[-1]) for payload in kept}) <= 4
    values[:] = -1
    job.finish()
    assert [job.found[n][-1] for n in range(20)] == [2 * (n - n % 5) for n in range(20)]
    assert job.regions() == job.free_nbytes


def test_what_waits_is_given_back_when_nobody_is_left_to_run_it() -> None:
    job = DriverAndWorker()
    job.driver._dispatcher._again_s = time.monotonic() + 60
    job.driver.progress()
    for number, values in enumerate(arrays(4)):
        job.submit(number, values)
    assert job.regions() != job.free_nbytes
    job.driver.recovery._fail_all()
    assert job.regions() == job.free_nbytes


def test_what_is_refused_is_given_back() -> None:
    """Because its outcome is too large for this process."""
    job = DriverAndWorker()
    task = job.submit(0, np.zeros(LARGE))
    job.driver.progress()
    collector, batch = job.driver._collector, task.batch
    assert task.extent is not None
    assert batch is not None
    collector.published.take_back = lambda batch, only=None: batch.tasks  # type: ignore[method-assign]
    collector._refuse(batch, 1, MemoryError())
    assert job.regions() == job.free_nbytes


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_them(seed: int, during: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random sizes, and random steps of the driver while tasks run."""
    choice = random.Random(seed)
    monkeypatch.setattr(dispatcher_module, "WARM_NBYTES", 1 << choice.choice([19, 21, 25]))
    job = DriverAndWorker(choice.choice([2, 8, 64]), 1 << choice.choice([21, 22, 24]))
    given: dict[int, Any] = {FIRST: np.zeros(1)}
    tasks: list[Task] = []
    gone: set[int] = set()

    def submit() -> None:
        number = len(tasks)
        length = choice.choice([1, 100, 1000, LARGE, LARGE, LARGE, 2 * LARGE, 40_000])
        given[number] = np.full(length, float(number))
        if choice.random() < 0.1:
            given[number][0] = -1.0
        tried = Retry(1, 0, (ValueError,)) if choice.random() < 0.2 else None
        values, lent = given[number].copy(), choice.random() < 0.3
        tasks.append(job.submit(number, values, tried, lent))
        if not lent:
            values[:] = 7.0

    def action(number: int) -> None:
        what = choice.random()
        if not tasks or what > 0.4:
            return
        task = choice.choice(tasks)
        running = tasks[number] if number < FIRST else task
        if what < 0.1:
            if job.driver.cancel(task):
                gone.add(task.task_id)
        elif what < 0.15:
            if job.driver.kill(running):
                gone.add(running.task_id)
        elif what < 0.2:
            job.take_back(running)
        elif what < 0.25:
            job.recall(running)
        elif what < 0.3:
            job.driver.progress()
        elif len(tasks) < 300:
            submit()

    during(action)
    for _ in range(6):
        for _ in range(choice.randrange(30)):
            submit()
        for _ in range(choice.randrange(8)):
            job.driver.progress()
            job.service.work()
    job.finish()
    during(int)
    for number in gone:
        given.pop(number)
        job.found.pop(number, None)
    for number, values in list(given.items()):
        if values[0] < 0:
            assert isinstance(job.found.pop(number), ValueError)
            del given[number]
    check(job, given)
