"""Steps that are cut off: by Ctrl-C, the end of the stack, the end of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

# --- interrupts that the program catches ----------------------------------------------------------


def test_a_caught_interrupt_loses_nothing() -> None:
    script = """
        import os, random, signal, threading, time
        from workpool import WorkPool

        def task(n):
            return n

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)

        random.seed(1)
        caught = 0
        with WorkPool() as pool:
            for _ in range(60):
                futures = []
                timer = threading.Timer(random.uniform(2e-4, 15e-3), interrupt)
                try:
                    timer.start()
                    for n in range(500):
                        futures.append(pool.submit(task, n))
                    for future in futures:
                        future.result()
                    list(pool.map(task, range(1000)))
                    timer.join()
                    time.sleep(1)  # where it comes at the latest
                except KeyboardInterrupt:
                    caught += 1
                assert [future.result(20) for future in futures] == list(range(len(futures)))
        print("caught", caught)
    """
    assert run_ranks(3, script).stdout == "caught 60\n"


@pytest.mark.parametrize("option", ["rows=32", "journal=place"])
def test_an_interrupt_while_all_workers_are_waited_for_loses_nothing(
    tmp_path: Path, option: str
) -> None:
    script = f"""
        import os, signal, sys, threading, time
        from workpool import WorkPool

        place = sys.argv[1]

        def until_caught():
            while not os.path.exists(place + ".caught"):
                time.sleep(0.01)

        pool = WorkPool()
        busy = [pool.submit(until_caught) for _ in range(2)]
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            WorkPool({option})
        except KeyboardInterrupt:
            print("caught", [future.done() for future in busy])
            open(place + ".caught", "w").close()
        print(pool.submit(abs, -1).result(20))
        with WorkPool({option}) as other:
            print(other.submit(abs, -2).result(20))
    """
    assert run_ranks(3, script, str(tmp_path / "run.db")).stdout == "caught [False, False]\n1\n2\n"


def test_an_interrupt_while_a_table_of_a_rank_that_is_alone_is_closed(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, threading, time
        from workpool import WorkPool

        place = sys.argv[1]

        def until_caught():
            while not os.path.exists(place):
                time.sleep(0.01)

        first = WorkPool(rows=64)
        pool = WorkPool()
        first.shutdown()
        busy = pool.submit(until_caught)
        while not busy.running():
            time.sleep(0.01)
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            WorkPool(rows=128)  # takes the place of the first
        except KeyboardInterrupt:
            print("caught", busy.done())
            open(place, "w").close()
        for rows in (64, 128, 64):
            with WorkPool(rows=rows) as other:
                print(other.submit(abs, -rows).result(20))
        print(pool.submit(abs, -1).result(20))
    """
    stdout = run_ranks(1, script, str(tmp_path / "caught")).stdout
    assert stdout == "caught False\n64\n128\n64\n1\n"


def test_interrupts_at_any_moment_of_opening_and_closing_pools() -> None:
    script = """
        import os, random, signal, threading, time
        from workpool import WorkPool

        random.seed(1)
        pool = WorkPool()
        for n in range(12):
            timer = threading.Timer(random.uniform(0, 0.04), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                with WorkPool(rows=random.choice([16, 32, 64])) as other:
                    other.submit(abs, -1).result()
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                pass
            assert pool.submit(abs, -n).result(20) == n
        print("right")
    """
    assert run_ranks(3, script).stdout == "right\n"


def test_an_interrupt_while_open_pools_are_joined_ends_the_job() -> None:
    script = """
        import os, signal, threading, time
        from workpool import WorkPool

        pool = WorkPool()
        futures = [pool.submit(time.sleep, 30) for _ in range(4)]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    """
    result = run_ranks(3, script, expect_status=None)
    assert result.status != 0
    assert "KeyboardInterrupt" in result.stderr
    assert result.seconds < 20


# --- submits that fail in the middle --------------------------------------------------------------


def test_submits_that_fail_for_want_of_stack_leave_no_trace() -> None:
    script = """
        import sys, time
        from concurrent.futures import wait
        from workpool import WorkPool
        from workpool.job import entry

        def deep(frames):
            return pool.submit(abs, -1) if not frames else deep(frames - 1)

        failed = 0
        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            for left in range(50):
                try:
                    deep(sys.getrecursionlimit() - left).result()
                except RecursionError:
                    failed += 1
                for count in (1, 2):  # if so many were not counted, nobody would attend to them
                    assert not wait([pool.submit(abs, -n) for n in range(count)], 20).not_done, left
                (driver,) = entry.current().tables.drivers
                end = time.monotonic() + 20
                while driver.outstanding:  # whoever resolved the last may have it in hand still
                    assert time.monotonic() < end, left
        print(failed > 0)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_submit_that_fails_takes_no_others_with_it() -> None:
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.driver.backlog import Backlog
        from workpool.driver.store import Store

        def fails(method, at):
            def failing(*args):
                nonlocal at
                at -= threading.current_thread() is threading.main_thread()
                if not at:
                    raise MemoryError
                return method(*args)
            return failing

        methods = [(Store, "descriptor"), (Backlog, "_most")]
        with WorkPool() as pool:
            for kind, name in methods:
                real = getattr(kind, name)
                futures = [pool.submit(time.sleep, 0.2) for _ in range(2)]
                futures += [pool.submit(abs, -n) for n in range(60)]
                setattr(kind, name, fails(real, 4))
                try:
                    while len(futures) < 10_000:
                        futures.append(pool.submit(abs, -1))
                except MemoryError:
                    print("failed")
                setattr(kind, name, real)
                for future in futures:
                    future.result(20)
    """
    assert run_ranks(3, script).stdout == "failed\nfailed\n"
