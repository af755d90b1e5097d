"""The driver on a window in memory: what becomes of rows, and what failures leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driven import NOTHING_TO_FETCH, Table, pool

from workpool import layout
from workpool.context import TaskKind
from workpool.driver import driver as driver_module
from workpool.extents import Extent
from workpool.layout import NOTHING, Piece, Terms
from workpool.loss import Loss, Why
from workpool.protocol import State, Step
from workpool.repository import Claim, Miss, Stream, take_items
from workpool.serializer import Kind, pack_value
from workpool.tasks import Batch, Segment, Tally, Task
from workpool.testing import MemoryWindow


def test_an_outcome_that_cannot_be_noted_is_collected_again() -> None:
    class Short(list[Any]):
        """Of memory, the first times that something is noted."""

        def append(self, item: Any) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise MemoryError
            super().append(item)

    resolved: list[int] = []
    failures = 2
    tally = Tally()
    table = Table(
        pool(
            lambda finished: resolved.extend(task.task_id for task, _, _ in finished.outcomes),
            tally,
        )
    )
    driver = table.driver
    table.submit(1)
    driver.progress()
    table.end_one()
    driver._collector._uncounted = Short()
    for _ in range(failures):
        with pytest.raises(MemoryError):
            driver.progress()
    driver.progress()
    assert (resolved, driver.outstanding) == ([1], 0)
    driver.count()
    assert (tally.tasks[1], tally.elapsed_ns[1]) == (1, 5)


def test_a_turn_that_finds_no_memory_is_no_task_of_its_worker() -> None:
    table = Table()
    collector = table.driver._collector
    turn = Segment(1, b"", 1, Terms(0, 1, 1, 0, 1))
    for segment, counted in ((turn, 0), (None, 1)):
        task = Task(1, TaskKind.RANGE, abs, table.context, b"", None, segment=segment)
        collector.published.take_back = lambda batch, only=None: batch.tasks  # type: ignore[method-assign]
        collector._refuse(Batch([task], b""), 1, MemoryError())
        assert table.context.tally.tasks[1] == counted


@pytest.mark.parametrize("state", [State.RESERVED, State.READY, State.WANTED, State.DONE])
def test_rows_of_steps_that_were_cut_off_are_used_again(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what a handler raises, before the driver has noted what it did."""

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    ended: list[int] = []
    table = Table(pool(lambda finished: ended.extend(t.task_id for t, *_ in finished.outcomes)))
    driver = table.driver
    table.submit(0)
    driver.progress()
    table.end_one()
    driver.progress()
    published = state is not State.RESERVED
    holder = driver._published if published else driver._dispatcher._publisher.window
    claims: list[Claim] = []
    with monkeypatch.context() as patch:
        patch.setattr(holder, "add" if published else "put", cut_off)
        for number in range(8):  # as many as there are rows
            with pytest.raises(KeyboardInterrupt):
                table.submit(number)
            driver._backlog.tasks.clear()  # whoever submits it finds it there, and cancels it
            if state is State.DONE:
                table.end_one()
            elif state is State.WANTED:  # by a worker that waits for what nobody knows of
                claims.append(table.claim())
                table.worker.request(claims[-1], Step.WANT, Piece(Stream.PAYLOAD, 0, 9, NOTHING))
    driver._dispatcher._recover_s = 0.0  # it is time
    driver.progress()
    for claim in claims:
        assert isinstance(table.worker.answered(claim, Step.SUPPLY), Miss)
    for _ in range(8):  # the tickets of rows that were withdrawn lead nowhere
        table.worker.take(1)
    table.submit(99)
    driver.progress()
    driver.progress()
    table.end_one()
    driver.progress()
    assert ended == [0, 99]


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WANT, Step.OFFER, Step.COMMIT])
def test_a_row_that_was_lost_is_free_when_its_worker_has_died(step: Step) -> None:
    table = Table(rows=1)
    driver = table.driver
    table.submit(0)
    claim = table.claim()
    if step in (Step.WANT, Step.OFFER):
        table.worker.request(claim, step, Piece(Stream.PAYLOAD, 0, 9, NOTHING))
    elif step is Step.COMMIT:
        assert table.worker.commit(claim, NOTHING_TO_FETCH)
    driver._published.rows.clear()  # a signal's handler has raised before it was noted

    def recover() -> State:
        driver._dispatcher._recover_s = 0.0  # it is time
        driver.progress()
        return State(layout.state_of(table.window.load(table.geometry.word(0))))

    assert recover() is not State.FREE  # its worker may still write there
    driver._published.free_rows({1})
    assert recover() is State.FREE


def test_a_row_is_freed_for_the_dead_only_if_nobody_knows_of_it() -> None:
    table = Table(rows=2)
    published = table.driver._published
    table.submit(0)
    claim = table.claim()
    published.owners()  # which looks
    published.free_rows({1})
    assert table.worker.holds(claim), "its tasks are to be taken back first"
    published.rows.clear()
    published.free_rows({0, 2})
    assert table.worker.holds(claim), "its worker lives"


def test_the_tasks_of_a_pool_are_those_that_may_still_be_given_up() -> None:
    """The last one first, wherever they are."""
    table, other = Table(rows=2), pool()
    other.pool_id = 2
    driver = table.driver
    tasks = [table.submit(number) for number in range(6)]
    tasks[1].context = tasks[4].context = other
    driver.progress()
    assert len(driver._rows) == 2
    assert driver.cancel(tasks[3])
    assert [task.task_id for task in driver.tasks(1)] == [5, 2, 0]


