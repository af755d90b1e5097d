"""Maps of which something fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_errors_come_at_their_item() -> None:
    script = """
        import threading
        from workpool import WorkPool
        from workpool.errors import SerializationError

        def refuse(n):
            if n == 700:
                raise KeyError(n)
            if n == 800:
                return threading.Lock()
            return n

        def drain(mapped, expected):
            found = []
            try:
                for value in mapped:
                    found.append(value)
            except expected as error:
                return found, error
            raise AssertionError("no error")

        class Broken:
            def __reduce__(self):
                return int, ("x",)

        with WorkPool() as pool:
            for _ in range(3):
                found, error = drain(pool.map(refuse, range(5000)), KeyError)
                assert found == list(range(700)) and error.args == (700,), (found[-3:], error)
                assert "raise KeyError(n)" in str(error.__cause__)
                found, error = drain(pool.map(refuse, range(701, 5000)), SerializationError)
                assert found == list(range(701, 800)), found[-3:]
                items = [*range(300), Broken(), *range(300)]
                found, error = drain(pool.map(str, items), SerializationError)
                assert found == [str(n) for n in range(len(found))] and len(found) <= 300
                items[300] = threading.Lock()
                found, error = drain(pool.map(str, items), SerializationError)
                assert found == [str(n) for n in range(300)], found[-3:]
            assert list(pool.map(abs, range(-5, 5))) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
    """
    run_ranks(3, script)


def test_what_cannot_be_restored_by_a_worker_fails_its_map() -> None:
    script = """
        import os
        from workpool import WorkPool

        driver = os.getpid()

        class Model:
            def __call__(self, n):
                return n

            def __setstate__(self, state):
                if os.getpid() != driver:
                    raise OSError("no such file on this host")

        model = Model()
        model.weight = 1
        with WorkPool() as pool:
            for use in (pool.map, pool.reduce):
                try:
                    list(use(model, range(10)))
                except Exception as error:
                    print("no such file" in str(error))
            print(sum(pool.map(abs, range(100))))
    """
    assert run_ranks(3, script).stdout == "True\nTrue\n4950\n"


def test_what_was_shared_out_of_a_map_that_failed_is_run_once(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from workpool import WorkPool
        from workpool.pool.core import Core

        def note(n):
            with open(sys.argv[1], "a") as file:
                print(n, file=file)
            return n

        def until_mapped():
            while not mapped.exists():
                time.sleep(0.01)

        def take_turn(self, *arguments):
            if turns:
                Core.take_turn = whole
                raise MemoryError
            turns.append(whole(self, *arguments))
            return turns[-1]

        turns, whole, Core.take_turn = [], Core.take_turn, take_turn
        mapped = Path(sys.argv[1] + " mapped")
        with WorkPool() as pool:
            busy = [pool.submit(until_mapped) for _ in range(pool.num_workers)]
            while not all(each.running() for each in busy):
                time.sleep(0.01)
            results = pool.map(note, range(1000))
            assert turns and Core.take_turn is whole
            mapped.touch()
            assert list(results) == list(range(1000))
        with open(sys.argv[1]) as file:
            assert sorted(map(int, file)) == list(range(1000))
    """
    run_ranks(3, script, str(tmp_path / "noted"))


def test_contributions_of_items_that_fail_do_not_count() -> None:
    script = """
        import threading
        from functools import partial
        from itertools import repeat
        import pytest
        from workpool import WorkPool

        def add_at_50(n, total):
            if n == 50:
                total.add(1)
                return threading.Lock()
            return n

        class Once:
            times = 0
            def __reduce__(self):
                self.times += 1
                if self.times == 2:
                    raise KeyboardInterrupt
                return int, ()

        def add_once(total):
            total.add(1)
            return Once()

        def add(n, total):
            total.add(1)
            if n == 2500:
                raise ValueError(n)
            return n

        with WorkPool() as pool:
            never = pool.accumulator((), "int64")
            try:
                list(pool.map(add_at_50, range(100), repeat(never), schedule="static"))
            except Exception as error:
                assert "cannot pickle" in str(error), error
            with pytest.raises(KeyboardInterrupt):
                list(pool.map(partial(add_once), [never]))  # a range, not a task
            total = pool.accumulator((), "int64")
            assert sum(pool.map(add, range(2000), repeat(total))) == sum(range(2000))
            assert total.value() == 2000
            try:
                for n in pool.map(add, range(2000, 3000), repeat(total), schedule="self"):
                    last = n
            except ValueError:
                assert last == 2499
            pool.shutdown()
            assert 2500 <= total.value() < 3000, total.value()
            assert never.value() == 0
    """
    run_ranks(3, script)


