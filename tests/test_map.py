"""``map`` without a chunk size: shared out by the workers, and the same to whoever iterates."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_everything_comes_in_order(ranks: int) -> None:
    script = """
        import itertools
        import numpy as np
        from workpool import WorkPool

        def same(item):
            return item

        names = ("adaptive", "static", "self", "guided", "factoring", "trapezoid")
        with WorkPool() as pool:
            for schedule in names:
                for items in (range(0), range(1), range(5, 3000, 7), list("abc"), [(1, 2)] * 700):
                    found = list(pool.map(same, items, schedule=schedule))
                    assert found == list(items), (schedule, items)
            numbers = [float(n) for n in range(200_000)]  # more than one segment
            assert list(pool.map(same, numbers)) == numbers
            assert list(pool.map(lambda n: n + 1, numbers)) == [n + 1 for n in numbers]
            assert list(pool.map(pow, numbers, itertools.repeat(2))) == [n**2 for n in numbers]
            assert list(pool.map("{}{}".format, "abc", range(2))) == ["a0", "b1"]
            lines = np.arange(6_000.0).reshape(-1, 3)
            for found, line in zip(pool.map(same, lines), lines, strict=True):
                assert np.array_equal(found, line)
            window = pool.map(same, iter(numbers), buffersize=5000)
            assert list(window) == numbers
            large = [np.full(100_000, n) for n in range(20)]
            assert [array[0] for array in pool.map(same, large)] == list(range(20))
            assert [len(text) for text in pool.map("x".__mul__, [10**6] * 40)] == [10**6] * 40
            ran = sum(stats.tasks for stats in pool.stats())
        expected = 6 * (0 + 1 + 428 + 3 + 700) + 4 * 200_000 + 2 + 2_000 + 20 + 40
        assert ran == expected, (ran, expected)
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_a_list_holds_is_not_copied_and_what_a_generator_reuses_is(ranks: int) -> None:
    script = """
        import time
        import numpy as np
        from workpool import WorkPool
        from workpool.system.copies import Copies

        one = np.zeros(100_000)
        copied = []
        copy = Copies.copy

        def counted(copies, content):
            copied.append(len(content))
            return copy(copies, content)

        def reused():
            for n in range(200):
                one[:] = n
                yield one

        def last(array):
            time.sleep(0.002)  # so that others are not worth waiting for
            return float(array[-1])

        with WorkPool(arena_nbytes=8 << 20) as pool:
            arrays = [np.full(100_000, float(n)) for n in range(200)]
            last_of = list(pool.map(last, arrays[:2]))
            Copies.copy = counted
            views = pool.with_options(retries=1, retry_on=KeyError), pool
            for view in views:
                assert list(view.map(last, arrays)) == list(range(200))
                assert list(view.map(last, np.array(arrays), chunksize=1)) == list(range(200))
                assert list(view.starmap(last, [(array,) for array in arrays])) == list(range(200))
            assert len(copied) * (pool.num_workers > 1) == 0, len(copied)
            assert list(pool.map(last, reused(), chunksize=1)) == list(range(200))
            assert copied
            journalled = pool.map(last, arrays, chunksize=1, journal="run.db")
            for array in arrays:
                array[:] = -1  # the results are for what was there
            assert list(journalled) == list(range(200))
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_are_as_they_were_when_their_call_returned(ranks: int) -> None:
    """A function may fill one workspace again and again, and return it, or a part of it."""
    script = """
        import dataclasses, decimal
        import numpy as np
        from workpool import WorkPool

        workspace = np.zeros((2, 1000))
        seen, state = [], {}

        def fill(n):
            workspace[0, :10] = n
            return workspace[0, :10]

        def fill_all(n):
            workspace[:] = n
            return workspace

        def note(n):
            seen[:] = [n]
            state["n"] = seen
            return seen, state

        class Solver:
            def __init__(self):
                self.u = [0]
            def step(self, n):
                self.u[0] = n
                return self.u

        @dataclasses.dataclass
        class State:
            n: int
            u: np.ndarray

        class Solution:
            def __init__(self):
                self.xp, self.u = np, np.zeros(3)  # a module, which no copy is made of

        solution = Solution()

        def solve(n):
            solution.u[:] = n
            return solution, lambda: solution.u[0]

        current, states = State(0, workspace), []

        def step(n):
            current.n = n
            current.u[0, 0] = n
            return current

        def grow(n):
            states[:] = [State(n, workspace[:1, :1])]
            workspace[0, 0] = n
            return states, lambda: n

        with WorkPool() as pool:
            for options in ({}, {"schedule": "static"}, {"chunksize": 50}):
                for n, value in enumerate(pool.map(step, range(500), **options)):
                    assert type(value) is State and value.n == value.u[0, 0] == n, (n, value)
                for n, (value, function) in enumerate(pool.map(solve, range(500), **options)):
                    assert value.u[0] == value.u[2] == function() == n, (n, value)
                for n, ((value,), function) in enumerate(pool.map(grow, range(500), **options)):
                    assert value.n == value.u[0, 0] == function() == n, (n, value)
                for n, value in enumerate(pool.map(fill, range(500), **options)):
                    assert value.shape == (10,) and (value == n).all(), (n, value)
                    value += 1  # and it is ours
                for n, value in enumerate(pool.map(fill_all, range(500), **options)):
                    assert value.shape == (2, 1000) and (value == n).all(), (n, value)
                    value += 1
                for n, value in enumerate(pool.map(note, range(500), **options)):
                    assert value == ([n], {"n": [n]}), (n, value)
                for n, value in enumerate(pool.map(Solver().step, range(500), **options)):
                    assert value == [n]
                for value in (np.float64(2), (1, 2.5), decimal.Decimal(3), ValueError):
                    found = list(pool.map(lambda _, value=value: value, range(500), **options))
                    assert {type(one) for one in found} == {type(value)}
                    assert str(found[:1] + found[-1:]) == str([value] * 2)
            assert (pool.reduce(fill, range(1000)) == 499_500).all()
            assert pool.reduce(note, range(1000), op=lambda a, b: max(a, b))[0] == [999]
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_are_as_they_were_although_the_end_of_an_item_ends_them(ranks: int) -> None:
    """An array in shared memory that is attached to by an item is there as long as the item is."""
    script = """
        from workpool import WorkPool

        class Workspace:
            def __init__(self, n):
                self.found = [n]
            def __del__(self):
                self.found.clear()

        def use(workspace):
            return workspace.found

        with WorkPool() as pool:
            for options in ({}, {"schedule": "self"}, {"chunksize": 1}, {"chunksize": 5}):
                found = pool.map(use, [Workspace(n) for n in range(100)], **options)
                assert list(found) == [[n] for n in range(100)]
                found = pool.starmap(use, [(Workspace(n),) for n in range(100)], **options)
                assert list(found) == [[n] for n in range(100)]
    """
    run_ranks(ranks, script)


