"""Short tasks in child processes share rows and are sent ahead: each runs once, by itself."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]

TASKS = """
import itertools, os, sys, time
from workpool import TaskKilled, WorkerCrashed, WorkPool
from workpool.job import entry
from workpool.driver import driver
from workpool.driver.published import Published

place = sys.argv[1]
driver.SINGLE_S = 20
behind = {}  # how many tasks were behind that of a future in its first row
publish = Published.add

def note(published, batch, row):
    publish(published, batch, row)
    for n, task in enumerate(reversed(batch.tasks)):
        behind.setdefault(task.future, n)

Published.add = note

def task(n):
    if n >= 0:
        with open(os.path.join(place, "ran"), "a") as ran:
            print(n, file=ran)
    if n % 100 == 33:
        limit = time.monotonic() + 60
        while not os.path.exists(os.path.join(place, str(n))):
            assert time.monotonic() < limit, "nobody has opened the gate"
            time.sleep(0.002)
    if n % 100 == 66:
        os._exit(6)
    return -n

def open_gate(n):
    open(os.path.join(place, str(n)), "w").close()

def ran():
    with open(os.path.join(place, "ran"), "a+") as file:
        file.seek(0)
        return list(map(int, file))

def until(holds):
    limit = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.001)

def submit(function, *iterables):
    (driver,) = entry.current().tables.drivers
    dispatcher = driver._dispatcher
    dispatcher.draining = True  # until all of them can be divided among rows
    futures = [isolated.submit(function, *args) for args in zip(*iterables)]
    code = futures[-1]._task.code
    code.measured(1, [100_000] * 1000)  # short, however busy this machine is
    dispatcher.draining = False
    return futures
"""


def run(place: Path, ranks: int, body: str) -> None:
    body = textwrap.indent(textwrap.dedent(body), "    ")
    script = f"{TASKS}\nwith WorkPool() as pool:\n    isolated = pool.with_options(isolate=True)\n"
    run_ranks(ranks, script + body, str(place))


def test_what_waits_behind_a_long_task_goes_elsewhere(tmp_path: Path) -> None:
    run(
        tmp_path,
        3,
        """
        futures = submit(task, range(60))
        assert [f.result() for n, f in enumerate(futures) if n != 33] == [
            -n for n in range(60) if n != 33
        ]
        assert not futures[33].done() and behind[futures[33]]
        open_gate(33)
        assert futures[33].result() == -33
        assert sorted(ran()) == list(range(60))
        """,
    )


def test_a_crash_costs_its_own_task(tmp_path: Path) -> None:
    run(
        tmp_path,
        2,
        """
        for n in range(3):
            open_gate(100 * n + 33)
        futures = submit(task, range(300))
        for n, future in enumerate(futures):
            if n % 100 == 66:
                assert type(future.exception()) is WorkerCrashed
                assert future.exception().exitcode == 6
            else:
                assert future.result() == -n
        assert sorted(ran()) == list(range(300))
        assert any(behind[future] for future in futures[66::100])
        """,
    )


def test_kill_ends_the_one_that_runs(tmp_path: Path) -> None:
    run(
        tmp_path,
        2,
        """
        futures = submit(task, range(60))
        until(lambda: 33 in ran())
        assert pool.kill(futures[33]) and behind[futures[33]]
        assert type(futures[33].exception()) is TaskKilled
        del futures[33]
        assert sorted(-future.result() for future in futures) == [*range(33), *range(34, 60)]
        assert sorted(ran()) == list(range(60))
        """,
    )


def test_kill_of_one_that_waits_leaves_the_one_that_runs_alone(tmp_path: Path) -> None:
    run(
        tmp_path,
        2,
        """
        expected, waited = [], 0
        for first in itertools.count(0, 100):
            if waited == 3:
                break
            futures = submit(task, range(first, first + 60))
            until(lambda: first + 33 in ran() and futures[33].running())
            batch = futures[33]._task.batch
            waits = [n for n in range(34, 60) if (t := futures[n]._task) and t.batch is batch]
            for n in waits[-1:]:
                waited += 1
                assert pool.kill(futures[n]) and futures[n].cancelled()
                del futures[n]
            open_gate(first + 33)
            expected += [first + n for n in range(60) if n not in waits[-1:]]
            for future in futures:
                future.result()
        assert sorted(ran()) == expected
        """,
    )


def test_contributions_count_once(tmp_path: Path) -> None:
    run(
        tmp_path,
        3,
        """
        total = pool.accumulator((), int)
        def add(n, total):
            total.add(n)
        futures = submit(add, [1] * 2000, [total] * 2000)
        for future in futures:
            future.result()
        assert total.value() == 2000
        assert any(behind[future] for future in futures)
        """,
    )