def test_a_map_of_which_turns_have_begun_is_not_begun_again() -> None:
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.pool.core import Core

        def add(numbers, n):
            numbers.add(1)
            return n

        def take_turn(self, *arguments):
            if threading.current_thread() is threading.main_thread():
                turns.append(None)
                if len(turns) == 2:
                    time.sleep(0.2)  # somebody has the first one meanwhile
                    raise MemoryError
            return whole(self, *arguments)

        turns, whole = [], Core.take_turn
        with WorkPool() as pool:
            numbers = pool.accumulator((), "int64")
            assert list(pool.map(abs, range(100))) == list(range(100))
            Core.take_turn = take_turn
            try:
                list(pool.starmap(add, [(numbers, n) for n in range(500)]))
            except MemoryError:
                pass
            else:
                raise AssertionError
            Core.take_turn = whole
        assert numbers.value() <= 500
    """
    run_ranks(3, script)


FAILING = """
import os, signal, sys, time
from pathlib import Path
from workpool import WorkPool

place = Path(sys.argv[1])

def note(name, what):
    with open(place / name, "a") as file:
        file.write(f"{what} ")

def notes(name):
    path = place / name
    return [int(word) for word in path.read_text().split()] if path.exists() else []

def until(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)

def fail(n):
    note("ran", n)
    if n == 500:
        raise KeyError(n)
    return n

def drain(mapped):
    found = []
    try:
        for value in mapped:
            found.append(value)
    except KeyError:
        return found
    raise AssertionError("no error")
"""


@pytest.mark.parametrize("schedule", ["adaptive", "static", "guided"])
def test_an_item_that_fails_runs_once_though_nobody_iterates(tmp_path: Path, schedule: str) -> None:
    script = f"""
with WorkPool() as pool:
    unread = pool.map(fail, range(1000), schedule={schedule!r})
    pool.shutdown()
    ran = notes("ran")
    assert len(ran) == len(set(ran)), len(ran)
    assert set(ran) >= set(range(501)), set(range(501)) - set(ran)
    assert drain(unread) == list(range(500))
with WorkPool() as pool:
    slow = pool.map(fail, list(range(1000)), schedule={schedule!r})
    read = [next(slow) for _ in range(3)]
    pool.map(fail, range(490, 1000), schedule={schedule!r})
with WorkPool() as pool:
    assert read + drain(slow) == list(range(500))
"""
    run_ranks(3, FAILING + script, str(tmp_path), timeout=30)


def test_what_comes_before_an_item_that_fails_is_not_lost_with_a_worker(tmp_path: Path) -> None:
    script = """
def stop(n):
    time.sleep(0.001)
    if n == 100 and not notes("stopped"):
        note("stopped", os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
    return fail(n)

with WorkPool(lease_s=0.5) as pool:
    mapped = pool.map(stop, range(1000))
    until(lambda: notes("stopped"))
    try:
        until(lambda: any(stats.evicted for stats in pool.stats()))
        until(lambda: 100 in notes("ran"))
    finally:
        os.kill(notes("stopped")[0], signal.SIGCONT)
    pool.shutdown()
    assert notes("ran").count(500) == 1
    assert drain(mapped) == list(range(500))
"""
    run_ranks(3, FAILING + script, str(tmp_path), timeout=40)


def test_a_reduce_fails_at_once(tmp_path: Path) -> None:
    script = """
def first(n):
    limit = time.monotonic() + 30
    while n == 0 and not notes("over") and time.monotonic() < limit:
        time.sleep(0.01)
    if n == 0 and not notes("over"):
        note("late", 0)
    return fail(500) if n == 69_999 else n  # in the last segment

with WorkPool() as pool:
    try:
        pool.reduce(first, list(range(70_000)))
    except KeyError:
        note("over", 0)
    assert notes("over") and notes("ran") == [500], notes("ran")
assert not notes("late"), "it has waited for the first item"
"""
    run_ranks(3, FAILING + script, str(tmp_path), timeout=60)


def test_a_reduce_raises_an_exception_that_is_false() -> None:
    """As one is that counts what it tells of, and has nothing to tell."""
    script = """
        from workpool import WorkPool

        class Empty(Exception):
            def __len__(self):
                return 0

        def fail(n):
            raise Empty

        with WorkPool() as pool:
            try:
                pool.reduce(fail, range(30))
            except Empty:
                pass
            else:
                raise AssertionError("it has a value")
    """
    run_ranks(2, script, timeout=40)


def test_a_reduce_whose_operation_raises_has_no_value() -> None:
    """However far the other items have come: those that it met last are not done."""
    script = """
        from workpool import WorkPool

        def add(a, b):
            if 499 in (a, b):
                raise LookupError("the last one")
            return a + b

        with WorkPool() as pool:
            for schedule in ("adaptive", "static", "self") * 5:
                try:
                    value = pool.reduce(int, range(500), op=add, schedule=schedule)
                except LookupError as error:
                    assert str(error) == "the last one", error
                else:
                    raise AssertionError(f"{schedule}: {value}")
    """
    run_ranks(3, script)
