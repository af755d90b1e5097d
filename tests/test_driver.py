"""The driver's half on a window in memory: what it does when, and what its failures leave."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workpool import layout
from workpool.backoff import SPINS, Backoff
from workpool.driver import driver as driver_module
from workpool.driver import waits as waits_module
from workpool.driver.collector import RETIRED
from workpool.driver.driver import Driver
from workpool.driver.waits import GLANCES, Waits
from workpool.layout import NOTHING, Extent, Geometry, Piece, Terms
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Stream
from workpool.serializer import Encoded, Kind, Packed, pack
from workpool.tasks import Batch, Context, Finished, PoolContext, Segment, Tally, Task, TaskKind
from workpool.testing import MemoryWindow


def nothing(*_: object) -> None:
    pass


def pool(
    resolve: Callable[[Finished], object] = nothing, tally: Tally | None = None
) -> PoolContext:
    """Return a pool whose outcomes go to `resolve`."""
    return PoolContext(1, Context(1, None, b""), resolve, nothing, tally)  # type: ignore[arg-type]


class Scene:
    """A driver, and a worker that does one step when it is told to."""

    def __init__(
        self, context: PoolContext | None = None, rows: int = 8, tracer: Any = None
    ) -> None:
        self.context = context or pool()
        geometry = Geometry(rows, 2, 1 << 20)
        window = MemoryWindow(geometry.nbytes)
        self.driver = Driver(window, geometry, tracer=tracer)
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

    def end_one(self, record: bytes = bytes(layout.OUTCOME_NBYTES)) -> None:
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
    scene = Scene(pool(resolve), tracer=trace)
    driver = scene.driver
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


def test_an_outcome_that_cannot_be_counted_is_collected_again() -> None:
    class Short(Counter[int]):
        """Of memory, when something is counted there for the first time."""

        def __setitem__(self, key: int, value: int) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise MemoryError
            super().__setitem__(key, value)

    resolved: list[int] = []
    failures = 2
    tally = Tally()
    tally.tasks, tally.elapsed_ns = Short(), Short()
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
    for _ in range(failures):
        with pytest.raises(MemoryError):
            driver.progress()
    driver.progress()
    assert (resolved, driver.outstanding) == ([1], 0)
    assert tally.tasks[1] == tally.elapsed_ns[1] // 5 == 1


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
    monkeypatch.setattr(driver_module, "COPY_S", 1e-6)  # 0.2 s
    arguments = [pack(np.full(25_000, n)) for n in range(4)]  # room for two
    tasks = [scene.submit(n, argument) for n, argument in enumerate(arguments)]
    assert [isinstance(task.payload, Packed) for task in tasks] == [True, True, served, served]


def test_who_reads_a_stream_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    driver = scene.driver
    driver._collector.row_s = 1.0  # so it sleeps
    scene.submit(1, pack(np.ones(100_000)))
    claim = scene.claim()
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    driver.waits.pause(Backoff(1.0))
    scene.worker.request(claim, Step.WANT, Piece(Stream.PAYLOAD, 0, 800_000, Extent(0, 0)))
    driver.progress()
    driver.waits.pause(Backoff(1.0))
    assert slept[0] >= 1e-3 > 1e-4 >= slept[1]


# --- waiting --------------------------------------------------------------------------------------


def waits_of(rest_s: float | None, glance_s: float = 0, rows: int = 1) -> tuple[Waits, list[str]]:
    """Return waits whose rows run for ever, and what they do meanwhile."""

    def progress() -> int:
        steps.append("progress")
        return 0

    def still() -> bool:
        steps.append("glance")
        time.sleep(glance_s)
        return True

    steps: list[str] = []
    return Waits(progress, lambda: rest_s, range(rows), lambda: True, still), steps


def test_who_waits_for_the_only_row_glances_at_it_until_it_has_ended() -> None:
    waits, steps = waits_of(None)
    assert waits.wait(lambda: len(steps) >= 5, None)  # by another thread
    assert steps == ["progress", *["glance"] * 4]
    steps.clear()
    assert waits.wait(lambda: steps.count("progress") >= 2, None)
    assert steps == ["progress", *["glance"] * (GLANCES - 1), "progress"]


def test_glances_end_with_the_time_to_wait() -> None:
    waits, steps = waits_of(None, glance_s=5e-3)
    assert not waits.wait(lambda: False, 1e-2)
    assert steps.count("glance") <= 2


def test_who_may_rest_does_not_glance() -> None:
    waits, steps = waits_of(1e-3)
    assert not waits.wait(lambda: False, 1e-2)
    assert steps.count("progress") > 1
    assert "glance" not in steps


@pytest.mark.parametrize(("rows", "looks"), [(1, GLANCES), (2, SPINS)])
def test_looks_that_take_longer_are_fewer(
    rows: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backoff(longest_s: float, spins: int) -> Backoff:
        made.append(spins)
        return Backoff(longest_s, spins)

    made: list[int] = []
    monkeypatch.setattr(waits_module, "Backoff", backoff)
    waits, _ = waits_of(None, rows=rows)
    assert not waits.wait(lambda: False, 1e-3)
    assert made == [looks]
