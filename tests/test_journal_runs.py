"""Runs with a journal: what is done is not done again, whatever was killed or edited in between."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from jobs import Job
from launching import alone, run, stored
from processes import PATIENCE

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_what_is_done_is_skipped(tmp_path: Path) -> None:
    script = """
        import dataclasses, enum, sys
        from pathlib import Path
        from workpool import WorkPool

        @dataclasses.dataclass
        class Point:
            x: int

        class Status(enum.Enum):
            DONE = "another"

        class Task:
            class Status(enum.Enum):
                DONE = 1
            @dataclasses.dataclass
            class Point:
                y: int

        def make():
            class Made:
                pass
            return Made

        Made = make()

        def nested():
            return Task.Status.DONE, Task.Point(2), Status.DONE, Made()

        def run(x, *more, **named):
            with open("ran", "a") as file:
                print(x, file=file)
            if x == 13 and not Path("cured").exists():
                raise ValueError(x)
            return Point(x)

        def ran():
            lines = Path("ran").read_text().split() if Path("ran").exists() else []
            Path("ran").unlink(missing_ok=True)
            return sorted(map(int, lines))

        again = len(sys.argv) > 1
        with WorkPool(journal="run.db") as pool:
            order = [3, 1, 2, 1] if again else [1, 2, 1, 3, 1]
            futures = [pool.submit(run, x) for x in order]
            assert not again or all(future.done() for future in futures)
            assert [future.result() for future in futures] == [Point(x) for x in order]
            assert ran() == ([] if again else [1, 1, 1, 2, 3])
            futures = [pool.submit(run, 1), pool.submit(run, 1)]  # in the second run the 3rd, 4th
            assert [future.result() for future in futures] == [Point(1)] * 2
            assert ran() == ([] if again else [1, 1])
            pool.submit(run, 1, 2, a={"x", "y"}, b=(1,)).result()
            pool.submit(run, 1, 2, b=(1,), a={"y", "x"}).result()
            assert ran() == ([] if again else [1, 1])
            status, point, other, made = pool.submit(nested).result()
            assert type(made) is Made
            assert status is Task.Status.DONE and other is Status.DONE, (status, other)
            assert type(point) is Task.Point and point == Task.Point(2)
            assert pool.submit(run, 13).exception() is None or not again
            assert ran() == [13]
        if not again:
            Path("cured").touch()
    """
    alone(tmp_path, script)
    alone(tmp_path, script, "again")
    ended = alone(tmp_path, script.replace("x == 13", "x == 14"), "again", status=1)
    assert "AssertionError" in ended.err


def test_a_map_runs_what_is_not_done(tmp_path: Path) -> None:
    script = """
        import sys
        from itertools import repeat
        from workpool import WorkPool

        def same(item, *more):
            return item

        def refuse(item):
            if item == 700:
                raise KeyError(item)
            return item

        def ran(pool, seen=[0]):
            total = sum(stats.tasks for stats in pool.stats())
            found, seen[0] = total - seen[0], total
            return found

        again = len(sys.argv) > 1
        first, more = (150_000, 150_400) if again else (0, 150_000)
        with WorkPool() as pool:
            numbers = [n % 1000 for n in range(more)]
            mapped = list(pool.map(same, numbers, journal="run.db"))
            assert mapped == numbers
            assert ran(pool) == more - first
            for buffersize in (10, 5000, None):
                items = map(str, range(2000))
                assert list(pool.map(same, items, buffersize=buffersize, journal="run.db")) == [
                    str(n) for n in range(2000)
                ]
            assert ran(pool) == (0 if again else 6000)
            shuffled = sorted(range(3000), key=lambda n: hash((n, again)))
            for schedule in ("guided", "self"):
                found = pool.map(same, shuffled, repeat("a"), schedule=schedule, journal="run.db")
                assert list(found) == shuffled
            assert ran(pool) == (0 if again else 6000)
            assert list(pool.map(same, range(100), chunksize=7, journal="run.db")) == [*range(100)]
            large = list(pool.map("x".__mul__, [10**6] * 20, journal="run.db"))
            assert large == ["x" * 10**6] * 20
            ran(pool)
            found = []
            try:
                for value in pool.map(refuse, range(1000), journal="run.db"):
                    found.append(value)
            except KeyError:
                assert found == list(range(700))
            assert not again or ran(pool) < 300
            late = pool.map(same, range(500, 600), journal="run.db")
            assert next(late) == 500
        assert list(late) == list(range(501, 600))
        with WorkPool(journal="run.db") as pool:  # is not in use any more
            assert list(pool.map(same, range(500, 600))) == list(range(500, 600))
    """
    alone(tmp_path, script)
    alone(tmp_path, script, "again")


def test_what_is_refused(tmp_path: Path) -> None:
    script = """
        import threading
        from workpool import WorkPool
        from workpool.job import entry
        from workpool.errors import ResourceError, SerializationError, UsageError

        def add(n, total):
            total.add(n)

        def refused(kind, call):
            try:
                call()
            except kind as error:
                return str(error)
            raise AssertionError("not refused")

        with WorkPool(journal="run.db") as pool:
            total = pool.accumulator((), "int64")
            future = None
            said = refused(UsageError, lambda: pool.submit(add, 1, total))
            assert "is not in the journal" in said, said
            refused(UsageError, lambda: list(pool.map(add, [1], [total])))
            refused(UsageError, lambda: pool.submit(lambda: total.add(1)))
            assert "map and fold" in refused(UsageError, lambda: pool.reduce(abs, [1]))
            assert "in use" in refused(UsageError, lambda: WorkPool(journal="run.db"))
            refused(SerializationError, lambda: pool.submit(abs, threading.Lock()).result())
            assert list(pool.map(abs, [-1])) == [1]
            ledger = entry.current().pools[0].ledgers.default
            pages = ledger.journal._connection.execute("PRAGMA page_count").fetchone()[0]
            ledger.journal._connection.execute(f"PRAGMA max_page_count = {pages}")
            said = refused(ResourceError, lambda: pool.submit(bytes, 10**6).result())
            assert "full" in said, said
            refused(ResourceError, lambda: list(pool.map(bytes, [10**6] * 3)))
            assert pool.submit(divmod, 1, 0).exception().args
        with WorkPool() as pool:
            total = pool.accumulator((), "int64")
            pool.submit(add, 1, total).result()
            refused(UsageError, lambda: list(pool.map(add, [1], [total], journal="run.db")))
            assert total.value() == 1
        refused(UsageError, lambda: WorkPool(journal="run.db", drain_s=-1))
        refused(ResourceError, lambda: WorkPool(journal="missing/run.db"))
        refused(UsageError, lambda: WorkPool(journal="driver.py"))
    """
    alone(tmp_path, script)


def test_tasks_with_limits_and_retries(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from workpool import WorkPool

        def work(n):
            with open("ran", "a") as file:
                file.write(".")
            if n == 3 and len(Path("ran").read_text()) < 12:
                raise OSError(n)
            return -n

        with WorkPool(journal="run.db") as pool:
            careful = pool.with_options(timeout_s=60, retries=20)
            assert [careful.submit(work, n).result() for n in range(5)] == [0, -1, -2, -3, -4]
            assert list(careful.map(work, range(5, 9))) == [-5, -6, -7, -8]
            assert list(pool.map(work, range(5, 9))) == [-5, -6, -7, -8]  # other limits, but again
        assert Path("ran").stat().st_size == int(sys.argv[1])
    """
    alone(tmp_path, script, "21")
    alone(tmp_path, script, "21")


