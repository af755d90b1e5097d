"""``map`` without a chunk size: shared out by the workers, and the same to whoever iterates."""

from __future__ import annotations

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
            window = pool.map(same, iter(numbers), buffersize=np.int64(5000))
            assert list(window) == numbers
            large = [np.full(100_000, n) for n in range(20)]
            assert [array[0] for array in pool.map(same, large)] == list(range(20))
            assert [len(text) for text in pool.map("x".__mul__, [10**6] * 40)] == [10**6] * 40
            ran = sum(stats.tasks for stats in pool.stats())
        expected = 6 * (0 + 1 + 428 + 3 + 700) + 4 * 200_000 + 2 + 2_000 + 20 + 40
        assert ran == expected, (ran, expected)
    """
    run_ranks(ranks, script)


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
        end = time.monotonic() + 20
        while any(driver.outstanding for driver in entry.current().tables.drivers):
            assert time.monotonic() < end  # whoever resolved the last may have it in hand still
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