def test_a_task_that_has_just_ended_is_not_lost_with_its_worker() -> None:
    table = Table()
    driver = table.driver
    task = table.submit(0)
    assert task.batch is not None
    table.end_one()
    driver.recovery._take_back_from(1, [task.batch], Loss(Why.STOPPED, 1, "here", 1))
    assert not driver.recovery.evicted
    assert driver.progress() == 1


def test_nothing_is_done_for_a_task_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for it is told so, see `Waits`."""

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    table = Table()
    driver = table.driver
    task = table.submit(0)
    driver.progress()
    with monkeypatch.context() as patch:
        patch.setattr(driver._published._publisher, "step", cut_off)
        with pytest.raises(KeyboardInterrupt):
            driver.cancel(task)
    assert not driver.cancel(task)
    assert not driver.kill(task)
    assert not driver.running(task)


@pytest.mark.parametrize("pieces", [False, True])
def test_an_outcome_is_here_before_its_worker_may_use_the_room_again(
    pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content: list[bytes] = []
    table = Table(pool(lambda done: content.extend(bytes(o) for _, _, o in done.outcomes)))
    driver = table.driver
    table.submit(1)
    driver.progress()
    claim, other = table.claim(), MemoryWindow(table.window.nbytes)
    other.memory = table.window.memory
    extent = Extent(table.geometry.region(1).offset, 300)

    def write(outcome: bytes) -> None:
        other.put(extent.offset, outcome)
        other.flush()

    publisher = driver._collector._publisher
    last_step = publisher.step if pieces else publisher.retire

    def take_last_step(*arguments: Any) -> Any:
        write(bytes(300))  # the worker has waited for just that
        return last_step(*arguments)

    monkeypatch.setattr(publisher, last_step.__name__, take_last_step)
    write(bytes(range(100)) * 3)
    if pieces:
        assert table.worker.request(claim, Step.OFFER, Piece(Stream.OUTCOME, 0, 300, extent))
        driver.progress()
        assert table.worker.answered(claim, Step.TAKE) is not None
    record = layout.write_outcome(
        Kind.VALUE, 5, layout.STREAMED if pieces else extent.offset, extent.nbytes
    )
    table.worker.complete(claim, record.ljust(layout.OUTCOME_NBYTES, b"\0"))
    driver.progress()
    assert content == [bytes(range(100)) * 3]


def test_rows_that_are_collected_are_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(rows=512)
    driver = table.driver
    table.submit(0)
    driver.progress()
    table.end_one()
    driver.progress()
    assert driver._collector.retired
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    while driver._store.region.reserve(1 << 16):
        pass
    monkeypatch.setattr(driver._dispatcher, "_without_room", lambda batch: None)
    driver._dispatcher._recover_s = 0.0  # it is time
    table.submit(1, pack_value(np.ones(10_000)))
    assert driver._dispatcher._full
    driver._collector.retire()


def test_counters_of_maps_that_were_lost_are_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(rows=2)
    segments = table.driver._segments
    first, second, third = (Segment(n, b"", 5, Terms(0, 1, 1, 0, 1)) for n in range(3))
    assert segments.lend(first)
    assert segments.lend(second)
    assert not segments.lend(third)
    lent, first = first.items, third  # nobody has the first any more
    assert lent is not None
    take_items(table.window, table.geometry, lent, 2)
    assert segments.lend(third)
    assert third.items is not None
    assert (third.items.counter, third.items.base) == (lent.counter, lent.base + lent.total)
    segments.take_back(second)
    assert segments.lend(second)
    with monkeypatch.context() as patch:  # before it is noted who has it
        patch.setattr(segments._living, "add", lambda segment: 1 / 0)
        segments.take_back(second)
        with pytest.raises(ZeroDivisionError):
            segments.lend(second)
    assert segments.lend(second)


def test_a_counter_of_a_map_that_was_lost_in_a_cycle_is_lent_again() -> None:
    table = Table(rows=1)
    driver = table.driver
    lost, other = (Segment(n, b"", 5, Terms(0, 1, 1, 0, 1)) for n in range(2))
    assert driver._segments.lend(lost)
    lost.content = [lost]
    del lost
    driver.submit(Task(0, TaskKind.RANGE, abs, table.context, b"", None, segment=other), None)
    driver._dispatcher._recover_s = 0.0  # it is time
    driver.progress()
    assert other.items is not None


def test_what_is_dropped_leaves_the_arena_with_the_rows_that_were_collected() -> None:
    table = Table()
    driver = table.driver
    before = driver._store.busy_nbytes
    table.submit(1)
    driver.progress()
    table.end_one()
    driver.progress()
    assert driver._store.busy_nbytes > before
    driver.drop(table.context)
    assert driver._store.busy_nbytes == before


def test_workers_are_woken_for_what_is_published_by_the_way() -> None:
    table, woken = Table(rows=16), list[int]()
    driver = table.driver
    driver._dispatcher._bells = SimpleNamespace(  # type: ignore[assignment]
        wake=lambda workers, now: woken.append(workers)
    )
    driver.progress()
    assert not woken
    driver._backlog.tasks.append(Task(1, TaskKind.CALL, abs, table.context, b"", None))
    driver.progress()
    assert woken == [1]
    driver.progress()
    assert woken == [1], "once for each that is published"