def test_a_result_is_as_it_was_although_no_other_is_of_its_block() -> None:
    """Items that are sent with their function, in blocks of 256: two workers share out 510."""
    script = """
        import random  # has a global that is one for all that is sent
        from workpool import WorkPool

        class Box: pass

        box = Box()

        def note(item):
            seen = vars(random).setdefault("seen", [])
            seen.append(item is box)
            return len(seen), seen

        with WorkPool() as pool:
            for n, seen in pool.map(note, [box] * 510, schedule="static"):
                assert seen == [True] * n
    """
    run_ranks(3, script)


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


def test_a_large_buffer_is_a_bound() -> None:
    script = """
        from itertools import islice
        from workpool import WorkPool

        taken = 0

        def numbers():
            global taken
            while True:
                taken += 1
                yield taken

        with WorkPool() as pool:
            results = pool.map(abs, numbers(), buffersize=1_000_000)
            for _ in range(6):
                count = sum(1 for _ in islice(results, 100_000))
            print(taken <= 600_000 + 1_000_000)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_long_map_keeps_nothing_of_what_was_used() -> None:
    script = """
        import time
        from workpool import WorkPool, tasks

        alive = set()

        class Task(tasks.Task):
            __slots__ = ()

            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                alive.add(id(self))

            def __del__(self):
                alive.discard(id(self))

        with WorkPool() as pool:
            pool.map.__globals__["Core"].take_turn.__globals__["Task"] = Task
            most = 0
            for n in pool.map(lambda n: time.sleep(0.001), range(3_000)):
                most = max(most, len(alive))
            print(0 < most <= 16)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_map_that_is_left_keeps_no_results() -> None:
    script = """
        import gc
        import time
        from workpool import WorkPool
        from workpool.turns import Part

        def content(n):
            return n.to_bytes(4, "big") * 25_000

        with WorkPool() as pool:
            gc.collect()
            gc.disable()
            for _ in range(3):
                results = pool.map(content, range(300))
                next(results)
                time.sleep(0.3)  # others come
                del results
            assert pool.submit(abs, -1).result() == 1
            kept = [it for it in gc.get_objects() if type(it) is Part]
        assert not kept, len(kept)
    """
    run_ranks(3, script)


