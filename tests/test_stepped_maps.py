"""Maps from end to end, step by step: who has which items, also when somebody dies of them."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any

import pytest
from stepped_pool import Endless, Make, Unsaid, die, die_once, drained, during, fail, note, ran

from workpool.errors import RemoteTraceback, SerializationError, UsageError, WorkerCrashed
from workpool.journal.journal import Journal
from workpool.pool.mapping import cutter, source, supply
from workpool.schedule import Schedule


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have segments of 64 items, the first of 32."""
    for module, name, items in [
        (cutter, "SEGMENT_ITEMS", 64),
        (supply, "SEGMENT_ITEMS", 64),
        (cutter, "FIRST_ITEMS", 32),
    ]:
        monkeypatch.setattr(module, name, items)


SCHEDULES = [one.name.lower() for one in Schedule]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
orders = pytest.mark.parametrize("unordered", [False, True])


@schedules
@orders
@pytest.mark.parametrize("workers", [1, 3])
def test_every_item_runs_once_and_comes_once(
    make: Make, schedule: str, unordered: bool, workers: int
) -> None:
    pool, total = make(workers), 0
    for number in (0, 1, 30, 300):
        for kind in (range, lambda n: list(range(n)), lambda n: iter(range(n))):
            ran.clear()
            found = list(pool.map(note, kind(number), schedule=schedule, unordered=unordered))
            assert sorted(found) == list(range(number))
            assert unordered or found == list(range(number))
            assert ran == Counter(range(number))
            total += number
    assert sum(stats.tasks for stats in pool.stats()) == total


@orders
def test_several_arguments(make: Make, unordered: bool) -> None:
    pool = make()
    powers = [n**2 for n in range(100)]
    assert sorted(pool.map(pow, range(100), repeat(2), unordered=unordered)) == powers
    assert sorted(pool.starmap(pow, zip(range(100), repeat(2)), unordered=unordered)) == powers
    assert sorted(pool.starmap(note, [(n,) for n in range(9)], unordered=unordered)) == [*range(9)]
    assert list(pool.map(max, range(100), [50] * 20)) == [50] * 20


@orders
@pytest.mark.usefixtures("short")
def test_long_lists_are_cut(make: Make, unordered: bool) -> None:
    pool = make()
    items = [float(n) for n in range(1000)]
    assert sorted(pool.map(note, items, unordered=unordered)) == items
    assert set(ran.values()) == {1}


@pytest.mark.usefixtures("short")
def test_long_ranges_are_cut(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cutter, source):
        monkeypatch.setattr(module, "RANGE_ITEMS", 99)
    pool = make()
    assert list(pool.map(note, range(1000))) == list(range(1000))
    assert pool.reduce(note, range(1000)) == sum(range(1000))


# What fails.


@schedules
@orders
def test_an_exception_comes_after_what_is_before_it(
    make: Make, schedule: str, unordered: bool
) -> None:
    pool = make()
    during[200] = fail
    found, error = drained(
        pool.map(note, range(1000), schedule=schedule, unordered=unordered), KeyError
    )
    assert unordered or found == list(range(200))
    assert isinstance(error.__cause__, RemoteTraceback)
    assert error.__cause__.item == 200
    assert set(ran.values()) == {1}
    assert sum(pool.map(abs, range(100))) == 4950


@schedules
def test_what_fails_and_is_not_read_runs_once(make: Make, schedule: str) -> None:
    pool = make()
    during[200] = fail
    results = pool.map(note, range(1000), schedule=schedule)
    pool.shutdown()
    assert set(ran.values()) == {1}
    assert set(range(201)) <= set(ran)
    assert drained(results, KeyError)[0] == list(range(200))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("bad", [0, 31, 32, 700, 999])
@pytest.mark.parametrize("buffersize", [None, 1024])
def test_what_cannot_be_pickled_fails_in_its_place(
    make: Make, monkeypatch: pytest.MonkeyPatch, bad: int, buffersize: int | None
) -> None:
    pool = make()
    items: list[Any] = list(range(2000))
    items[bad] = threading.Lock()
    found, error = drained(pool.map(note, items, buffersize=buffersize), SerializationError)
    assert found == list(range(bad))
    assert "argument 1 of 1 of type _thread.lock" in str(error)
    found, error = drained(
        pool.map(max, repeat(-1), items, buffersize=buffersize), SerializationError
    )
    assert found == list(range(bad))
    assert "argument 2 of 2 of type _thread.lock" in str(error)
    with pytest.raises(SerializationError):
        pool.reduce(note, items)


