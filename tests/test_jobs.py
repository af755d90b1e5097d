"""What a job does as a whole: what it prints, what its programs may do, who is the driver."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [1, 3])
def test_pool_never_used(ranks: int) -> None:
    run_ranks(ranks, "from workpool import WorkPool\npool = WorkPool()\nprint('nothing')\n")


@pytest.mark.parametrize("ranks", [1, 3])
def test_no_pool_at_all(ranks: int) -> None:
    assert "nothing" in run_ranks(ranks, "import workpool\nprint('nothing')\n").stdout


@pytest.mark.smoke
@pytest.mark.parametrize("ranks", [1, 3])
def test_print_in_a_task_reaches_stdout(ranks: int) -> None:
    script = """
        import sys
        from workpool import WorkPool

        def task(n):
            print(f"out {n}")
            print(f"err {n}", file=sys.stderr)

        with WorkPool() as pool:
            list(pool.map(task, range(10)))
    """
    result = run_ranks(ranks, script)
    assert {f"out {n}" for n in range(10)} <= set(result.stdout.split("\n"))
    assert {f"err {n}" for n in range(10)} <= set(result.stderr.split("\n"))


@pytest.mark.parametrize("ranks", [1, 3])
def test_nobody_imports_numpy_who_does_not_need_it(ranks: int) -> None:
    """It takes longer to import than everything else."""
    script = """
        import sys
        from workpool import WorkPool

        def task(n):
            return "numpy" in sys.modules

        with WorkPool() as pool:
            print([pool.submit(task, 0).result(), *pool.map(task, range(100)), task(0)].count(True))
            print(sum(pool.map(abs, map(int, "123"))), any(pool.map(task, [0, 1])), task(0))
            floats = list(map(float, range(300_000)))
            assert list(pool.map(abs, floats)) == floats
            assert pool.submit("x".__mul__, 500_000).result() == "x" * 500_000
            assert pool.submit(len, "x" * 500_000).result() == 500_000
            print(any(pool.map(task, [0] * 100)), task(0))
    """
    assert run_ranks(ranks, script).stdout == "0\n6 False False\nFalse False\n"


def test_a_function_that_takes_much_along_with_each_task_is_warned_of_once() -> None:
    script = """
        from workpool import WorkPool

        data, first, second = "x" * 1500000, bytearray(2000000), bytearray(1)

        def reads(n):
            return len(first) + len(second)

        class Model:
            def __init__(self, weights):
                self.weights = weights

            def step(self, n):
                return len(self.weights)

        def takes(n, text):
            return len(text)

        def now_and_then(n):
            return len(first)

        with WorkPool() as pool:
            model = Model(bytes(3000000))
            for n in range(12):
                pool.submit(reads, n)
                pool.submit(takes, n, data)
                pool.submit(Model(bytes(3000000)).step, n)
            for n in range(12):
                future = pool.submit(model.step, n)
            assert future.result() == 3000000
            for n in range(9):
                future = pool.submit(now_and_then, n)
            print(future.result())
            import functools
            with_data = functools.partial(takes, text=data)
            for n in range(12):
                pool.submit(with_data, n)
    """
    result = run_ranks(2, script)
    assert result.stdout == "2000000\n"
    one, _, two, _, three, _ = result.stderr.splitlines()  # and the line of the script
    assert "driver.py:25: UserWarning: each task of reads takes 2.0 MB along, mostly 'first'" in one
    assert "driver.py:29: UserWarning: each task of Model.step takes 3.0 MB" in two
    assert "mostly self.weights" in two
    assert "driver.py:37: UserWarning: each task of partial(takes) takes 1.5 MB" in three


@pytest.mark.parametrize("ranks", [1, 3])
def test_functions_that_are_passed_on_and_what_they_read_are_as_at_submit(ranks: int) -> None:
    script = """
        import collections
        import functools
        import random
        import numpy as np
        from workpool import WorkPool

        WEIGHTS, TALLY, DICE = np.arange(4.0), collections.Counter("aab"), random.Random(1)

        def apply(fn, x):
            return fn(x)

        def times(n):
            return lambda x: n * x

        def weighted(x):
            return WEIGHTS[1] * x, TALLY["a"]

        def spoils(x):
            WEIGHTS[1], TALLY["a"] = 100, 100
            return DICE.random()

        class Scaled:
            def __init__(self, fn):
                self.fn, self.calls = fn, 0

            def __call__(self, x):
                self.calls += 1
                return self.calls, self.fn(x)

        pool = WorkPool()
        many = [times(n) for n in range(40)]
        for repeat in range(12):
            mapped = pool.map(apply, many * 10, range(400))
            submitted = [pool.submit(apply, fn, 3) for fn in many]
            assert list(mapped) == [x % 40 * x for x in range(400)]
            assert [future.result() for future in submitted] == [3 * n for n in range(40)]

        scaled = Scaled(weighted)
        for step in range(40):
            if step % 4 == 0:
                WEIGHTS[1], TALLY["a"] = step, step + 1
            if step % 5 == 0:
                WEIGHTS = WEIGHTS.copy()
            calls = [(weighted, 1), (scaled, 1), (apply, weighted, 1), (apply, scaled, 1)]
            calls += [(functools.partial(apply, weighted), 1), (spoils, 1), (apply, spoils, 1)]
            found = [future.result() for future in [pool.submit(*call) for call in calls]]
            now = WEIGHTS[1], TALLY["a"]
            assert found[:5] == [now, (1, now), now, (1, now), now], (step, found)
            assert found[5:] == [random.Random(1).random()] * 2
            assert list(pool.map(weighted, range(2))) == [(0, now[1]), now]
        print("right")
    """
    assert run_ranks(ranks, script).stdout == "right\n"


def test_run_drives_on_one_rank_and_serves_on_the_others() -> None:
    script = """
        import sys
        import workpool

        def square(n):
            return n * n

        def main(pool):
            return sum(pool.map(square, range(10)))

        values = workpool.run(main), workpool.run(main)
        sys.stdout.write(f"values {values}\\n")  # in one piece: three ranks write
    """
    stdout = run_ranks(3, script, spmd=True).stdout
    assert sorted(stdout.split("\n")) == ["", "values (285, 285)", *2 * ["values (None, None)"]]


def test_ranks_that_do_not_come_to_run_are_waited_for_and_missed() -> None:
    script = """
        import time
        import workpool
        from mpi4py import MPI
        from workpool.rma import group

        group.LATE_S = 0.5
        for late_s in (0, 2):
            if MPI.COMM_WORLD.rank > 0:
                time.sleep(late_s)
            workpool.run(lambda pool: print(pool.submit(abs, -1).result()))
    """
    ended = run_ranks(3, script, spmd=True)
    assert ended.stdout == "1\n1\n"
    assert ended.stderr.count("waited for other ranks for 0.5 s") == 1


def test_ranks_sleep_until_the_root_comes_to_run() -> None:
    script = """
        import sys, time
        import workpool
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            time.sleep(2)
        used = time.process_time()
        workpool.run(lambda pool: None)
        sys.stdout.write(f"{time.process_time() - used < 1}\\n")
    """
    assert run_ranks(3, script, spmd=True).stdout == 3 * "True\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_run_where_the_others_serve_already_is_a_pool(ranks: int) -> None:
    script = """
        import sys
        import workpool
        from mpi4py import MPI
        from workpool.errors import UsageError

        def main(pool):
            return sum(pool.map(abs, range(-10, 0)))

        values = [workpool.run(main), workpool.run(main)]
        if MPI.COMM_WORLD.size > 1:
            try:
                workpool.run(main, MPI.COMM_WORLD)
            except UsageError as error:
                assert "serve this one already" in str(error)
                values.append("refused")
        print("values", *values)
    """
    stdout = run_ranks(ranks, script).stdout
    assert stdout.split("\n") == ["values 55 55" + " refused" * (ranks > 1), ""]


def test_run_in_run_with_ranks_that_serve_nobody_yet() -> None:
    script = """
        import workpool
        from mpi4py import MPI

        def outer(pool):
            return rank(pool), workpool.run(rank), workpool.run(rank, inner), rank(pool)

        def rank(pool):
            return pool.submit(lambda: MPI.COMM_WORLD.rank).result()

        world = MPI.COMM_WORLD
        first = world.Split(0 if world.rank != 2 else MPI.UNDEFINED, world.rank)
        inner = world.Split(0 if world.rank != 1 else MPI.UNDEFINED, world.rank)
        if world.rank < 2:
            value = workpool.run(outer, first)
        else:
            value = workpool.run(rank, inner)
        if world.rank == 0:
            print(*value)
    """
    assert run_ranks(3, script, spmd=True).stdout == "1 1 2 1\n"


def test_a_flush_of_shared_memory_costs_little_more_than_a_sync() -> None:
    script = """
        import timeit
        from workpool import rma

        group = rma.Group()
        window = group.allocate(64, 0, 0)
        shared = window._memory is not None
        calls = lambda: window._win.Flush(0), lambda: window._win.Sync()
        times = [[timeit.timeit(call, number=200) for call in calls] for _ in range(200)]
        flush, sync = map(min, zip(*times))
        window.close()
        group.close()
        # MPICH's own way is 8 times as much, and a yield.  Old ones share no memory over UCX.
        assert flush < 4 * sync or not shared, (flush, sync)
    """
    run_ranks(2, script, spmd=True)
