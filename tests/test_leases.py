"""Workers that are stopped: others run their tasks, and what they say later does no harm."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

TASKS = """
import ctypes, os, signal, sys, time
from pathlib import Path
from workpool import WorkPool
from workpool.job import entry

place = Path(sys.argv[1])

def note(name):
    with open(place / name, "a") as file:
        file.write(f"{os.getpid()} ")

def runs(name):
    path = place / name
    return path.read_text().split() if path.exists() else []

def slow(name, seconds):
    note(name)
    time.sleep(seconds)
    note(name + " over")
    return os.getpid()

def until_stopped(name):
    note(name)
    if len(runs(name)) == 1:  # who runs it next goes on
        until((place / f"{name} stopped").exists)

def held(name, value=None):
    until_stopped(name)
    note(name + " over")
    return os.getpid() if value is None else float(value.sum())

def stop(name):
    until(lambda: runs(name))
    first = int(runs(name)[0])
    os.kill(first, signal.SIGSTOP)
    (place / f"{name} stopped").touch()
    return first

def until(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)
"""


def run(ranks: int, body: str, place: Path) -> str:
    script = TASKS + "\nwith WorkPool(lease_s=0.5) as pool:\n"
    script += textwrap.indent(textwrap.dedent(body), "    ")
    return run_ranks(ranks, script, str(place)).stdout


def test_the_task_of_a_stopped_worker_is_run_by_another(tmp_path: Path) -> None:
    run(
        3,
        """
        future = pool.submit(held, "task")
        first = stop("task")
        try:
            assert future.result(20) != first
            assert len(runs("task")) == 2
            # The others go on meanwhile, and nothing waits for it.
            assert list(pool.map(abs, range(2000))) == list(range(2000))
        finally:
            os.kill(first, signal.SIGCONT)
        until(lambda: len(runs("task over")) == 2)  # late, and refused
        workers = {pool.submit(slow, "again", 0.05).result(20) for _ in range(20)}
        assert len(runs("task")) == 2 and future.result() != first
        assert sorted(stats.evicted for stats in pool.stats()) == [0, 1]
        """,
        tmp_path,
    )


def test_when_no_worker_answers_it_is_said(tmp_path: Path) -> None:
    script = TASKS + textwrap.dedent(
        """
        with WorkPool(lease_s=0.5) as pool:
            future = pool.submit(held, "task")
            first = stop("task")
            (driver,) = entry.current().tables.drivers
            until(lambda: pool.stats()[0].evicted or future.done() or driver.progress())
            time.sleep(2)
            os.kill(first, signal.SIGCONT)
            future.result(20)
        """
    )
    err = run_ranks(2, script, str(tmp_path)).stderr
    assert err.count("every worker is stopped, silent or dead") == 1


def test_a_task_that_holds_the_lock_for_many_leases_is_run_once(tmp_path: Path) -> None:
    run(
        3,
        """
        def locked():
            note("locked")
            ctypes.PyDLL(None).usleep(3_000_000)
            return 1
        future = pool.submit(locked)
        assert future.result(30) == 1
        assert len(runs("locked")) == 1
        assert not any(stats.evicted for stats in pool.stats())
        """,
        tmp_path,
    )


def test_the_items_of_a_stopped_worker_are_shared_out_again(tmp_path: Path) -> None:
    run(
        3,
        """
        def item(n):
            time.sleep(0.001)
            if n == 700:
                until_stopped(f"item {times}")
            return n
        def stop_a_while():
            pid = stop(f"item {times}")
            try:
                until(lambda: sum(stats.evicted for stats in pool.stats()) == times)
            finally:
                os.kill(pid, signal.SIGCONT)
        import threading
        for times in (1, 2):
            thread = threading.Thread(target=stop_a_while)
            thread.start()
            if times == 1:
                assert list(pool.map(item, range(2000))) == list(range(2000))
            else:
                assert pool.reduce(item, list(range(2000))) == sum(range(2000))
            thread.join()
            assert sum(stats.evicted for stats in pool.stats()) == times
        for schedule in ("static", "guided", "self"):
            assert list(pool.map(abs, range(500), schedule=schedule)) == list(range(500))
        """,
        tmp_path,
    )


def test_arguments_are_sent_again_as_they_were(tmp_path: Path) -> None:
    run(
        3,
        """
        import numpy as np
        ones = np.ones(200_000)
        future = pool.submit(held, "total", ones)
        ones[:] = 0
        first = stop("total")
        try:
            assert future.result(20) == 200_000
            assert len(runs("total")) == 2
        finally:
            os.kill(first, signal.SIGCONT)
        """,
        tmp_path,
    )


def test_a_map_keeps_its_workers_however_often_one_of_them_was_stopped(tmp_path: Path) -> None:
    run(
        3,
        """
        import threading
        def item(n):
            if (place / "meet").exists():  # two workers, each in an item of its own
                note("met")
                until(lambda: len(set(runs("met"))) == 2)
            time.sleep(0.002)
            if n in (10, 60, 110) and not (place / f"stopped {n}").exists():
                (place / f"stopped {n}").touch()
                note("stopped")
                os.kill(os.getpid(), signal.SIGSTOP)  # when it goes on, its turn is over
        def wake():
            for times in range(3):
                until(lambda: len(runs("stopped")) > times)
                until(lambda: sum(stats.evicted for stats in pool.stats()) > times)
                os.kill(int(runs("stopped")[times]), signal.SIGCONT)
            note("meet")
        waker = threading.Thread(target=wake)
        waker.start()
        for _ in pool.map(item, range(100_000), schedule="self", unordered=True):
            if len(set(runs("met"))) == 2:
                break
        waker.join()
        """,
        tmp_path,
    )
