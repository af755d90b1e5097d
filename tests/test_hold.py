"""A pool that a program drops without a shutdown: what it has is given back, what goes on does."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks
from launching import alone

pytestmark = [pytest.mark.mpi, pytest.mark.either]

#: How many pools the job has, once they have had the time to end.
PRELUDE = """
import gc
import os
import sys
import time
import warnings
from workpool import WorkPool
from workpool.job import entry

def open_pools(expected):
    give_up = time.monotonic() + 10
    while len(pools := entry.current().pools) != expected and time.monotonic() < give_up:
        time.sleep(0.005)
    return len(pools)

def square(n):
    return n * n
"""


@pytest.fixture(params=[1, 3])
def ranks(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def shown(ranks: int, script: str, *args: str) -> list[str]:
    """Run a script after the prelude; return what it prints, line by line."""
    result = run_ranks(ranks, PRELUDE + script, *args)
    assert result.stderr == ""
    return result.stdout.split("\n")[:-1]


def test_pools_that_are_dropped_are_no_more(ranks: int) -> None:
    script = """
for n in range(200):
    assert WorkPool().submit(square, n).result() == n * n
    assert list(WorkPool().with_options(retries=1).map(square, range(3))) == [0, 1, 4]
WorkPool()  # without a task
print(open_pools(0))
"""
    assert shown(ranks, script) == ["0"]


def test_tasks_of_a_pool_that_is_dropped_run(ranks: int) -> None:
    script = """
futures = [WorkPool().with_options(timeout_s=30).submit(square, n) for n in range(5)]
futures += [WorkPool().submit(square, n) for n in range(5, 20)]
print([future.result() for future in futures] == [n * n for n in range(20)])
print(open_pools(0))
futures = [WorkPool().submit(square, n) for n in range(20)]  # the end of the script waits for them
futures[-1].add_done_callback(lambda future: print("called back"))
del futures
"""
    assert shown(ranks, script) == ["True", "0", "called back"]


def test_a_view_a_map_and_a_callback_keep_the_pool(ranks: int) -> None:
    script = """
view = WorkPool().with_options(retries=2)
bound = WorkPool().submit
shared = WorkPool().map(square, iter(range(100_000)), buffersize=2_000)  # a window at a time
apart = WorkPool().map(square, range(100), chunksize=1, buffersize=2)
gc.collect()
print(open_pools(4))
print(view.submit(square, 3).result(), bound(square, 4).result())
print(list(shared) == [n * n for n in range(100_000)])
print(list(apart) == [n * n for n in range(100)])

def chain():
    pool, ends = WorkPool(), []

    def follow(future):
        if (n := future.result()) < 5:
            pool.submit(int, n + 1).add_done_callback(follow)
        else:
            ends.append(n)

    pool.submit(int, 0).add_done_callback(follow)
    return ends

ends = chain()
gc.collect()
while not ends:
    time.sleep(0.001)
del view, bound, shared, apart
gc.collect()  # a function that refers to itself
print(open_pools(0), ends)
"""
    assert shown(ranks, script) == ["4", "9 16", "True", "True", "0 [5]"]


def test_a_journal_is_let_go_of_with_its_pool(ranks: int, tmp_path: Path) -> None:
    script = """
import sys

path = sys.argv[1]
for _ in range(3):
    print(list(WorkPool(journal=path).map(square, range(5))))
    open_pools(0)
pool = WorkPool(journal=path)
pool.itself = pool  # in a cycle, which the collector finds
del pool
gc.collect()
print(WorkPool(journal=path).submit(square, 4).result())
"""
    assert shown(ranks, script, str(tmp_path / "j.db")) == ["[0, 1, 4, 9, 16]"] * 3 + ["16"]


def test_pools_whose_tasks_have_failed_are_dropped_as_others(ranks: int) -> None:
    """What is raised refers to the frames that it has passed, and they to the pool."""
    script = """
gc.disable()

def bad():
    raise ValueError("on purpose")

def inverse(n):
    return 1 / n

def attempt(use, **options):
    pool = WorkPool(**options)
    try:
        use(pool)
    except Exception as error:
        return type(error).__name__
    return "nothing"

print({
    attempt(lambda pool: list(pool.map(inverse, range(few)))) for few in (3, 1000)
} | {
    attempt(lambda pool: list(pool.map(inverse, range(3), **options)))
    for options in ({"chunksize": 2}, {"buffersize": 2}, {"timeout": 10})
} | {
    attempt(lambda pool: pool.submit(inverse, 0).result()),
    attempt(lambda pool: pool.reduce(inverse, range(3))),
})
print(open_pools(0))

def asked_again(pool):
    assert pool.submit(square, 1).exception()
    pool.submit(square, 1)

gc.enable()  # what a map raises that has failed as a whole, it still has
for use in (asked_again, lambda pool: list(pool.map(square, range(300)))):
    print(attempt(use, initializer=bad))
    gc.collect()
print(open_pools(0))
"""
    assert shown(ranks, script) == ["{'ZeroDivisionError'}", "0", "BrokenPool", "BrokenPool", "0"]


def test_what_a_fork_drops_is_the_parents(ranks: int) -> None:
    script = """
pool = WorkPool()
warnings.simplefilter("ignore")  # of threads, from Python 3.12 on
if (child := os.fork()) == 0:
    try:
        with pool:
            sys.exit(7)
    except SystemExit as leaves:
        del pool
        gc.collect()
        os._exit(leaves.code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(open_pools(1), pool.submit(square, 5).result())
"""
    assert shown(ranks, script) == ["7", "1 25"]


def test_a_program_that_keeps_what_has_failed_ends_in_silence(tmp_path: Path) -> None:
    """Python 3.14 and later call more of what waits for objects to go."""
    script = """
from workpool import WorkPool

def bad():
    raise ValueError

pool = WorkPool()
future = pool.submit(bad)
try:
    future.result()
except ValueError:
    print("failed")
"""
    ended = alone(tmp_path, script)
    assert (ended.out, ended.err) == ("failed\n", "")


def test_a_pool_whose_warning_is_an_error_is_no_more() -> None:
    script = """
from mpi4py import MPI

rank = MPI.COMM_WORLD.Get_rank()

def look():
    return rank

with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        WorkPool(initializer=look, journal="run.db")
    except UserWarning as warning:
        print("'rank'" in str(warning), open_pools(1))
print(open_pools(0))
WorkPool(journal="run.db").shutdown()
"""
    assert shown(2, script) == ["True 1", "0"]
