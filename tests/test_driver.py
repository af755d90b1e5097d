"""The driver's half on a window in memory: what it does when, and what its failures leave."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from workpool import layout
from workpool.backoff import FIRST_S, SPINS, Backoff
from workpool.context import Context, TaskKind
from workpool.driver import dispatcher as dispatcher_module
from workpool.driver import driver as driver_module
from workpool.driver import progress as progress_module
from workpool.driver import unresolved as unresolved_module
from workpool.driver import waits as waits_module
from workpool.driver.collector import RETIRED, SHORT_S
from workpool.driver.driver import Driver
from workpool.driver.unresolved import RESOLVED_S
from workpool.driver.waits import Waits
from workpool.errors import TaskLost
from workpool.layout import NOTHING, Extent, Geometry, Piece, Terms
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Stream
from workpool.serializer import Code, Encoded, Kind, Packed, pack_value, unpack
from workpool.tasks import Batch, Finished, PoolContext, Segment, Tally, Task
from workpool.testing import MemoryWindow

#: An outcome that stands in the record itself, so that its worker waits for no room.
NOTHING_TO_FETCH = layout.write_outcome(Kind.VALUE, 5, layout.INLINE, 0).ljust(
    layout.OUTCOME_NBYTES, b"\0"
)


def nothing(*_: object) -> None:
    pass


def pool(
    resolve: Callable[[Finished], object] = nothing, tally: Tally | None = None
) -> PoolContext:
    """Return a pool whose outcomes go to `resolve`."""
    return PoolContext(1, Context(1, None, b""), resolve, nothing, tally)  # type: ignore[arg-type]


class Scene:
    """A driver, and a worker that does one step when it is told to."""

    def __init__(self, context: PoolContext | None = None, rows: int = 8) -> None:
        self.context = context or pool()
        self.geometry = geometry = Geometry(rows, 2, 1 << 20)
        self.window = window = MemoryWindow(geometry.nbytes)
        self.driver = Driver(window, geometry)
        self.worker = Claimant(window, geometry, 1, TAKERS["pointer"](window, 1))

    def submit(self, number: int, payload: Encoded = b"") -> Task:
        task = Task(number, TaskKind.CALL, abs, self.context, payload, None)
        self.driver.submit(task, None)
        return task

    def claim(self) -> Claim:
        found = self.worker.take(1)
        assert not isinstance(found, Miss)
        claim = self.worker.claim(found[0])
        assert isinstance(claim, Claim)
        return claim

    def end_one(self, record: bytes = NOTHING_TO_FETCH) -> None:
        self.worker.complete(self.claim(), record)


# --- what becomes of outcomes ---------------------------------------------------------------------


def test_what_an_interrupt_has_left_is_resolved_by_the_next() -> None:
    def resolve(finished: Finished) -> None:
        while finished.outcomes:
            resolved.append(finished.outcomes.popleft()[0].task_id)
            if resolved[-1] % 3 == 0:
                raise KeyboardInterrupt

    resolved: list[int] = []
    context = pool(resolve)
    tasks = [Task(n, TaskKind.CALL, resolve, context, b"", None) for n in range(8)]
    driver = Scene(context).driver
    driver._finished.append(Finished(context, 1, [(task, Kind.VALUE, b"") for task in tasks]))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            driver.progress()
    driver.progress()
    assert resolved == list(range(8))


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

    def trace(event: str, **_: object) -> None:
        if event == "collected" and resolving.is_set():
            collects.set()
            resolver.join(10)  # it takes all there is

    resolved: list[Finished] = []
    resolving, collects = threading.Event(), threading.Event()
    scene = Scene(pool(resolve))
    driver = scene.driver
    driver.trace.tracer = trace
    resolver = threading.Thread(target=driver.progress)

    def run_one(number: int) -> None:
        scene.submit(number)
        driver.progress()  # else it may wait for the next one
        scene.end_one()

    run_one(1)
    resolver.start()
    assert resolving.wait(10)
    run_one(2)
    driver.progress()
    driver.progress()
    assert len(resolved) == 2


def test_who_waits_sees_what_takes_long_to_restore_before_more_of_it_comes() -> None:
    def resolve(finished: Finished) -> None:
        time.sleep(takes_s.pop())
        finished.outcomes.clear()

    context = pool(resolve)
    driver = Scene(context).driver
    for each_s, at_once in (0.0, 4), (2 * RESOLVED_S, 1):
        takes_s = [each_s] * 4
        for number in range(4):
            task = Task(number, TaskKind.CALL, resolve, context, b"", None)
            driver._finished.append(Finished(context, 1, [(task, Kind.VALUE, b"")]))
        assert driver.progress() == at_once


@pytest.mark.parametrize("much", [False, True])
def test_no_more_is_collected_while_much_is_to_be_restored(
    much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(finished: Finished) -> None:
        time.sleep(2 * RESOLVED_S)
        finished.outcomes.clear()

    monkeypatch.setattr(unresolved_module, "MUCH_NBYTES", 0 if much else 1 << 20)
    scene = Scene(pool(resolve))
    driver = scene.driver
    for number in range(5):
        scene.submit(number)
        driver.progress()  # else it may wait for the next one
    for _ in range(3):
        scene.end_one()
    for left, in_table in [(2, 2), (1, 2), (0, 2), (1, 0)] if much else [(2, 2), (2, 1), (2, 0)]:
        driver.progress()
        assert (len(driver._finished), len(driver._rows)) == (left, in_table)
        if in_table and left + in_table > 2:
            scene.end_one()


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
    scene = Scene(
        pool(
            lambda finished: resolved.extend(task.task_id for task, _, _ in finished.outcomes),
            tally,
        )
    )
    driver = scene.driver
    scene.submit(1)
    driver.progress()
    record = layout.write_outcome(Kind.VALUE, 5, layout.INLINE, 0)
    scene.end_one(record.ljust(layout.OUTCOME_NBYTES, b"\0"))
    driver._collector._uncounted = Short()
    for _ in range(failures):
        with pytest.raises(MemoryError):
            driver.progress()
    driver.progress()
    assert (resolved, driver.outstanding) == ([1], 0)
    driver.count()
    assert (tally.tasks[1], tally.elapsed_ns[1]) == (1, 5)


def test_a_turn_that_finds_no_memory_is_no_task_of_its_worker() -> None:
    scene = Scene()
    collector = scene.driver._collector
    turn = Segment(1, b"", 1, Terms(0, 1, 1, 0, 1))
    for segment, counted in ((turn, 0), (None, 1)):
        task = Task(1, TaskKind.RANGE, abs, scene.context, b"", None, segment)
        collector.published.take_back = lambda batch, only=None: batch.tasks  # type: ignore[method-assign]
        collector._refuse(Batch([task], b""), 1, MemoryError())
        assert scene.context.tally.tasks[1] == counted


@pytest.mark.parametrize("state", [State.RESERVED, State.READY, State.WANTED, State.DONE])
def test_rows_of_steps_that_were_cut_off_are_used_again(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what a handler raises, before the driver has noted what it did."""

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    ended: list[int] = []
    scene = Scene(pool(lambda finished: ended.extend(t.task_id for t, *_ in finished.outcomes)))
    driver = scene.driver
    scene.submit(0)
    driver.progress()
    scene.end_one()
    driver.progress()
    published = state is not State.RESERVED
    holder = driver._published if published else driver._dispatcher._publisher.window
    claims: list[Claim] = []
    with monkeypatch.context() as patch:
        patch.setattr(holder, "add" if published else "put", cut_off)
        for number in range(8):  # as many as there are rows
            with pytest.raises(KeyboardInterrupt):
                scene.submit(number)
            driver._backlog.tasks.clear()  # whoever submits it finds it there, and cancels it
            if state is State.DONE:
                scene.end_one()
            elif state is State.WANTED:  # by a worker that waits for what nobody knows of
                claims.append(scene.claim())
                scene.worker.request(claims[-1], Step.WANT, Piece(Stream.PAYLOAD, 0, 9, NOTHING))
    driver._dispatcher._recover_s = 0.0  # it is time
    driver.progress()
    for claim in claims:
        assert isinstance(scene.worker.answered(claim, Step.SUPPLY), Miss)
    for _ in range(8):  # the tickets of rows that were withdrawn lead nowhere
        scene.worker.take(1)
    scene.submit(99)
    driver.progress()
    driver.progress()
    scene.end_one()
    driver.progress()
    assert ended == [0, 99]


