"""What becomes of tasks and maps whose workers die, stop, or come back, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stepped_pool import Died, SteppedPool, die_once, during, note, pools, ran

from workpool.errors import BrokenPool
from workpool.testing import MemoryWindow

Make = Callable[..., SteppedPool]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return what makes a pool, of which nothing may be left in the end."""
    with pools() as make:
        yield make


def stop(pool: SteppedPool, item: Any, seconds: float = 3) -> Callable[[], None]:
    """Return what stops the worker that has an item, once, for so long; then it goes on."""

    def stopped() -> None:
        del during[item]
        member = pool.members.busy[-1]
        pool.members.states[member] = "stopped"
        for _ in range(int(10 * seconds)):
            pool.driver.progress()
        del pool.members.states[member]

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


@pytest.mark.parametrize("workers", [1, 3])
def test_everything_fails_when_the_last_worker_has_died(make: Make, workers: int) -> None:
    pool = make(workers)
    for n in range(workers):
        during[n] = die_once(n)
    futures = [pool.submit(note, n) for n in range(workers + 20)]
    results = pool.map(note, range(1000, 2000))
    for future in futures[workers:]:
        with pytest.raises(BrokenPool, match="every worker of the pool has died"):
            future.result()
    with pytest.raises(BrokenPool, match="every worker of the pool has died"):
        list(results)
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


@pytest.mark.parametrize("committed", [False, True])
def test_who_dies_after_the_commit_has_run_its_task(
    make: Make, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """And before it, the task runs once more: what it adds is added once in either case."""

    def accumulate(*args: Any) -> None:
        monkeypatch.undo()
        if committed:
            window.accumulate(*args)
        raise Died

    pool = make()
    window = pool.driver.window
    numbers = pool.accumulator((), "int64")
    if committed:
        monkeypatch.setattr(MemoryWindow, "accumulate", lambda self, *args: accumulate(*args))
    else:
        during[7] = die_once(7)
    assert pool.submit(note, 7, numbers).result() == 7
    assert ran[7] == 2 - committed
    assert numbers.value() == 1
    assert len(pool.members.dead) == 1


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


class Unsaid(Exception):
    """Has no message."""

    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


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
    assert bool(pool.driver._published._evicted) is not near
