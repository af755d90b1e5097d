"""What becomes of tasks and maps whose workers die, stop, or come back, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from stepped_pool import Died, Make, SteppedPool, Unsaid, die_once, drained, during, fail, note, ran

from workpool import layout
from workpool.accumulator import Accumulators
from workpool.errors import BrokenPool, SerializationError, TaskLost
from workpool.pool.future import PoolFuture
from workpool.protocol import State
from workpool.testing import MemoryWindow


def stop(pool: SteppedPool, item: Any, seconds: float = 3) -> Callable[[], None]:
    """Return what stops the worker that has an item, once, for so long; then it goes on."""

    def stopped() -> None:
        del during[item]
        pool.stop_current(seconds)

    return stopped


@pytest.mark.parametrize("carries", [False, True])
def test_what_a_stopped_worker_reports_late_does_not_count(make: Make, carries: bool) -> None:
    pool = make(carries=carries)
    numbers = pool.accumulator((), "int64")
    during[2] = stop(pool, 2)
    futures = [pool.submit(note, n, numbers) for n in range(5)]
    assert [future.result() for future in futures] == list(range(5))
    assert ran == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
    during[150] = stop(pool, 150)
    assert list(pool.map(note, range(100, 300), [numbers] * 200)) == list(range(100, 300))
    assert ran[150] == 2
    assert numbers.value() == 205
    assert sum(stats.evicted for stats in pool.stats()) == 2
    assert not pool.driver.recovery.ran  # nobody has died


def test_a_worker_that_is_stopped_for_less_than_its_lease_keeps_its_task(make: Make) -> None:
    pool = make()
    during[2] = stop(pool, 2, 0.8)
    assert [pool.submit(note, n).result() for n in range(5)] == list(range(5))
    assert set(ran.values()) == {1}


def test_a_task_that_raises_what_a_broken_pool_does_breaks_nothing(make: Make) -> None:
    def broken() -> None:
        raise BrokenPool("another one")

    pool = make()
    during[2] = broken
    futures = [pool.submit(note, n) for n in range(5)]
    assert [str(future.exception() or "") for future in futures] == ["", "", "another one", "", ""]
    assert drained(pool.map(note, range(50)), BrokenPool)[0] == [0, 1]
    assert pool.submit(note, 5).result() == 5


@pytest.mark.parametrize("workers", [1, 3])
def test_everything_fails_when_the_last_worker_has_died(make: Make, workers: int) -> None:
    pool = make(workers)
    for n in range(workers):
        during[n] = die_once(n)
    futures = [pool.submit(note, n) for n in range(workers + 20)]
    results = pool.map(note, range(1000, 2000))
    assert futures[-1].cancel()
    for future in futures[workers:-1]:
        with pytest.raises(BrokenPool, match="every worker of the pool has died"):
            future.result()
    with pytest.raises(BrokenPool, match="every worker of the pool has died"):
        list(results)
    assert futures[-1].cancelled()
    assert len(pool.members.dead) == workers
    assert set(pool.driver.recovery.ran.values()) == {note}
    with pytest.raises(BrokenPool):
        pool.submit(note, 5)


def test_it_is_said_once_each_time_that_no_worker_answers(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(states: dict[int, str]) -> int:
        pool.members.states.clear()
        pool.members.states.update(states)
        pool.driver._advanced_s = 0.0  # some time has passed
        future = pool.submit(note, 1)
        for _ in range(40):
            pool.driver.progress()
        pool.members.states.clear()
        assert future.result() == 1
        return capsys.readouterr().err.count("every worker is stopped, silent or dead")

    pool = make()
    assert told({1: "stopped", 2: "stopped"}) == 1
    assert told({1: "stopped"}) == 0
    assert told({1: "stopped", 2: "elsewhere"}) == 1
    assert told({}) == 0


def test_who_dies_before_the_commit_has_added_nothing(make: Make) -> None:
    pool = make()
    numbers = pool.accumulator((), "int64")
    during[7] = die_once(7)
    assert pool.submit(note, 7, numbers).result() == 7
    assert (ran[7], numbers.value()) == (2, 1)
    assert len(pool.members.dead) == 1


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("tasks", [1, 8])
@pytest.mark.parametrize("use", ["submit", "map", "reduce"])
def test_a_task_whose_worker_dies_between_commit_and_complete_is_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch, added: bool, tasks: int, use: str
) -> None:
    """What it has returned is there, but nobody knows whether what it has added is, too."""

    def accumulate(*args: Any) -> None:
        monkeypatch.undo()
        if added:
            window.accumulate(*args)
        raise Died

    pool = make()
    window = pool.driver.window
    numbers = pool.accumulator((), "int64")
    for _ in range(20):
        pool.submit(note, 0).result()  # so short that they share a row
    ran.clear()
    monkeypatch.setattr(MemoryWindow, "accumulate", lambda self, *args: accumulate(*args))
    if use == "submit":
        patient = pool.with_options(retries=3) if tasks == 1 else pool
        futures = [patient.submit(note, n, numbers) for n in range(tasks)]
        lost = [future for future in futures if isinstance(future.exception(), TaskLost)]
        assert 0 <= numbers.value() - (len(futures) - len(lost)) <= added * len(lost)
        assert "nobody knows whether it was" in str(lost[0].exception())
    elif use == "map":
        drained(pool.map(note, range(tasks), [numbers] * tasks), TaskLost)
    else:
        with pytest.raises(TaskLost, match="what task note adds to accumulators was being added"):
            pool.reduce(note, range(tasks), [numbers] * tasks)
    assert set(ran.values()) == {1}, "a task was run again"
    assert len(pool.members.dead) == 1
    assert pool.submit(note, 0).result() == 0


def test_a_task_whose_contributions_were_cut_off_is_not_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(self: Accumulators, parts: Any) -> None:
        monkeypatch.undo()
        self.add(parts)
        raise KeyboardInterrupt

    pool = make(carries=True)
    numbers = pool.accumulator((), "int64")
    monkeypatch.setattr(Accumulators, "add", cut_off)
    future = pool.with_options(retries=3).submit(note, 7, numbers)
    with pytest.raises(KeyboardInterrupt):
        future.result()
    with pytest.raises(TaskLost, match="nobody knows whether it was"):
        future.result()
    assert (ran[7], numbers.value()) == (1, 1)


@pytest.mark.parametrize("schedule", ["adaptive", "self", "guided", "static"])
@pytest.mark.parametrize("use", ["map", "reduce"])
@pytest.mark.parametrize("lost", [None, "dead", "stopped"])
def test_workers_run_in_the_midst_of_the_turns_of_others(
    make: Make, schedule: str, use: str, lost: str | None
) -> None:
    """So the chunks of one turn are apart, and who is lost has some between those of others."""
    items = range(400)
    for at in (3, 152, 399):
        ran.clear()
        pool = make(3)
        during.update(dict.fromkeys(items[::5], pool.members.work))
        if lost is not None:
            during[at] = die_once(at) if lost == "dead" else stop(pool, at)
        if use == "map":
            assert list(pool.map(note, items, schedule=schedule)) == list(items)
        else:
            assert pool.reduce(note, items, schedule=schedule) == sum(items)
        assert set(ran) == set(items)
        assert ran[at] == 1 + bool(lost)
        assert sum(stats.evicted for stats in pool.stats()) == bool(lost)


def begin() -> None:
    raise Unsaid


def test_an_initializer_fails_whatever_becomes_of_its_message(make: Make) -> None:
    """Whoever makes the progress is not to get that, and least of all the attendant."""
    pool = make(initializer=begin)
    futures = [pool.submit(note, n) for n in range(20)]
    results = pool.map(note, range(1000))
    with pytest.raises(BrokenPool, match="initializer failed"):
        list(results)
    for future in futures:
        with pytest.raises(BrokenPool, match=r"initializer failed: .*Unsaid: <its __str__ raised"):
            future.result()
    assert not ran


@pytest.mark.parametrize("near", [True, False])
def test_the_row_of_one_who_has_died_on_another_host_is_not_used_again(
    make: Make, near: bool
) -> None:
    """What it has put last may still be on its way."""
    pool = make()
    pool.members.near = lambda member: near  # type: ignore[method-assign]
    during[7] = die_once(7)
    assert pool.submit(note, 7).result() == 7
    assert list(pool.map(note, range(20, 500))) == list(range(20, 500))
    states = map(layout.state_of, pool.driver._published._publisher.look())
    assert (State.EVICTED in states) is not near


def test_items_before_one_that_fails_are_not_lost_with_another_worker(make: Make) -> None:
    """Whose chunk was taken in the midst of the turn that has failed."""
    pool = make()
    assert list(pool.map(note, range(100, 200))) == list(
        range(100, 200)
    )  # its turns are longer now
    during.update({0: pool.members.work, 1: die_once(1), 5: fail})
    found, error = drained(pool.map(note, range(100), schedule="self"), KeyError)
    assert found == list(range(5))
    assert error.__cause__.item == 5
    assert (ran[1], ran[5]) == (2, 1)


def test_many_workers_may_be_stopped_at_the_same_item(make: Make) -> None:
    """That is not the item's doing, as their death would be."""
    pool, left = make(7), 5

    def again() -> None:
        nonlocal left
        left -= 1
        during[150] = again if left else bool
        pool.stop_current(2)

    during[150] = again
    assert list(pool.map(note, range(300))) == list(range(300))
    assert ran[150] == 6