class Unsent:
    """Cannot be pickled, and cannot say why."""

    def __reduce__(self) -> Any:
        raise Unsaid


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("item", "why"), [(threading.Lock(), "TypeError"), (Unsent(), "its __str__")]
)
def test_items_of_a_reduce_that_cannot_be_sent_are_nothing_to_others(
    make: Make, item: Any, why: str
) -> None:
    """Who waits for something else makes its progress as well, and so does the attendant."""
    pool, items = make(), [*range(500), item]
    given = source.Source((items,), False, None)
    mapping = pool._maps._mapping(note, Schedule.ADAPTIVE, given, max)
    assert mapping.begin(items, large=True)
    while not mapping.over:
        assert pool.submit(abs, -1).result() == 1
    with pytest.raises(SerializationError, match=f"reduce's function or items: .*{why}"):
        mapping.fold(None)
    with pytest.raises(SerializationError, match=f"reduce's function or items: .*{why}"):
        pool.reduce(note, [item])
    with pytest.raises(SerializationError, match=f"reduce's function or items: .*{why}"):
        pool.reduce(functools.partial(note, item), [0])


class Large:
    """What goes with the items that its method is called with."""

    def note(self, item: Any) -> int:
        return len(item)


@pytest.mark.parametrize("bad", [0, 200])
def test_what_cannot_be_pickled_in_a_buffer_of_large_items_fails_in_its_place(
    make: Make, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """A window of them is cut into several parts at once, for the function goes with each."""
    monkeypatch.setattr(source, "WINDOWS", 2)
    monkeypatch.setattr(cutter, "SEGMENT_ITEMS", 1024)
    pool = make(arena_nbytes=1 << 25)
    items: list[Any] = [bytes(10_000 + n) for n in range(1400)]
    items[1000 + bad] = threading.Lock()
    found, error = drained(pool.map(Large().note, items, buffersize=1400), SerializationError)
    assert len(found) == 1000 + bad
    assert "argument 1 of 1 of type _thread.lock" in str(error)


# Who dies.


@schedules
@pytest.mark.parametrize("at", [0, 1, 150, 299])
def test_the_items_of_a_worker_that_dies_come_again(make: Make, schedule: str, at: int) -> None:
    pool = make(3)
    during[at] = die_once(at)
    assert list(pool.map(note, range(300), schedule=schedule)) == list(range(300))
    assert ran[at] == 2
    assert len(pool.members.dead) == 1
    assert sum(stats.evicted for stats in pool.stats()) == 1


@schedules
def test_items_that_three_workers_have_died_of_are_tried_no_more(make: Make, schedule: str) -> None:
    pool = make(5)
    during[100] = die
    found, error = drained(pool.map(note, range(300), schedule=schedule), WorkerCrashed)
    assert found == list(range(len(found)))
    assert len(found) <= 100
    assert "so did two others, at the same items" in str(error)
    assert ran[100] == 3


def test_deaths_at_different_items_do_not_add_up(make: Make) -> None:
    pool = make(5)
    during.update(dict.fromkeys((10, 110, 210, 290), lambda: (forget_all(), die())))

    def forget_all() -> None:
        for item in [item for item in during if ran[item]]:
            del during[item]

    assert list(pool.map(note, range(300), schedule="self")) == list(range(300))
    assert len(pool.members.dead) == 4


# Who is left.


@orders
def test_a_map_that_is_closed_lets_no_more_be_taken(make: Make, unordered: bool) -> None:
    pool = make()
    results = pool.map(note, range(1000), schedule="self", unordered=unordered)
    assert next(results) is not None
    results.close()
    seen = sum(ran.values())
    assert seen < 500
    pool.shutdown()
    assert sum(ran.values()) <= seen + 100


@pytest.mark.parametrize("buffersize", [1024, 2000, 5000])
@orders
def test_a_buffer_is_a_bound(make: Make, buffersize: int, unordered: bool) -> None:
    pool, items, most = make(), Endless(), 0
    results = pool.map(note, items, buffersize=buffersize, unordered=unordered)
    for used, _ in enumerate(islice(results, 4 * buffersize)):
        most = max(most, items.taken - used)
    results.close()
    assert buffersize // 2 < most <= buffersize
    ran.clear()
    results = pool.map(note, range(10 * buffersize), buffersize=buffersize, unordered=unordered)
    for _ in range(50):
        pool.driver.progress()
    assert buffersize // 2 < len(ran) <= buffersize


@orders
def test_a_map_goes_on_after_the_shutdown_with_what_it_has(make: Make, unordered: bool) -> None:
    pool = make()
    endless = pool.map(note, count(), buffersize=2048, unordered=unordered)
    whole = pool.map(note, range(500), unordered=unordered)
    assert next(endless) >= 0
    pool.shutdown(wait=False)
    found, _ = drained(endless, RuntimeError)
    assert len(found) == 2047
    assert sorted(whole) == list(range(500))


def test_a_map_is_cancelled_with_its_pool(make: Make) -> None:
    pool = make(rows=4)
    maps = [pool.map(note, range(100)) for _ in range(9)]  # more than there are counters
    pool.shutdown(cancel_futures=True)
    for results in maps:
        found, _ = drained(results, CancelledError)
        assert found == list(range(len(found)))


def test_more_maps_than_counters(make: Make) -> None:
    pool = make(rows=4)
    maps = [pool.map(note, range(n, n + 100)) for n in range(9)]
    for n, results in enumerate(maps):
        assert list(results) == list(range(n, n + 100))


@orders
def test_a_map_ends_with_its_time(make: Make, unordered: bool) -> None:
    pool = make()
    with pytest.raises(FutureTimeout):
        list(pool.map(note, range(100), timeout=-1, unordered=unordered))
    pool.driver.step = bool  # the workers do nothing
    with pytest.raises(FutureTimeout):
        list(pool.map(note, range(100), timeout=0.01, unordered=unordered))
    with pytest.raises(FutureTimeout):
        pool.reduce(note, range(100), timeout=0.01)
    pool.driver.step = pool.step
    assert pool.reduce(note, range(100), timeout=60) == sum(range(100))


# What is folded, or known.


@schedules
def test_a_reduce_counts_each_item_once(make: Make, schedule: str) -> None:
    pool = make(3)
    during[100] = die_once(100)
    assert pool.reduce(note, range(1000), schedule=schedule) == sum(range(1000))
    assert pool.reduce(note, list(range(1000)), op="max", schedule=schedule) == 999
    during[200] = fail
    with pytest.raises(KeyError) as raised:
        pool.reduce(note, range(1000), schedule=schedule)
    assert raised.value.__cause__.item == 200  # type: ignore[union-attr]


def refuse_600(a: Any, b: Any) -> Any:
    if 600 in (a, b):
        raise KeyError(600)
    return max(a, b)


@schedules
@pytest.mark.parametrize("op", [refuse_600, lambda a, b: threading.Lock()])
def test_a_reduce_that_fails_by_its_operation_names_no_item(
    make: Make, schedule: str, op: Any
) -> None:
    with pytest.raises((KeyError, SerializationError, TypeError)) as raised:
        make().reduce(note, range(1000), op=op, schedule=schedule)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert raised.value.__cause__.item is None, "what is folded is of any items"


def test_no_items_have_no_sum(make: Make) -> None:
    pool = make()
    with pytest.raises(UsageError):
        pool.reduce(note, [])


def lock_at_600(n: int) -> Any:
    return threading.Lock() if n == 600 else n


@schedules
def test_a_result_that_cannot_be_pickled_fails_in_its_place(make: Make, schedule: str) -> None:
    results = make().map(lock_at_600, range(1000), schedule=schedule)
    found, error = drained(results, SerializationError)
    assert found == list(range(600))
    assert error.__cause__.item == 600


@orders
def test_a_journal_knows_what_was_computed(make: Make, tmp_path: Path, unordered: bool) -> None:
    path = tmp_path / "run.db"
    pool = make(journal=path)
    during.update(dict.fromkeys(range(0, 900, 30), pool.members.work))  # then parts come mixed
    for items in range(2000, 2100), range(0, 900, 3):  # the turns of the second are longer
        assert list(pool.map(note, items, schedule="self")) == list(items)
    assert pool.submit(note, -1).result() == -1
    during[-2] = fail
    assert isinstance(pool.submit(note, -2).exception(), KeyError)
    pool.close()
    during.clear()
    ran.clear()
    pool = make(journal=path)
    found = list(pool.map(note, list(range(900)), unordered=unordered))
    assert sorted(found) == list(range(900))
    assert not unordered or sorted(found[:300]) == list(range(0, 900, 3))
    assert [pool.submit(note, n).result() for n in (-1, -2)] == [-1, -2]
    assert ran.pop(-2) == 1, "what has failed is tried again"
    assert ran == Counter(n for n in range(900) if n % 3)
    pool.close()
    ran.clear()
    during[1000] = fail
    pool = make(journal=path)
    found, error = drained(pool.map(note, range(100, 1100), unordered=unordered), KeyError)
    assert error.__cause__.item == 900
    assert unordered or found == list(range(100, 1000))
    with pytest.raises(UsageError, match="a journal could keep"):
        pool.reduce(note, range(9))


def test_what_a_journal_cannot_store_fails_and_nothing_else(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(journal: Journal, entries: Any) -> None:
        raise OSError("no room on the disk")

    pool = make()
    futures = [pool.submit(note, n) for n in range(5)]
    results = pool.map(note, range(100, 1000), journal=tmp_path / "run.db")
    monkeypatch.setattr(Journal, "store", store)
    assert drained(results, OSError)[0] == []
    assert [future.result() for future in futures] == list(range(5))
    results = pool.map(note, range(3), journal=tmp_path / "run.db", chunksize=1)
    assert drained(results, OSError)[0] == []
    monkeypatch.undo()
    again = pool.map(note, range(100, 1000), journal=tmp_path / "run.db")
    assert list(again) == list(range(100, 1000))
