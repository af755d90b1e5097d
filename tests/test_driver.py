"""The driver on a window in memory: what becomes of outcomes, and what failures leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driven import Table, nothing, pool

from workpool import layout
from workpool.context import TaskKind
from workpool.driver import driver as driver_module
from workpool.driver import unresolved as unresolved_module
from workpool.driver.unresolved import RESOLVED, RESOLVED_S
from workpool.extents import Extent
from workpool.layout import NOTHING, Piece, Terms
from workpool.protocol import State, Step
from workpool.repository import Claim, Miss, Stream, take_items
from workpool.serializer import Kind, pack_value
from workpool.tasks import Batch, Finished, Segment, Tally, Task
from workpool.testing import MemoryWindow


def test_what_an_interrupt_has_left_is_resolved_by_the_next() -> None:
    def resolve(finished: Finished) -> None:
        while finished.outcomes:
            resolved.append(finished.outcomes.popleft()[0].task_id)
            if resolved[-1] % 3 == 0:
                raise KeyboardInterrupt

    resolved: list[int] = []
    context = pool(resolve)
    tasks = [Task(n, TaskKind.CALL, resolve, context, b"", None) for n in range(8)]
    driver = Table(context).driver
    driver._unresolved.append(Finished(context, 1, [(task, Kind.VALUE, b"") for task in tasks]))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            driver.progress()
    driver.progress()
    assert resolved == list(range(8))


@pytest.mark.parametrize(("takes_s", "resolved"), [(0.0, RESOLVED), (2 * RESOLVED_S, 1)])
def test_who_resolves_looks_again_after_some(
    takes_s: float, resolved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count(0.0, takes_s)
    monkeypatch.setattr(unresolved_module, "monotonic", lambda: next(now))
    unresolved = unresolved_module.Unresolved()
    unresolved.extend(Finished(pool(), 1, ()) for _ in range(2 * RESOLVED))
    assert unresolved.resolve() == resolved
    assert len(unresolved) == 2 * RESOLVED - resolved
    assert not unresolved.hands


def test_only_what_goes_into_a_journal_waits_until_it_is_stored() -> None:
    def ended(*tasks: Task, carried: bytes = b"") -> Finished:
        return Finished(context, 1, [(task, Kind.VALUE, b"") for task in tasks], carried)

    context = pool()
    plain = Task(1, TaskKind.CALL, abs, context, b"", None)
    assert ended(plain).written
    noted = Task(2, TaskKind.CALL, abs, context, b"", None, noted=nothing)
    assert ended(plain).written  # the disk is no matter of this one, now as before
    assert not ended(plain, noted).written
    assert not ended(plain, carried=b"numbers").written


def test_a_thread_that_resolves_may_take_what_another_collects_at_once() -> None:
    def resolve(finished: Finished) -> None:
        finished.outcomes.clear()
        resolved.append(finished)
        if len(resolved) == 1:
            resolving.set()
            assert collects.wait(10)

    def add(finished: Finished, times_ns: Sequence[int]) -> None:
        if resolving.is_set():
            collects.set()
            resolver.join(10)  # it takes all there is
        hand_on(finished, times_ns)

    resolved: list[Finished] = []
    resolving, collects = threading.Event(), threading.Event()
    table = Table(pool(resolve))
    driver = table.driver
    hand_on = driver._collector.add
    driver._collector.add = add  # type: ignore[method-assign]
    resolver = threading.Thread(target=driver.progress)

    def run_one(number: int) -> None:
        table.submit(number)
        driver.progress()  # else it may wait for the next one
        table.end_one()

    run_one(1)
    resolver.start()
    assert resolving.wait(10)
    run_one(2)
    driver.progress()
    driver.progress()
    assert len(resolved) == 2


def test_outcomes_are_restored_by_one_thread_at_a_time() -> None:
    """A library may load what it needs for it with the first one, as pint does its units.

    What goes into a journal is written all the same, however long the other thread takes.
    """

    def resolve(finished: Finished) -> None:
        resolved.append(threading.get_ident())
        resolving.set()
        assert go_on.wait(10)
        finished.outcomes.clear()

    def write_down(several: Iterable[Finished]) -> None:
        for finished in several:
            finished.written = True
            written.append(finished)

    resolved: list[int] = []
    written: list[Finished] = []
    resolving, go_on = threading.Event(), threading.Event()
    context = pool(resolve)
    context.write_down = write_down
    driver = Table(context).driver

    def end_one(number: int) -> None:
        task = Task(number, TaskKind.CALL, abs, context, b"", None, noted=nothing)
        driver._unresolved.append(Finished(context, 1, [(task, Kind.VALUE, b"")]))

    end_one(1)
    other = threading.Thread(target=driver.progress)
    other.start()
    assert resolving.wait(10)
    end_one(2)
    end_one(3)
    assert driver.progress() == 0
    assert (len(resolved), len(written), driver.busy) == (1, 3, True)
    go_on.set()
    other.join()
    while driver.progress():
        pass
    assert (len(resolved), len(written), driver.busy) == (3, 3, False)


def test_who_waits_sees_what_takes_long_to_restore_before_more_of_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(finished: Finished) -> None:
        nonlocal now
        now += takes_s.pop()
        finished.outcomes.clear()

    now = 0.0
    monkeypatch.setattr(unresolved_module, "monotonic", lambda: now)
    context = pool(resolve)
    driver = Table(context).driver
    for each_s, at_once in (0.0, 4), (2 * RESOLVED_S, 1):
        takes_s = [each_s] * 4
        for number in range(4):
            task = Task(number, TaskKind.CALL, resolve, context, b"", None)
            driver._unresolved.append(Finished(context, 1, [(task, Kind.VALUE, b"")]))
        assert driver.progress() == at_once


@pytest.mark.parametrize("much", [False, True])
def test_no_more_is_collected_while_much_is_to_be_restored(
    much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(finished: Finished) -> None:
        time.sleep(2 * RESOLVED_S)
        finished.outcomes.clear()

    monkeypatch.setattr(unresolved_module, "MUCH_NBYTES", 0 if much else 1 << 20)
    table = Table(pool(resolve))
    driver = table.driver
    for number in range(5):
        table.submit(number)
        driver.progress()  # else it may wait for the next one
    for _ in range(3):
        table.end_one()
    for left, in_table in [(2, 2), (1, 2), (0, 2), (1, 0)] if much else [(2, 2), (2, 1), (2, 0)]:
        driver.progress()
        assert (len(driver._unresolved), len(driver._rows)) == (left, in_table)
        if in_table and left + in_table > 2:
            table.end_one()


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


def test_a_row_that_was_lost_and_taken_back_is_free_when_its_worker_has_died() -> None:
    table = Table(rows=1)
    driver = table.driver
    table.submit(0)
    table.worker.request(table.claim(), Step.WANT, Piece(Stream.PAYLOAD, 0, 9, NOTHING))
    driver._published.rows.clear()  # a signal's handler has raised before it was noted
    driver._dispatcher._recover_s = 0.0  # it is time
    driver.progress()
    assert layout.state_of(table.window.load(table.geometry.word(0))) == State.EVICTED
    driver._published.free_evicted({1})
    assert layout.state_of(table.window.load(table.geometry.word(0))) == State.FREE


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