def test_a_buffer_is_not_filled_after_shutdown() -> None:
    script = """
        import itertools
        from workpool import WorkPool

        def same(item):
            return item

        with WorkPool(rows=64) as pool:
            endless = pool.map(same, itertools.count(), buffersize=2048)
            found = [next(endless) for _ in range(3)]
            ends = pool.map(same, iter(range(2000)), buffersize=2048)
        with WorkPool(rows=128) as other:  # in a table of its own: that of the first is closed
            assert other.submit(same, 1).result() == 1
            try:
                for value in endless:
                    found.append(value)
            except RuntimeError as error:
                assert "after shutdown" in str(error), error
            assert found == list(range(2048)), len(found)
            assert list(ends) == list(range(2000))
    """
    run_ranks(3, script)


def test_what_cannot_be_pickled_fails_in_its_place_of_a_buffer() -> None:
    script = """
        import itertools, threading
        from workpool import WorkPool
        from workpool.job import entry
        from workpool.errors import SerializationError

        def first(item, *others):
            return item

        def items(bad):
            for n in range(20_000):
                yield threading.Lock() if n == bad else n

        def drain(mapped):
            found = []
            try:
                for value in mapped:
                    found.append(value)
            except SerializationError as error:
                return found, str(error)
            raise AssertionError("no error")

        with WorkPool() as pool:
            message = drain(pool.map(first, items(0)))[1]
            assert "argument 1 of 1 of type _thread.lock" in message, message
            # In the first window, in another one that is sent at once, in one that is sent later.
            for bad in (0, 700, 1024, 3000, 9000, 19_999):
                found, error = drain(pool.map(first, items(bad), buffersize=4096))
                assert found == list(range(bad)) and error == message, (bad, len(found), error)
                two = pool.map(first, range(20_000), items(bad), buffersize=4096)
                found, error = drain(two)
                assert found == list(range(bad)), (bad, len(found))
                assert "argument 2 of 2 of type _thread.lock" in error, error
            assert list(pool.map(first, iter(range(9000)), buffersize=4096)) == list(range(9000))
            pool.shutdown()
            assert not any(driver.outstanding for driver in entry.current().tables.drivers)
    """
    run_ranks(3, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_items_of_a_long_list_are_pickled_as_workers_come_near_them(ranks: int) -> None:
    """So that they are not there twice, and the first are computed while others are pickled."""
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.pool.mapping import cutter, supply

        class Item:
            pickled = 0

            def __init__(self, n):
                self.n = n

            def __reduce__(self):
                Item.pickled += 1
                return int, (self.n,)

        def slowly(n):
            time.sleep(2e-5)
            return n

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        items = [Item(n) for n in range(6_000)]
        with WorkPool() as pool:
            ahead, most = [], 0
            mapped = pool.map(slowly, items)
            assert Item.pickled <= 1024, Item.pickled
            for at, n in enumerate(mapped):
                assert n == at
                ahead.append(Item.pickled - at)
            assert max(ahead) < 4_000, max(ahead)
            assert Item.pickled == len(items)
            # Nobody iterates.
            unread = pool.map(slowly, items)
            deadline = time.monotonic() + 60
            while Item.pickled < 2 * len(items):
                assert time.monotonic() < deadline, Item.pickled
                time.sleep(0.01)
            assert list(unread) == list(range(6_000))
            many = [pool.map(slowly, items) for _ in range(2)]
            total = pool.reduce(slowly, items)
            assert total == sum(range(6_000)), total
            left = pool.map(slowly, items)
            del left
            late = pool.map(slowly, items)
        for mapped in (*many, late):
            assert list(mapped) == list(range(6_000))
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("nbytes", [10, 1000, 8000])
def test_no_more_items_are_taken_than_the_buffer_holds_however_large_they_are(nbytes: int) -> None:
    script = f"""
        from workpool import WorkPool

        def items():
            global taken
            for taken in range(1, 30_001):
                yield bytes({nbytes})

        with WorkPool() as pool:
            most = 0
            for used, length in enumerate(pool.map(len, items(), buffersize=4096)):
                most = max(most, taken - used)
                assert length == {nbytes}
            assert used == 29_999
            assert 2000 < most <= 4096, most
    """
    run_ranks(3, script)


def test_what_cannot_be_pickled_late_in_a_list_fails_in_its_place() -> None:
    script = """
        import itertools, threading
        from workpool import WorkPool
        from workpool.errors import SerializationError
        from workpool.pool.mapping import cutter, supply

        def first(item, *others):
            return item

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        with WorkPool() as pool:
            for bad in (511, 512, 700, 1500, 9_999):
                items = [threading.Lock() if n == bad else n for n in range(10_000)]
                for mapped in (pool.map(first, items), pool.map(first, range(10_000), items)):
                    found = []
                    try:
                        for value in mapped:
                            found.append(value)
                        raise AssertionError(bad)
                    except SerializationError as error:
                        assert found == list(range(bad)), (bad, len(found))
                        assert "of type _thread.lock" in str(error), error
                try:
                    pool.reduce(first, items)
                    raise AssertionError(bad)
                except SerializationError as error:
                    assert "cannot pickle" in str(error), error
            assert list(pool.map(first, range(1000))) == list(range(1000))
    """
    run_ranks(3, script)


def test_what_a_map_calls_is_as_it_was_when_the_map_began() -> None:
    script = """
        import time
        from workpool import WorkPool
        from workpool.pool.mapping import cutter, supply

        class Adder:
            def add(self, n):
                time.sleep(2e-5)
                return n + self.more

        def plus(n):
            time.sleep(2e-5)
            return n + step + table[0]

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        adder, items = Adder(), [float(n) for n in range(5_000)]
        with WorkPool() as pool:
            for _ in range(3):
                adder.more, step, table = 1, 1, [0]
                for fn in (adder.add, plus, lambda n: n + step):
                    adder.more, step, table[0] = 1, 1, 0
                    found = []
                    for value in pool.map(fn, items):
                        found.append(value)
                        adder.more, step, table[0] = 7, 7, 7
                    assert found == [n + 1 for n in items], fn
    """
    run_ranks(3, script)


def test_a_range_whose_function_could_not_be_sent_at_first_is_mapped_once() -> None:
    script = """
        from workpool import WorkPool

        class Late:
            def __init__(self):
                self.failed = False
            def __call__(self, n):
                return n
            def __reduce__(self):
                if not self.failed:
                    self.failed = True
                    raise MemoryError
                return Late, ()

        with WorkPool() as pool:
            for items in (range(1000), list(range(1000))):
                assert list(pool.map(Late(), items)) == list(range(1000))
    """
    run_ranks(2, script)


def test_what_was_shared_out_of_a_map_that_failed_is_run_once(tmp_path: Path) -> None:
    script = """
        import sys, time
        from workpool import WorkPool
        from workpool.pool.core import Core

        def note(n):
            with open(sys.argv[1], "a") as file:
                print(n, file=file)
            return n

        def take_turn(self, *arguments):
            if turns:
                Core.take_turn = whole
                raise MemoryError
            turns.append(whole(self, *arguments))
            return turns[-1]

        turns, whole, Core.take_turn = [], Core.take_turn, take_turn
        with WorkPool() as pool:
            busy = [pool.submit(time.sleep, 1) for _ in range(pool.num_workers)]
            while not all(each.running() for each in busy):
                time.sleep(0.01)
            assert list(pool.map(note, range(1000))) == list(range(1000))
        assert turns
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


def test_a_few_items_do_not_copy_their_function() -> None:
    script = """
        from workpool import WorkPool

        class Numbers(list):
            def __getitem__(self, at):
                return super().__getitem__(int(at))

        class Model:
            pickled = 0
            def __reduce__(self):
                Model.pickled += 1
                return Model, ()
            def predict(self, n):
                return n + 1

        model = Model()
        with WorkPool() as pool:
            assert list(pool.map(model.predict, range(8))) == list(range(1, 9))
            assert Model.pickled <= 2, Model.pickled
            assert next(pool.map(abs, range(10**20), buffersize=100)) == 0
            assert list(pool.map(abs, Numbers([-1, -2]))) == [1, 2]
        with WorkPool(max_pending=1) as pool:
            assert list(pool.map(abs, range(-8, 0), timeout=30)) == list(range(8, 0, -1))
    """
    run_ranks(2, script)


def test_uneven_items_fall_evenly() -> None:
    script = """
        import time
        from workpool import WorkPool

        def work(n):
            time.sleep(0.2 if n > 1990 else 0.0001)

        with WorkPool() as pool:
            list(pool.map(work, range(100)))
            for _ in range(5):  # a machine that does something else for a second is not at fault
                begun = time.perf_counter()
                list(pool.map(work, range(2000)))  # nine long ones at the end, for three workers
                wall_s = time.perf_counter() - begun
                if wall_s < 1.6:
                    break
        assert wall_s < 1.6, wall_s
    """
    run_ranks(4, script)


def test_many_maps_at_once_and_left_alone() -> None:
    script = """
        import gc, time
        from workpool import WorkPool
        from workpool.job import entry

        def same(item):
            return item

        def slow(item):
            time.sleep(0.0002)
            return item

        with WorkPool(rows=4) as pool:
            maps = [pool.map(slow, range(100)) for n in range(12)]  # more than counters
            for mapped in maps:
                assert list(mapped) == list(range(100))
            for _ in range(30):
                maps = [pool.map(same, range(n, n + 1000)) for n in range(20)]
                assert next(maps[3]) == 3
                maps[3].close()
                del maps[4:10]
                gc.collect()
                for n, mapped in enumerate(maps[:3]):
                    assert list(mapped) == list(range(n, n + 1000))
        assert not any(driver.outstanding for driver in entry.current().tables.drivers)
    """
    run_ranks(3, script)


def test_reduce() -> None:
    script = """
        import math
        import operator
        import numpy as np
        from mpi4py import MPI
        from workpool import WorkPool
        from workpool.errors import UsageError

        def square(n):
            return n * n

        def refused(kind, *args, **kwargs):
            try:
                pool.reduce(*args, **kwargs)
            except kind as error:
                return str(error)
            raise AssertionError("not refused")

        with WorkPool() as pool:
            for schedule in ("adaptive", "guided"):
                total = pool.reduce(square, range(100_000), schedule=schedule)
                assert total == sum(n * n for n in range(100_000))
            assert pool.reduce(square, list(range(1000)), op=MPI.MAX) == 999**2
            assert pool.reduce(square, range(3, 1000), op="min") == 9
            for op in "min", "max":  # of what is no number, wherever it stands
                for nan in 0, 20, 39:
                    value = pool.reduce(lambda n: math.nan if n == nan else n / 2, range(40), op=op)
                    assert math.isnan(value), (op, nan)
                assert type(pool.reduce(float, range(40), op=op)) is float
            for op, value in ("land", True), ("lor", True), ("lxor", False):
                assert pool.reduce(lambda n: 2**70 + n, range(40), op=op) is value
            assert pool.reduce(pow, [2, 3], [3, 2], op=operator.mul) == 72
            large = pool.reduce(lambda n: np.full(50_000, n), range(100))
            assert np.array_equal(large, np.full(50_000, 4950))
            assert pool.reduce(lambda n: {n}, range(50), op="bor") == set(range(50))
            assert pool.reduce(lambda n: n > 5, range(50), op="lor")
            assert not pool.reduce(lambda n: n > 5, range(50), op="land")
            assert "no items" in refused(UsageError, square, [])
            told = refused(UsageError, square, [1], op="nope")
            assert "use one of" in told and "or a function of two values" in told
            assert "zero" in refused(ZeroDivisionError, lambda n: 1 // n, range(-50, 50))
            assert "unsupported" in refused(TypeError, lambda n: None if n else n, range(100))
            assert pool.reduce(square, range(10)) == 285
    """
    run_ranks(3, script)


def test_items_that_find_no_room_in_the_arena_travel_once() -> None:
    script = """
        import time
        from workpool import WorkPool
        from workpool.job import entry

        def supplied(pool):
            \"\"\"Return a list that gets the length of each piece of a stream.\"\"\"
            (driver,) = entry.current().tables.drivers
            store, found = driver._store, []
            supply = store.supply
            def count(*args):
                piece = supply(*args)
                if piece is not None and piece.position < piece.total_nbytes:
                    found.append(piece.extent.nbytes)
                return piece
            store.supply = count
            return found

        def length(text):
            limit = time.perf_counter() + 50e-6
            while time.perf_counter() < limit:
                pass
            return len(text)

        texts = [f"{n:0200}" for n in range(10_000)]
        with WorkPool(arena_nbytes=1 << 20) as pool:  # not for half of them
            pieces = supplied(pool)
            for schedule in ("adaptive", "guided"):
                assert list(pool.map(length, texts, schedule=schedule)) == [200] * 10_000
                nbytes = sum(pieces)
                assert 2_000_000 <= nbytes < 4_500_000, (schedule, nbytes)  # once to each worker
                pieces.clear()
        numbers = [10**40 + n for n in range(500_000)]  # many segments
        with WorkPool(arena_nbytes=32 << 20) as pool:  # for two of them at the same time
            pieces = supplied(pool)
            assert list(pool.map(abs, numbers)) == numbers
            assert sum(pieces) < 5_000_000, sum(pieces)  # of more than 9 million
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


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranges_of_any_length_may_be_left_alone_and_others_follow(ranks: int) -> None:
    script = """
        import sys
        from workpool import UsageError, WorkPool
        from workpool.pool.mapping import cutter, source

        def same(n):
            return n

        with WorkPool() as pool:
            for start in range(0, 6000, 1000):
                for length in (2**40 + 5, sys.maxsize, 2**70):
                    results = pool.map(same, range(start, start + length))
                    assert [next(results) for _ in range(3)] == [start, start + 1, start + 2]
                    results.close()
            assert list(pool.map(same, range(10_000))) == list(range(10_000))
            assert pool.reduce(same, range(10_000)) == 49_995_000
            try:
                pool.reduce(same, range(sys.maxsize))
            except UsageError as error:
                assert "reduce of more than" in str(error)
            else:
                raise AssertionError
            cutter.RANGE_ITEMS = source.RANGE_ITEMS = 999  # as longer ones are taken
            for schedule in ("adaptive", "guided"):
                results = pool.map(same, range(10_000), schedule=schedule)
                assert list(results) == list(range(10_000))
                assert pool.reduce(same, range(10_000), schedule=schedule) == 49_995_000
            pool.shutdown(cancel_futures=True)
    """
    run_ranks(ranks, script)


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


def test_a_function_that_cannot_be_sent_is_tried_a_few_times_only() -> None:
    script = """
        from workpool import SerializationError, WorkPool

        class Stays:
            tries = 0
            def __reduce__(self):
                Stays.tries += 1
                raise TypeError("stays here")
            def method(self, n):
                return n

        with WorkPool() as pool:
            for options in ({}, {"chunksize": 1}):
                results = pool.map(Stays().method, range(10_000), **options)
                try:
                    next(results)
                except SerializationError as error:
                    assert "stays here" in str(error)
                else:
                    raise AssertionError
            assert Stays.tries < 100, Stays.tries
    """
    run_ranks(2, script)
