"""Short tasks share a row of the table, and nobody can tell except by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]

#: Before each script: what has a function known to be short.
LEARN = """
        from workpool import WorkPool

        def learn(pool, function, *args):
            for _ in range(20):
                for future in [pool.submit(function, *args) for _ in range(100)]:
                    future.result()
"""


def test_short_tasks_share_rows() -> None:
    script = """
        from workpool.job import entry

        def short(n):
            return -n

        rows = []
        with WorkPool() as pool:
            (driver,) = entry.current().tables.drivers
            published = driver._published
            add = published.add
            published.add = lambda batch, row: (rows.append(row), add(batch, row))
            for _ in range(3):  # a task that was interrupted for long is taken for a long one
                learn(pool, short, 0)
                rows.clear()
                futures = [pool.submit(short, n) for n in range(2000)]
                assert [future.result() for future in futures] == [-n for n in range(2000)]
                if len(rows) < 1000:
                    break
        assert len(rows) < 1000, f"{len(rows)} rows for 2000 tasks"
    """
    run_ranks(3, LEARN + script)


def test_what_waits_behind_a_long_task_goes_elsewhere(tmp_path: Path) -> None:
    """A task that was expected to be short ends only when all the others have ended."""
    script = """
        import os, sys, time

        flag = sys.argv[1]

        def mostly_short(n):
            if n == 33:
                limit = time.monotonic() + 60
                while not os.path.exists(flag):
                    assert time.monotonic() < limit, "the others never ended"
                    time.sleep(0.01)
            return n

        with WorkPool() as pool:
            learn(pool, mostly_short, 0)
            futures = [pool.submit(mostly_short, n) for n in range(300)]
            assert [f.result() for n, f in enumerate(futures) if n != 33] == [
                n for n in range(300) if n != 33
            ]
            assert not futures[33].done()
            open(flag, "w").close()
            assert futures[33].result() == 33
            assert sum(stats.tasks for stats in pool.stats()) == 2300
    """
    run_ranks(3, LEARN + script, str(tmp_path / "flag"))


def test_a_task_behind_a_long_one_can_be_cancelled(tmp_path: Path) -> None:
    script = """
        import os, sys, time

        flag, place = sys.argv[1:]

        def mostly_short(n):
            if n == 3:
                while not os.path.exists(flag):
                    time.sleep(0.01)
            if n:
                open(os.path.join(place, str(n)), "w").close()
            return n

        with WorkPool(max_workers=1) as pool:
            learn(pool, mostly_short, 0)
            futures = [pool.submit(mostly_short, n) for n in range(1, 200)]
            while [n for n, future in enumerate(futures) if future.running()] != [2]:
                time.sleep(0.001)  # until those behind it are given back
            cancelled = [future for future in futures[::2] if future.cancel()]
            assert 90 <= len(cancelled) <= 100, len(cancelled)
            open(flag, "w").close()
            ran = sorted(future.result() for future in futures if future not in cancelled)
            assert ran == sorted(int(name) for name in os.listdir(place))
            assert len(ran) + len(cancelled) == 199
    """
    place = tmp_path / "ran"
    place.mkdir()
    run_ranks(2, LEARN + script, str(tmp_path / "flag"), str(place))


def test_each_task_of_a_batch_succeeds_or_fails_by_itself() -> None:
    script = """
        import numpy as np
        from workpool.errors import SerializationError

        def task(n, total, fails=False):
            total.add(1)
            if fails and n % 7 == 3:
                raise ValueError(n)
            if fails and n % 7 == 5:
                return lambda: (yield)  # which travels
            if fails and n % 101 == 50:
                return np.full(20_000, n)
            if fails and n % 101 == 51:
                return (i for i in range(3))  # which does not
            return n

        with WorkPool() as pool:
            total = pool.accumulator((), "int64")
            learn(pool, task, 0, total)
            assert total.value() == 2000
            futures = [pool.submit(task, n, total, True) for n in range(1000)]
            good = 0
            for n, future in enumerate(futures):
                error = future.exception()
                if n % 7 == 3:
                    assert isinstance(error, ValueError) and error.args == (n,), error
                    assert f"raise ValueError(n)" in str(error.__cause__)
                elif n % 7 != 5 and n % 101 == 51:
                    assert isinstance(error, SerializationError), error
                else:
                    good += 1
                    value = future.result()
                    if n % 7 == 5:
                        assert callable(value)
                    elif n % 101 == 50:
                        assert np.array_equal(value, np.full(20_000, n))
                    else:
                        assert value == n
            assert total.value() == 2000 + good
    """
    run_ranks(3, LEARN + script)


@pytest.mark.parametrize("numbers", [1000, 10_000])  # out of band; as many as share no row
def test_arguments_are_taken_as_they_are_when_submitted(numbers: int) -> None:
    script = f"""
        import numpy as np

        def ends(array):
            return array[0], array[-1]

        with WorkPool(arena_nbytes=8 << 20) as pool:  # room for some of them
            learn(pool, ends, [0, 1])
            array = np.zeros({numbers})
            futures = []
            for n in range(300):
                array[:] = n
                futures.append(pool.submit(ends, array))
            array[:] = -1
            assert [future.result() for future in futures] == [(n, n) for n in range(300)]
    """
    run_ranks(3, LEARN + script)