@pytest.mark.parametrize("pieces", [False, True])
def test_an_outcome_is_here_before_its_worker_may_use_the_room_again(
    pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content: list[bytes] = []
    scene = Scene(pool(lambda done: content.extend(bytes(o) for _, _, o in done.outcomes)))
    driver = scene.driver
    scene.submit(1)
    driver.progress()
    claim, other = scene.claim(), MemoryWindow(scene.window.nbytes)
    other.memory = scene.window.memory
    extent = Extent(scene.geometry.region(1).offset, 300)

    def write(outcome: bytes) -> None:
        other.put(extent.offset, outcome)
        other.flush()

    publisher = driver._collector._publisher
    last_step = publisher.answer if pieces else publisher.retire

    def take_last_step(*arguments: Any) -> Any:
        write(bytes(300))  # the worker has waited for just that
        return last_step(*arguments)

    monkeypatch.setattr(publisher, last_step.__name__, take_last_step)
    write(bytes(range(100)) * 3)
    if pieces:
        assert scene.worker.request(claim, Step.OFFER, Piece(Stream.OUTCOME, 0, 300, extent))
        driver.progress()
        assert scene.worker.answered(claim, Step.TAKE) is not None
    record = layout.write_outcome(
        Kind.VALUE, 5, layout.STREAMED if pieces else extent.offset, extent.nbytes
    )
    scene.worker.complete(claim, record.ljust(layout.OUTCOME_NBYTES, b"\0"))
    driver.progress()
    assert content == [bytes(range(100)) * 3]


def test_rows_that_are_collected_are_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(rows=512)
    driver = scene.driver
    scene.submit(0)
    driver.progress()
    scene.end_one()
    driver.progress()
    assert driver._collector.retired
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    while driver._store.region.reserve(1 << 16):
        pass
    monkeypatch.setattr(driver._dispatcher, "_without_room", lambda batch: None)
    driver._dispatcher._recover_s = 0.0  # it is time
    scene.submit(1, pack_value(np.ones(10_000)))
    assert driver._dispatcher._full
    driver._collector.retire()


def test_counters_of_maps_that_were_lost_are_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(rows=2)
    segments = scene.driver._segments
    first, second, third = (Segment(n, b"", 5, Terms(0, 1, 1, 0, 1)) for n in range(3))
    assert segments.lend(first)
    assert segments.lend(second)
    assert not segments.lend(third)
    lent, first = first.items, third  # nobody has the first any more
    assert lent is not None
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


def test_what_is_dropped_leaves_the_arena_with_the_rows_that_were_collected() -> None:
    scene = Scene()
    driver = scene.driver
    before = driver._store.busy_nbytes
    scene.submit(1)
    driver.progress()
    scene.end_one()
    driver.progress()
    assert driver._store.busy_nbytes > before
    driver.drop(scene.context)
    assert driver._store.busy_nbytes == before


# --- what is done when ----------------------------------------------------------------------------


def test_who_finds_each_result_at_once_leaves_nothing_undone() -> None:
    """A script that works longer between submit and result than its task takes."""
    scene = Scene(rows=64)
    driver, again = scene.driver, scene.submit(0)
    driver.progress()
    scene.end_one()
    driver.progress()
    driver.retry(again, 0.01)
    limit = time.monotonic() + 30
    while again.batch is None:
        scene.submit(1)
        while not driver._rows:
            driver.progress()
        scene.end_one()
        driver.progress()
        assert len(driver._collector.retired) < RETIRED + 2
        assert time.monotonic() < limit


@pytest.mark.parametrize("served", [True, False])
def test_large_arguments_that_find_no_room_wait_for_it_before_they_are_copied(
    served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_a_task() -> None:
        found = scene.worker.take(1)
        for offer in found if served and not isinstance(found, Miss) else []:
            claim = scene.worker.claim(offer)
            assert isinstance(claim, Claim)
            scene.worker.complete(claim, bytes(layout.OUTCOME_NBYTES))

    scene = Scene()
    monkeypatch.setattr(os, "sched_yield", end_a_task)
    monkeypatch.setattr(dispatcher_module, "COPY_S", 1e-6)  # 0.2 s
    arguments = [pack_value(np.full(25_000, n)) for n in range(4)]  # room for two
    tasks = [scene.submit(n, argument) for n, argument in enumerate(arguments)]
    # What has been placed is no longer here, and what was copied is here alone.
    assert [len(task.payload) > 0 for task in tasks] == [False, False, not served, not served]
    payloads = [task.payload for task in tasks]
    assert all(payload.lent for payload in payloads if isinstance(payload, Packed))


def test_arguments_without_room_wait_for_a_row_that_will_give_it() -> None:
    scene = Scene()
    driver = scene.driver
    for number in range(3):
        scene.submit(number, pack_value(np.full(25_000, number)))  # room for two
        driver.progress()
    places = [scene.claim() for _ in range(2)]
    assert isinstance(scene.worker.take(1), Miss)
    scene.worker.complete(places[0], NOTHING_TO_FETCH)
    driver.progress()
    assert scene.claim().descriptor[0].payload == places[0].descriptor[0].payload


def test_who_reads_a_stream_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    driver = scene.driver
    driver._collector.row_s = 1.0  # so it sleeps
    scene.submit(1, pack_value(np.ones(100_000)))
    claim = scene.claim()
    slept: list[float] = []
    sleep, here = time.sleep, threading.get_ident()

    def noted(seconds: float) -> None:
        if threading.get_ident() == here:  # and no thread that another test has left
            slept.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(waits_module, "sleep", noted)
    driver.waits.pause(Backoff(1.0))
    scene.worker.request(claim, Step.WANT, Piece(Stream.PAYLOAD, 0, 800_000, Extent(0, 0)))
    driver.progress()
    driver.waits.pause(Backoff(1.0))
    assert slept[0] >= 1e-3 > 1e-4 >= slept[1]


def test_tasks_go_in_the_order_in_which_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one has waited for others that did not come."""
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    scene = Scene()
    driver = scene.driver
    driver.progress()
    driver._dispatcher._again_s = math.inf
    scene.submit(1)
    driver._dispatcher._again_s = 0.0
    scene.submit(2)
    assert [scene.claim().descriptor[0].task_id for _ in range(2)] == [1, 2]


def test_nothing_is_started_after_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    scene = Scene()
    scene.driver.progress()
    scene.driver.drain()
    scene.submit(1)
    scene.driver.progress()
    assert isinstance(scene.worker.take(1), Miss)


def test_what_finds_no_row_keeps_its_room_until_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    scene = Scene(rows=2)
    driver = scene.driver
    driver.progress()
    scene.submit(1)
    driver.progress()
    scene.submit(2)
    driver.progress()
    assert len(driver._rows) == 2
    free_nbytes = driver._store.region.free_nbytes
    task = scene.submit(3, pack_value(np.ones(10_000)))
    assert task.extent is not None
    driver.progress()
    assert driver._store.region.free_nbytes <= free_nbytes - 80_000
    assert driver.cancel(task)
    assert driver._store.region.free_nbytes == free_nbytes


def test_how_long_tasks_take_is_known_where_nothing_waits() -> None:
    scene = Scene(rows=64)
    driver = scene.driver
    for number in range(3 * RETIRED):
        task = Task(number, TaskKind.CALL, abs, scene.context, b"", None)
        driver.submit(task, Code(1, b"code"))
        while not driver._rows:
            driver.progress()
        scene.end_one()
        driver.progress()
        assert len(driver._collector._uncounted) < RETIRED + 2
    assert task.code is not None
    assert task.code.mean_s is not None


def test_a_pause_does_not_make_who_waits_rest_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    driver, times = scene.driver, [0.0]
    for module in (driver_module, progress_module):
        monkeypatch.setattr(module, "monotonic", lambda: times[0])
    driver._collector.row_s = 2 * SHORT_S
    rests = []
    for number in range(2):
        times[0] += 1.0
        scene.submit(number)
        rests.append(driver._rest_s())
        scene.end_one()
        driver.progress()
        driver._collector.row_s = 2 * SHORT_S
    assert rests == [FIRST_S, FIRST_S]


def test_rows_are_freed_one_by_one_only_while_a_worker_may_wait_for_that() -> None:
    extent = Extent(Scene(rows=64).geometry.region(1).offset, 8)
    record = layout.write_outcome(Kind.VALUE, 5, *extent).ljust(layout.OUTCOME_NBYTES, b"\0")
    for end, left in ((record, (0, 1)), (NOTHING_TO_FETCH, (1, 2))):
        scene = Scene(rows=64)
        driver = scene.driver
        for number in range(2):
            scene.submit(number)
            driver.progress()
        for retired in left:  # after the last one nobody runs anything that needs room
            scene.end_one(end)
            driver.progress()
            assert len(driver._collector.retired) == retired


@pytest.mark.parametrize("comes", ["task", "numbers"])
def test_what_the_last_result_has_left_in_the_arena_gives_way(comes: str) -> None:
    scene = Scene()
    driver = scene.driver
    region = driver._store.region
    nbytes = region.stretch.nbytes * 45 // 100
    scene.submit(1, bytes(nbytes))
    driver.progress()
    scene.end_one()
    driver.progress()
    assert region.free_nbytes < nbytes
    if comes == "task":
        scene.submit(2, bytes(nbytes))
        assert scene.claim().descriptor[0].payload.offset != layout.STREAMED
    else:
        assert driver.reserve(nbytes) is not None


def test_the_items_of_the_last_map_give_way_to_those_of_the_next() -> None:
    scene = Scene(rows=1024)
    driver = scene.driver
    content = bytes(driver._store.region.stretch.nbytes // 5)
    for number in range(3):
        segment = Segment(number, content, 5, Terms(0, 1, 1, 0, 5))
        driver.submit(Task(number, TaskKind.RANGE, abs, scene.context, b"", None, segment), None)
        driver._dispatcher.publish()
        claim = scene.claim()
        assert claim.descriptor[0].payload.offset != layout.STREAMED
        scene.worker.complete(claim, NOTHING_TO_FETCH)
        driver.progress()
        driver.end(segment)


def test_arguments_that_are_sent_in_pieces_are_as_they_were_at_submit() -> None:
    scene = Scene()
    driver, numbers = scene.driver, np.ones(100_000)
    scene.submit(1, pack_value(numbers))
    numbers[:] = 2
    claim = scene.claim()
    nbytes = claim.descriptor[0].nbytes
    content = b""
    while len(content) < nbytes:
        wanted = Piece(Stream.PAYLOAD, len(content), nbytes, Extent(0, 0))
        assert scene.worker.request(claim, Step.WANT, wanted)
        driver.progress()
        piece = scene.worker.answered(claim, Step.SUPPLY)
        assert isinstance(piece, Piece)
        content += scene.window.read(*piece.extent)
    assert (unpack(bytearray(content)) == 1).all()


# --- waiting --------------------------------------------------------------------------------------


def waits_of(rest_s: float | None, glance_s: float = 0) -> tuple[Waits, list[str]]:
    """Return waits whose rows run for ever, and what they do meanwhile."""

    def progress() -> int:
        steps.append("progress")
        return 0

    def still() -> bool:
        steps.append("glance")
        time.sleep(glance_s)
        return True

    steps: list[str] = []
    return Waits(progress, lambda: rest_s, lambda: True, still), steps


def test_who_waits_for_the_only_row_glances_at_it_until_it_has_ended() -> None:
    waits, steps = waits_of(None)
    assert waits.wait(lambda: len(steps) >= 5, None)  # by another thread
    assert steps == ["progress", *["glance"] * 4]
    steps.clear()
    assert waits.wait(lambda: steps.count("progress") >= 2, None)
    assert steps == ["progress", *["glance"] * (SPINS - 1), "progress"]


def test_who_looks_at_the_only_row_keeps_it_for_the_next_progress() -> None:
    scene = Scene()
    driver = scene.driver
    assert not driver._still()  # there is none
    scene.submit(1)
    driver.progress()
    assert driver._still()
    claim = scene.claim()
    assert driver._still()
    scene.worker.complete(claim, NOTHING_TO_FETCH)
    assert not driver._still()
    seen = driver._collector._seen
    driver.progress()
    assert not driver._rows
    driver._collector._seen = seen  # by another thread, too late
    scene.submit(2)
    driver.progress()
    assert driver._rows


def test_the_window_is_not_closed_while_somebody_looks() -> None:
    scene = Scene()
    driver = scene.driver
    scene.submit(1)
    driver.progress()
    closing = threading.Thread(target=driver.close)
    with driver._looking:
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        driver.drop(scene.context)  # by a finalizer, which asks nobody
    closing.join(10)
    assert not closing.is_alive()
    assert not driver._still()


def test_who_looks_is_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync() -> None:
        held.append(driver.held)

    held: list[bool] = []
    scene = Scene()
    driver = scene.driver
    scene.submit(1)
    driver.progress()
    look = scene.window.await_change
    monkeypatch.setattr(scene.window, "await_change", lambda *a, **k: (sync(), look(*a, **k))[1])
    assert not driver.held
    assert driver._still()
    assert held == [True]


def test_a_reader_that_was_collected_keeps_no_other_waiting() -> None:
    scene = Scene()
    driver = scene.driver
    payloads = [pack_value(np.ones(200_000)) for _ in range(2)]
    for number, payload in enumerate(payloads):
        scene.submit(number, payload)
        driver.progress()
    first, second = scene.claim(), scene.claim()
    total = len(payloads[0])
    for claim in (first, second):
        wanted = Piece(Stream.PAYLOAD, 0, total, NOTHING)
        assert scene.worker.request(claim, Step.WANT, wanted)
        driver.progress()
    assert isinstance(scene.worker.answered(first, Step.SUPPLY), Piece)
    assert scene.worker.answered(second, Step.SUPPLY) is None
    scene.worker.complete(first, NOTHING_TO_FETCH)  # in the middle of it
    for _ in range(3):
        driver.progress()
    assert isinstance(scene.worker.answered(second, Step.SUPPLY), Piece)


def test_glances_end_with_the_time_to_wait() -> None:
    waits, steps = waits_of(None, glance_s=5e-3)
    assert not waits.wait(lambda: False, 1e-2)
    assert steps.count("glance") <= 2


def test_who_may_rest_does_not_glance() -> None:
    waits, steps = waits_of(1e-3)
    assert waits.wait(lambda: steps.count("progress") > 2, 30)
    assert "glance" not in steps


@pytest.mark.parametrize("outstanding", [True, False])
def test_what_waits_on_the_driver_is_not_lost(outstanding: bool) -> None:
    """As a task does that is tried again later: nothing is in the table meanwhile."""
    waits = Waits(lambda: 0, lambda: 1e-3, lambda: outstanding, lambda: False)
    waits._patience_s = 1e-2
    with nullcontext() if outstanding else pytest.raises(TaskLost):
        assert not waits.wait(lambda: False, 0.1)
