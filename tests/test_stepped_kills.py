"""One task of several in a row is killed: it ends there, and each of the others once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from stepped import Stepped, outcomes

from workpool import layout
from workpool.accumulator import Accumulator
from workpool.layout import STRIDE
from workpool.protocol import State
from workpool.tasks import Task

ran: Counter[int] = Counter()
during: dict[int, Callable[[], object]] = {}


def note(number: int, numbers: Accumulator | None) -> int:
    """Count this run, and do what comes in between."""
    ran[number] += 1
    if numbers is not None:
        numbers.add(1)
    during.pop(number, lambda: None)()
    return number


@pytest.fixture
def job() -> Iterator[Stepped]:
    """Return a job."""
    ran.clear()
    during.clear()
    job = Stepped()
    job.worker.runners.own.short_ns = 10**10  # however busy the machine is
    yield job
    job.leave()


def share_a_row(
    job: Stepped, count: int, adds: bool = True
) -> tuple[list[Task], Accumulator | None]:
    """Publish some tasks in one row; return them, and what they add to."""
    code, numbers = job.code(note), job.accumulator() if adds else None
    tasks = [job.task(note, n, numbers, code=code) for n in range(count)]
    job.share_a_row(tasks, code)
    return tasks, numbers


def check(job: Stepped, tasks: list[Task], numbers: Accumulator | None, killed: int = -1) -> None:
    """Have the others end, and see that each does so once."""
    job.driver._dispatcher._calm_s = 0.0
    job.go()
    assert not job.driver._rows
    others = [n for n in range(len(tasks)) if n != killed]
    assert outcomes([tasks[n] for n in others]) == others
    assert job.ended == len(others)
    assert numbers is None or numbers.value() == len(others)


@pytest.mark.parametrize("count", [2, 5])
def test_those_behind_it_wait_again(job: Stepped, count: int) -> None:
    tasks, numbers = share_a_row(job, count)
    first, second, driver = *tasks[:2], job.driver
    assert not driver.running(first)
    assert not driver.kill(first), "no worker has it"
    claimant, claim = job.claim()
    assert driver.running(second), "as far as one can tell"
    assert driver._singled_out(second)
    assert not driver._published.batches, "all that could be taken back was"
    assert not driver.running(second)
    assert not driver.kill(second)
    assert driver._singled_out(first)
    assert driver.running(first)
    assert driver.kill(first)
    assert not driver.running(first)
    assert not driver.kill(first), "it is over"
    assert not claimant.holds(claim)
    check(job, tasks, numbers, 0)
    assert [ran[n] for n in range(count)] == [0] + [1] * (count - 1)


def test_one_that_was_just_given_back_is_not_killed_with_the_one_that_runs(job: Stepped) -> None:
    tasks, numbers = share_a_row(job, 2)
    during[0] = lambda: killed.append(job.driver.kill(tasks[1]))
    killed = list[bool]()
    job.work()
    assert killed == [False]
    check(job, tasks, numbers)
    assert ran == {0: 1, 1: 1}


def test_no_worker_has_begun(job: Stepped) -> None:
    tasks, numbers = share_a_row(job, 2)
    assert job.driver.cancel(tasks[0])
    assert not job.driver._published.batches
    check(job, tasks, numbers, 0)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("singled_out", [True, False])
@pytest.mark.parametrize("killed", [3, 5])
def test_one_of_a_stride(job: Stepped, killed: int, singled_out: bool, adds: bool) -> None:
    """While the fourth task runs, of nine that have been started."""
    tasks, numbers = share_a_row(job, 3 * STRIDE, adds)
    driver, attempts = job.driver, job.service.attempts

    def kill() -> None:
        if singled_out:
            seen.append(not driver._singled_out(tasks[killed]))  # its worker does not say what runs
            attempts.watch()
            seen.append(attempts.watch())
            seen.append(driver._singled_out(tasks[killed]))
        taken_back.append(driver.kill(tasks[killed]))
        taken_back.append(not driver.cancel(tasks[killed]))

    seen: list[bool] = []  # what is asserted here would be the outcome of the task
    taken_back: list[bool] = []
    during[3] = kill
    job.work()
    assert all(seen)
    assert taken_back == [not singled_out or killed == 3] * 2
    state = State.FREE if taken_back[0] else State.DONE
    assert layout.state_of(job.service._claimant.load(0)) == state
    check(job, tasks, numbers, killed)
    # What was said in time has ended, unless it adds to numbers: that ends with its row.
    assert not tasks[killed].future.outcomes
    assert ran[0] == 1 or adds
    if not taken_back[0] or (singled_out and not adds):
        assert set(ran.values()) == {1}


def test_what_adds_nothing_does_not_wait_for_what_was_added_before_it(job: Stepped) -> None:
    code, numbers = job.code(note), job.accumulator()
    tasks = [job.task(note, n, None if n else numbers, code=code) for n in range(3 * STRIDE)]
    job.share_a_row(tasks, code)

    def look() -> None:
        job.service.attempts.watch()
        job.service.attempts.watch()
        assert job.driver._singled_out(tasks[5])
        over.extend(task.over for task in tasks[:6])

    over: list[bool] = []
    during[5] = look
    job.work()
    assert over == [False, True, True, True, True, False]
    check(job, tasks, None)
    assert numbers.value() == 1
    assert set(ran.values()) == {1}


def test_what_was_added_is_lost_with_its_worker_and_what_added_nothing_is_not(job: Stepped) -> None:
    code, numbers = job.code(note), job.accumulator()
    tasks = [job.task(note, n, None if n else numbers, code=code) for n in range(3 * STRIDE)]
    job.share_a_row(tasks, code)
    batch, lost = tasks[0].batch, list[Task]()
    assert batch is not None

    def lose() -> None:
        job.service.attempts.watch()
        job.service.attempts.watch()
        job.driver._singled_out(tasks[5])
        lost.extend(job.driver._published.take_back(batch))

    during[5] = lose
    job.work()
    assert tasks[0] in lost
    assert not set(tasks[1:5]).intersection(lost)
    job.driver._backlog.put_back(lost)
    check(job, tasks, None)
    assert numbers.value() == 1
    assert [ran[n] for n in range(5)] == [2, 1, 1, 1, 1]


def test_those_of_a_worker_that_is_gone(job: Stepped) -> None:
    """What had ended before is not lost; what was not started waits again."""
    tasks, _ = share_a_row(job, 3 * STRIDE, adds=False)
    batch, lost = tasks[0].batch, list[Task]()
    assert batch is not None
    during[2] = lambda: lost.extend(job.driver._published.take_back(batch))
    job.work()
    assert lost == tasks[1 : 1 + STRIDE]
    job.driver._backlog.put_back(lost)
    check(job, tasks, None)
    assert [n for n, runs in ran.items() if runs > 1] == list(range(1, 1 + STRIDE))


def test_one_that_has_just_ended(job: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row was seen while it ran."""
    task, seen = job.submit(note, 0, None), list[int]()
    publisher = job.driver._published._publisher
    load = publisher.load
    during[0] = lambda: seen.append(load(0))
    job.work()
    monkeypatch.setattr(publisher, "load", lambda row: seen.pop() if seen else load(row))
    assert not job.driver.kill(task)
    assert not seen
    job.go()
    assert outcomes([task]) == [0]