class Unrestored:
    """Cannot be restored, by whoever runs it."""

    def __call__(self, item: int) -> int:
        return item

    def __setstate__(self, state: object) -> None:
        raise OSError("no such file on this host")


def test_what_cannot_be_restored_fails_its_map(make: Make) -> None:
    pool, function = make(), Unrestored()
    function.weight = 1  # type: ignore[attr-defined]
    for use in (lambda: list(pool.map(function, range(100))), lambda: pool.reduce(function, [1])):
        with pytest.raises(SerializationError, match="no such file on this host"):
            use()


def restored_at_home(item: int) -> object:
    return Returned() if item == 41 else item


class Returned:
    """Can be restored by nobody."""

    def __reduce__(self) -> tuple[object, ...]:
        return fail, ()


def test_items_whose_results_cannot_be_restored_are_named(make: Make) -> None:
    with pytest.raises(SerializationError, match="of a map: cannot restore the outcome") as told:
        list(make().map(restored_at_home, range(100), schedule="static"))
    _, first, _, last, *_ = str(told.value).split()
    assert int(first) <= 41 <= int(last)


def test_what_counts_has_no_result_before_it_is_counted(make: Make) -> None:
    """Though those of its row that have ended are fetched, because one behind them is withdrawn."""
    pool = make()
    numbers = pool.accumulator((), "int64")
    assert pool.submit(note, 0, numbers).result() == 0
    pool.driver.count()
    for code in pool.driver._store._codes.values():
        code.measured(1, [1000] * 1000)  # however busy the machine is
    pool.driver._dispatcher.draining = True  # the next ones wait for each other
    futures = [pool.submit(note, n, numbers) for n in range(10, 20)]

    def withdraw_and_die() -> None:
        del during[11]
        seen.append(futures[5].cancel())
        pool.driver.progress()
        seen.append(futures[0].done())
        raise Died

    seen: list[bool] = []
    during[10] = lambda: time.sleep(1e-3)  # else the next ones are started together
    during[11] = withdraw_and_die
    pool.driver._dispatcher.draining = False
    assert [future.result() for n, future in enumerate(futures) if n != 5] == [
        n for n in range(10, 20) if n != 15
    ]
    assert seen == [True, False]
    assert ran[10] == ran[11] == 2
    assert numbers.value() == 10


def test_a_task_that_is_lost_is_counted_once_whoever_gives_it_up(make: Make) -> None:
    def resolve(*outcome: Any) -> None:
        core.lose(future, TaskLost("by another thread"))
        resolves(*outcome)

    core = make()._core
    future: PoolFuture[None] = PoolFuture(core)
    resolves, future.resolve = future.resolve, resolve  # type: ignore[method-assign]
    core._pending = 1
    core.lose(future, TaskLost("here"))
    assert str(future.exception()) == "here"
    assert core._pending == 0


def test_a_task_for_which_there_is_no_memory_is_not_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> None:
        raise MemoryError

    pool = make()
    monkeypatch.setattr(pool.driver, "submit", submit)
    with pytest.raises(MemoryError):
        pool.submit(note, 1)
    assert pool._core._pending == 0