def test_a_journal_is_closed_though_there_is_no_memory_for_the_numbers(tmp_path: Path) -> None:
    script = """
        from unittest import mock
        from workpool import WorkPool
        from workpool.accumulator import Accumulator

        pool = WorkPool(journal="run.db")
        numbers = pool.accumulator((), "int64")
        with mock.patch.object(Accumulator, "_read", side_effect=MemoryError):
            try:
                pool.shutdown()
            except MemoryError:
                print("no memory")
        with WorkPool(journal="run.db") as pool:
            print(pool.submit(abs, -1).result())
    """
    assert alone(tmp_path, script).out == "no memory\n1\n"


def test_the_initializer_counts(tmp_path: Path) -> None:
    script = """
        import sys
        from workpool import WorkPool

        factor = 0

        def setup(value):
            global factor
            factor = value

        def times(x):
            return factor * x

        given = int(sys.argv[1])
        with WorkPool(initializer=setup, initargs=(given,), journal="run.db") as pool:
            assert pool.submit(times, 3).result() == 3 * given
            assert list(pool.map(times, range(5))) == [given * n for n in range(5)]
            assert sum(stats.tasks for stats in pool.stats()) == int(sys.argv[2])
    """
    alone(tmp_path, script, "2", "6")
    alone(tmp_path, script, "2", "0")
    alone(tmp_path, script, "3", "6")


WORK = """\
import sys, time
from pathlib import Path
from workpool import WorkPool

def work(n):
    time.sleep(0.002)
    while n == 0 and not Path("last").exists():  # this run is killed, however late
        time.sleep(0.01)
    return n * n

with WorkPool(journal="run.db") as pool:
    print("open", flush=True)
    futures = [pool.submit(work, n) for n in range(150)]
    assert list(pool.map(work, range(1000, 1300))) == [n * n for n in range(1000, 1300)]
    assert [future.result() for future in futures] == [n * n for n in range(150)]
    print("complete", sum(stats.tasks for stats in pool.stats()), flush=True)
"""


def test_killed_until_all_is_done(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(WORK)
    chance = random.Random(7)
    kept = cut = 0
    for victim in ["driver", "worker", "launcher", "everything", "driver"]:
        with run("-w", "2", "driver.py", cwd=tmp_path) as started:
            started.until("open")
            time.sleep(chance.uniform(0.0, 0.2))
            kill(started, victim)
            started.process.wait(30 * PATIENCE)
            give_up = time.monotonic() + 20 * PATIENCE
            while started.members():
                assert time.monotonic() < give_up
                time.sleep(0.02)
        found = len(stored(tmp_path / "run.db"))
        assert found >= kept
        cut += kept < found < 450
        kept = found
    assert cut, "no job was killed in the middle"
    (tmp_path / "last").touch()
    with run("-w", "2", "driver.py", cwd=tmp_path) as started:
        ended = started.wait()
    assert ended.status == 0, ended
    assert int(ended.out.split("complete")[1]) == 450 - kept
    keys = stored(tmp_path / "run.db")
    assert len(keys) == len(set(keys)) == 450


def kill(started: Job, victim: str) -> None:
    ranks = started.ranks()
    pids = {
        "driver": ranks[:1],
        "worker": ranks[1:2],
        "launcher": [started.process.pid],
        "everything": list(started.members()),
    }
    for pid in pids[victim]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
