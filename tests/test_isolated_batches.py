"""Short tasks in child processes share rows and are sent ahead: each runs once, by itself."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import LEARN, run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

TASKS = """
import itertools, os, sys, time
from workpool import TaskKilled, WorkerCrashed, WorkPool

place = sys.argv[1]

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

"""


def run(place: Path, ranks: int, body: str) -> None:
    body = textwrap.indent(textwrap.dedent(body), "    ")
    script = f"{TASKS}\nwith WorkPool() as pool:\n    isolated = pool.with_options(isolate=True)\n"
    script = f"{textwrap.dedent(LEARN)}{script}    learn(isolated, task, -100)\n{body}"
    run_ranks(ranks, script, str(place))


def test_what_waits_behind_a_long_task_goes_elsewhere(tmp_path: Path) -> None:
    run(
        tmp_path,
        3,
        """
        futures = [isolated.submit(task, n) for n in range(60)]
        assert [f.result() for n, f in enumerate(futures) if n != 33] == [
            -n for n in range(60) if n != 33
        ]
        assert not futures[33].done()
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
        futures = [isolated.submit(task, n) for n in range(300)]
        for n, future in enumerate(futures):
            if n % 100 == 66:
                assert type(future.exception()) is WorkerCrashed
                assert future.exception().exitcode == 6
            else:
                assert future.result() == -n
        assert sorted(ran()) == list(range(300))
        """,
    )


def test_kill_ends_the_one_that_runs(tmp_path: Path) -> None:
    run(
        tmp_path,
        2,
        """
        futures = [isolated.submit(task, n) for n in range(60)]
        until(lambda: 33 in ran())
        assert pool.kill(futures[33])
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
            futures = [isolated.submit(task, first + n) for n in range(60)]
            until(lambda: first + 33 in ran())
            batch = futures[33]._task.batch
            behind = [n for n in range(34, 60) if futures[n]._task.batch is batch]
            for n in behind[-1:]:
                waited += 1
                assert pool.kill(futures[n]) and futures[n].cancelled()
                del futures[n]
            open_gate(first + 33)
            expected += [first + n for n in range(60) if n not in behind[-1:]]
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
        for future in [isolated.submit(add, 1, total) for _ in range(2000)]:
            future.result()
        assert total.value() == 2000
        """,
    )
