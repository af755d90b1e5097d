"""What becomes of tasks where memory ends, or a host, in the middle of a step."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stepped import Clock, Stepped, outcomes, silent

from workpool import layout
from workpool.context import RANGE
from workpool.driver import dispatcher, store
from workpool.driver.published import Published
from workpool.errors import WorkerCrashed
from workpool.extents import LINE_NBYTES
from workpool.loss import Loss, Why
from workpool.pool import resolver
from workpool.repository import Publisher
from workpool.serializer import Kind
from workpool.tasks import Finished, Task
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted


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


def test_a_turn_is_taken_in_where_there_is_stack_for_it(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job, told = make_job(), []
    future: Any = SimpleNamespace(ended=lambda kind, outcome: told.append(outcome))
    task = Task(1, RANGE, len, job.context, b"", future, segment=SimpleNamespace())  # type: ignore[arg-type]
    finished = Finished(job.context, 1, [(task, int(Kind.LOST), b"why")])
    fail_once(resolver, "need_stack", RecursionError())
    with pytest.raises(RecursionError):
        job.resolver.resolve(finished)
    assert not told
    job.resolver.resolve(finished)
    assert (told, job.ended) == ([b"why"], 1)


def test_who_finds_no_stack_to_be_counted_is_counted_with_the_next(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    fail_once(job.resolver, "_ended", RecursionError())
    first = job.submit(pow, 2, 3)
    job.go()
    assert (outcomes([first]), job.ended) == ([8], 0)
    second = job.submit(pow, 2, 4)
    job.go()
    assert (outcomes([second]), job.ended) == ([16], 2)


def test_one_payload_that_cannot_be_kept_costs_one_task(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    code = job.code(len)
    tasks = [job.task(len, bytes(40_000), code=code) for _ in range(4)]
    job.share_a_row(tasks, code)
    claimant, claim = job.claim()
    # The same becomes of all, as where no child process can be started.
    loss = Loss(Why.UNSTARTED, 0, "here").encoded()
    record = layout.write_outcome(Kind.LOST, 5, layout.INLINE, len(loss), loss)
    assert claimant.complete(claim, record)[0]
    fail_once(store, "empty", MemoryError("for a copy of a payload"), call=2)
    job.go()
    crashed = [WorkerCrashed] * 2
    assert list(map(type, outcomes(tasks))) == [WorkerCrashed, MemoryError, *crashed]
    assert job.ended == 4


def test_a_payload_that_cannot_be_kept_costs_the_task_of_a_worker_that_is_gone(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    clock = Clock()
    job = make_job(leases=silent(clock))
    tasks = [job.submit(len, np.ones(10_000)) for _ in range(2)]
    job.driver.progress()
    job.claim()
    fail_once(store, "empty", MemoryError("for a copy of a payload"))
    clock.pass_by(job, 10)
    job.go()
    assert sorted(map(type, outcomes(tasks)), key=str) == [MemoryError, int]


def test_a_task_of_a_worker_that_is_gone_is_not_lost_with_the_stack(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    clock = Clock()
    job = make_job(leases=silent(clock))
    task = job.submit(len, np.ones(10_000))
    job.driver.progress()
    claimant, claim = job.claim()
    fail_once(store.Store, "leave", RecursionError())
    with pytest.raises(RecursionError):
        clock.pass_by(job, 10)
    assert not claimant.holds(claim)
    job.go()
    assert outcomes([task]) == [10_000]


def test_tasks_stay_where_they_cannot_be_published(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    tasks = [job.task(len, bytes(5000)) for _ in range(4)]
    job.driver._backlog.tasks.extend(tasks)
    used = job.driver._store.busy_nbytes
    fail_once(dispatcher, "need_stack", RecursionError())
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
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    job.submit(len, b"")
    job.go()
    job.driver._collector.retire()
    used = job.driver._store.busy_nbytes
    job.driver._advanced_s = float("inf")  # as just after progress
    job.driver._dispatcher._again_s = 0.0
    fail_once(Publisher, "reserve_ahead", RecursionError())
    task = job.task(len, bytes(5000))
    with pytest.raises(RecursionError):
        job.driver.submit(task, None)
    assert job.driver.cancel(task)
    assert job.context.users == 0
    assert job.driver._store.busy_nbytes == used


def test_a_payload_that_cannot_be_written_leaves_no_hole_in_the_arena(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    task = job.task(len, bytes(5000))
    job.driver._backlog.tasks.append(task)
    used = job.driver._store.busy_nbytes
    fail_once(job.window, "flush", MemoryError())
    with pytest.raises(MemoryError):
        job.driver.progress()
    assert job.driver._store.busy_nbytes == used
    assert not job.window._begun  # nothing arrives when others have the room
    job.go()
    assert outcomes([task]) == [5000]


# Hosts, threads.


def test_an_attempt_that_is_taken_back_while_it_hands_over_its_outcome_says_no_more(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    """Its row, and with it the record, may be others' by now."""
    job = make_job()
    job.submit(abs, -1)
    job.driver.progress()
    _, claim = job.claim()
    commits, exchange = job.service._commits, job.service._exchange
    fail_once(Exchange, "offer_all", Evicted())
    content, held = bytes(exchange.share_nbytes + 1), [exchange.reserve(64)]
    with pytest.raises(Evicted):
        commits._record(claim, Kind.VALUE, content, 1, held)
    assert [extent for *_, extent in exchange._results] == held, "it is not lost"


def test_a_row_that_is_collected_again_is_nothing_to_a_task_that_is_tried_again(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    tried.clear()
    task = job.submit(fail_at_first, retries=1)
    job.driver.progress()
    job.work()
    fail_once(Published, "forget", RecursionError())
    with pytest.raises(RecursionError):
        job.driver.progress()
    assert job.driver._unresolved.resolve() == 1  # another thread was quicker than the next look
    job.go()
    assert outcomes([task]) == [2]
    assert job.ended == 1


def test_a_task_that_is_tried_again_ends_once_though_nobody_attends_to_it(
    make_job: Callable[..., Stepped],
) -> None:
    job = make_job()

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
