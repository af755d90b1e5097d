"""Outcomes on their way from the driver to futures: who restores them, when, and in what order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from driven import Table, nothing, pool

from workpool.context import TaskKind
from workpool.driver import unresolved as unresolved_module
from workpool.driver.unresolved import RESOLVED, RESOLVED_S
from workpool.serializer import Kind
from workpool.tasks import Finished, Task


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


def test_another_thread_may_be_quicker() -> None:
    class Emptied(unresolved_module.Unresolved):
        def __len__(self) -> int:
            return 1  # as it was just now

    unresolved = Emptied()
    assert not unresolved.much
    assert unresolved.resolve() == 0
    assert not unresolved.hands


def test_a_submit_is_no_progress_while_futures_are_to_be_resolved() -> None:
    """Else nobody would resolve them as long as tasks are submitted."""
    table = Table()
    driver, beats = table.driver, []
    for number in range(2):
        before = driver.beats
        table.submit(number)
        beats.append(driver.beats - before)
        driver._unresolved.append(Finished(table.context, 1, ()))
    assert beats == [1, 0]


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
