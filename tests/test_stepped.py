"""What becomes of tasks where memory ends, or a host, in the middle of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stepped import Clock, Stepped, outcomes, silent

from workpool import accumulator, contributions, layout
from workpool.accumulator import Accumulator
from workpool.context import RANGE
from workpool.driver import collector, dispatcher, store
from workpool.driver.published import Published
from workpool.errors import TaskLost, WorkerCrashed
from workpool.extents import LINE_NBYTES
from workpool.loss import Loss, Why
from workpool.pool import resolver
from workpool.repository import Publisher
from workpool.serializer import Kind
from workpool.tasks import Finished, Task
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted


@pytest.fixture
def make() -> Iterator[Callable[..., Stepped]]:
    """Return what makes a job."""
    made: list[Stepped] = []

    def make(**options: Any) -> Stepped:
        made.append(Stepped(**options))
        return made[-1]

    yield make
    for job in made:
        job.leave()


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return what has one call of a function fail; the list that it returns counts the calls."""

    def fail(owner: object, name: str, error: BaseException, call: int = 1) -> list[int]:
        genuine, calls = getattr(owner, name), [0]

        def sometimes(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                raise error
            return genuine(*args, **kwargs)

        monkeypatch.setattr(owner, name, sometimes)
        return calls

    return fail


def add_and_return(numbers: Any, nbytes: int) -> bytes:
    numbers.add(1)
    return bytes(nbytes)


def add_to_both(first: Any, second: Any) -> None:
    first.add(1)
    second.add(np.ones(10, np.int64))


def add_ones(numbers: Any) -> None:
    numbers.add(np.ones(numbers.shape, np.int64))


def fail_and_count(runs: list[int]) -> None:
    runs.append(1)
    raise ValueError(len(runs))


tried: list[None] = []


def fail_at_first() -> int:
    tried.append(None)
    if len(tried) == 1:
        raise ValueError
    return len(tried)


# Memory.


@pytest.mark.parametrize("carries", [False, True])
def test_each_task_counts_once(make: Callable[..., Stepped], carries: bool) -> None:
    job = make(carries=carries)
    numbers = job.accumulator()
    tasks = [job.submit(add_and_return, numbers, 10) for _ in range(5)]
    job.go()
    assert outcomes(tasks) == [bytes(10)] * 5
    assert numbers.value() == job.ended == 5


def test_a_task_that_counts_is_not_tried_again_for_want_of_memory_for_its_outcome(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    numbers = job.accumulator()
    task = job.submit(add_and_return, numbers, 5000, retries=1)
    calls = fail(collector, "empty", MemoryError("for an outcome"))
    job.go()
    assert calls[0]
    (error,) = outcomes([task])
    assert isinstance(error, MemoryError)
    assert numbers.value() == 1


def test_what_is_carried_is_added_once_though_memory_ends_in_the_middle(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make(carries=True)
    first, second = job.accumulator(), job.accumulator((10,))
    task = job.submit(add_to_both, first, second)
    job.driver.progress()
    job.work()
    fail(accumulator, "combine", MemoryError("for a sum"), call=2)
    with pytest.raises(MemoryError):
        job.go()
    job.go()
    assert outcomes([task]) == [None]
    assert second.value().tolist() == [1] * 10
    assert first.value() == 1


@pytest.mark.parametrize("added", [False, True])
def test_what_is_cut_off_while_it_is_added_is_not_added_again(
    make: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch, added: bool
) -> None:
    class Alarm(Exception):
        pass

    def cut_off(self: Accumulator, part: Any) -> None:
        monkeypatch.setattr(Accumulator, "_add", genuine)
        if added:
            genuine(self, part)
        raise Alarm

    job = make(carries=True)
    numbers = job.accumulator()
    first = job.submit(add_and_return, numbers, 10)
    job.driver.progress()
    job.work()
    genuine = Accumulator._add
    monkeypatch.setattr(Accumulator, "_add", cut_off)
    with pytest.raises(Alarm):
        job.go()
    second = job.submit(add_and_return, numbers, 10)
    job.go()
    lost, value = outcomes([first, second])
    assert isinstance(lost, TaskLost)
    assert value == bytes(10)
    assert numbers.value() == 1 + added
    assert job.ended == 2


def test_a_turn_is_taken_in_where_there_is_stack_for_it(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job, told = make(), []
    future: Any = SimpleNamespace(ended=lambda kind, outcome: told.append(outcome))
    task = Task(1, RANGE, len, job.context, b"", future, segment=SimpleNamespace())  # type: ignore[arg-type]
    finished = Finished(job.context, 1, [(task, int(Kind.LOST), b"why")])
    fail(resolver, "need_stack", RecursionError())
    with pytest.raises(RecursionError):
        job.resolver.resolve(finished)
    assert not told
    job.resolver.resolve(finished)
    assert (told, job.ended) == ([b"why"], 1)


def test_who_finds_no_stack_to_be_counted_is_counted_with_the_next(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    fail(job.resolver, "_ended", RecursionError())
    first = job.submit(pow, 2, 3)
    job.go()
    assert (outcomes([first]), job.ended) == ([8], 0)
    second = job.submit(pow, 2, 4)
    job.go()
    assert (outcomes([second]), job.ended) == ([16], 2)


def test_a_sum_without_memory_costs_its_task_alone(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    numbers = job.accumulator((contributions.KEPT_NBYTES // 8,))
    code = job.code(add_ones)
    tasks = [job.task(add_ones, numbers, code=code) for _ in range(4)]
    job.share_a_row(tasks, code)
    fail(contributions, "combine", MemoryError("for a sum"), call=2)
    job.go()
    kinds = [type(each) for each in outcomes(tasks)]
    assert kinds == [type(None), type(None), MemoryError, type(None)]
    assert (numbers.value() == 3).all()


@pytest.mark.parametrize(
    ("carries", "owner", "name"),
    [
        (True, contributions.Contributions, "packed"),
        (True, layout, "write_carried"),
        (False, contributions.Contributions, "total"),
    ],
)
@pytest.mark.parametrize("together", [1, 4])
def test_what_was_added_without_memory_for_it_costs_the_tasks_of_its_row(
    make: Callable[..., Stepped],
    fail: Callable[..., list[int]],
    carries: bool,
    owner: object,
    name: str,
    together: int,
) -> None:
    """And not the rank: that would be the job."""
    job = make(carries=carries)
    numbers = job.accumulator()
    code = job.code(add_and_return)
    tasks = [job.task(add_and_return, numbers, 10, code=code) for _ in range(together)]
    fail(owner, name, MemoryError("for a copy of what was added"))
    job.share_a_row(tasks, code)
    job.go()
    assert [type(each) for each in outcomes(tasks)] == [MemoryError] * together
    assert numbers.value() == 0
    after = job.submit(add_and_return, numbers, 10)
    job.go()
    assert outcomes([after]) == [bytes(10)]
    assert numbers.value() == 1


def test_one_payload_that_cannot_be_kept_costs_one_task(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    code = job.code(len)
    tasks = [job.task(len, bytes(40_000), code=code) for _ in range(4)]
    job.share_a_row(tasks, code)
    claimant, claim = job.claim()
    # The same becomes of all, as where no child process can be started.
    loss = Loss(Why.UNSTARTED, 0, "here").encoded()
    record = layout.write_outcome(Kind.LOST, 5, layout.INLINE, len(loss), loss)
    assert claimant.complete(claim, record)[0]
    fail(store, "empty", MemoryError("for a copy of a payload"), call=2)
    job.go()
    crashed = [WorkerCrashed] * 2
    assert list(map(type, outcomes(tasks))) == [WorkerCrashed, MemoryError, *crashed]
    assert job.ended == 4


def test_a_payload_that_cannot_be_kept_costs_the_task_of_a_worker_that_is_gone(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    clock = Clock()
    job = make(leases=silent(clock))
    tasks = [job.submit(len, np.ones(10_000)) for _ in range(2)]
    job.driver.progress()
    job.claim()
    fail(store, "empty", MemoryError("for a copy of a payload"))
    clock.pass_by(job, 10)
    job.go()
    assert sorted(map(type, outcomes(tasks)), key=str) == [MemoryError, int]


def test_a_task_of_a_worker_that_is_gone_is_not_lost_with_the_stack(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    clock = Clock()
    job = make(leases=silent(clock))
    task = job.submit(len, np.ones(10_000))
    job.driver.progress()
    claimant, claim = job.claim()
    fail(store.Store, "leave", RecursionError())
    with pytest.raises(RecursionError):
        clock.pass_by(job, 10)
    assert not claimant.holds(claim)
    job.go()
    assert outcomes([task]) == [10_000]


def test_tasks_stay_where_they_cannot_be_published(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    tasks = [job.task(len, bytes(5000)) for _ in range(4)]
    job.driver._backlog.tasks.extend(tasks)
    used = job.driver._store.busy_nbytes
    fail(dispatcher, "need_stack", RecursionError())
    with pytest.raises(RecursionError):
        job.driver.progress()
    placed = job.context.placed
    assert placed is not None
    assert job.driver._store.busy_nbytes == used + LINE_NBYTES * -(
        -placed.extent.nbytes // LINE_NBYTES
    )
    assert job.context.users == 0
    job.go()
    assert outcomes(tasks) == [5000] * 4


def test_a_task_that_finds_no_row_for_itself_leaves_nothing_behind(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    job.submit(len, b"")
    job.go()
    job.driver._collector.retire()
    used = job.driver._store.busy_nbytes
    job.driver._advanced_s = float("inf")  # as just after progress
    job.driver._dispatcher._again_s = 0.0
    fail(Publisher, "reserve_ahead", RecursionError())
    task = job.task(len, bytes(5000))
    with pytest.raises(RecursionError):
        job.driver.submit(task, None)
    assert job.driver.cancel(task)
    assert job.context.users == 0
    assert job.driver._store.busy_nbytes == used


def test_a_payload_that_cannot_be_written_leaves_no_hole_in_the_arena(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    task = job.task(len, bytes(5000))
    job.driver._backlog.tasks.append(task)
    used = job.driver._store.busy_nbytes
    fail(job.window, "flush", MemoryError())
    with pytest.raises(MemoryError):
        job.driver.progress()
    assert job.driver._store.busy_nbytes == used
    assert not job.window._begun  # nothing arrives when others have the room
    job.go()
    assert outcomes([task]) == [5000]


# Hosts, threads.


def test_tasks_of_a_host_that_falls_silent_are_taken_back(make: Callable[..., Stepped]) -> None:
    """Where hosts can, outcomes carry what they contribute: a row is never left COMMITTED."""
    clock = Clock()
    job = make(carries=True, leases=silent(clock))
    numbers = job.accumulator()
    task = job.submit(add_and_return, numbers, 10)
    job.driver.progress()
    claimant, claim = job.claim()
    clock.pass_by(job, 10)
    assert not claimant.holds(claim)
    job.go()
    assert outcomes([task]) == [bytes(10)]
    assert numbers.value() == 1


def test_an_attempt_that_is_taken_back_while_it_hands_over_its_outcome_says_no_more(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    """Its row, and with it the record, may be others' by now."""
    job = make()
    job.submit(abs, -1)
    job.driver.progress()
    _, claim = job.claim()
    commits, exchange = job.service._commits, job.service._exchange
    fail(Exchange, "offer_all", Evicted())
    content, held = bytes(exchange.share_nbytes + 1), [exchange.reserve(64)]
    with pytest.raises(Evicted):
        commits._record(claim, Kind.VALUE, content, 1, held)
    assert [extent for *_, extent in exchange._results] == held, "it is not lost"


def test_a_row_that_is_collected_again_is_nothing_to_a_task_that_is_tried_again(
    make: Callable[..., Stepped], fail: Callable[..., list[int]]
) -> None:
    job = make()
    tried.clear()
    task = job.submit(fail_at_first, retries=1)
    job.driver.progress()
    job.work()
    fail(Published, "forget", RecursionError())
    with pytest.raises(RecursionError):
        job.driver.progress()
    assert job.driver._unresolved.resolve() == 1  # another thread was quicker than the next look
    job.go()
    assert outcomes([task]) == [2]
    assert job.ended == 1


def test_a_task_that_is_tried_again_ends_once_though_nobody_attends_to_it(
    make: Callable[..., Stepped],
) -> None:
    job = make()

    def refuse() -> None:
        del job.attend  # the next time it does
        raise RuntimeError("can't start new thread")

    job.attend = refuse
    task = job.submit(fail_and_count, [], retries=2)
    job.driver.progress()
    job.work()
    with pytest.raises(RuntimeError):
        job.driver.progress()
    job.attend = lambda: None
    job.go()
    (error,) = outcomes([task])
    assert isinstance(error, ValueError)
    assert job.ended == 1
