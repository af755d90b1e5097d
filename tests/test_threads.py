"""Several threads, several tables: whoever waits for one makes the others wait for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [2, 3])
def test_who_waits_for_one_table_does_not_keep_workers_in_another(ranks: int) -> None:
    script = """
        import numpy as np
        from workpool import WorkPool

        with WorkPool(rows=64, arena_nbytes=4 << 20) as one, WorkPool(rows=128) as other:
            large = [one.submit(np.ones, 1_000_000) for _ in range(8)]  # 8 MB each, in pieces
            for n in range(300):
                assert other.submit(abs, -n).result() == n
            assert sum(future.result().sum() for future in large) == 8_000_000
            called = []
            future = one.submit(abs, -1)
            future.add_done_callback(called.append)
            while not called:
                other.submit(abs, -2).result()
            mapped = one.map(abs, range(-100_000, 0), buffersize=5000)
            for n, value in enumerate(mapped):
                assert value == 100_000 - n
                if n % 10_000 == 0:
                    assert other.submit(abs, -3).result() == 3
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 2])
def test_futures_become_done_while_others_are_submitted(ranks: int) -> None:
    script = """
        import time
        from workpool import WorkPool

        with WorkPool() as pool:
            first = pool.submit(abs, -1)
            limit = time.monotonic() + 20
            count = 0
            while not first.done():
                assert time.monotonic() < limit, count
                pool.submit(abs, -2)
                count += 1
                time.sleep(1e-3 if count < 1000 else 0)
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("cancels", ["cancels", ""])
def test_nothing_is_submitted_after_shutdown_by_who_waits_for_room(
    tmp_path: Path, cancels: str
) -> None:
    script = """
        import os, sys, threading, time
        from workpool import WorkPool
        from workpool.job import entry

        def wait(gate):
            while not os.path.exists(gate):
                time.sleep(0.01)

        refused = []
        pool = WorkPool(max_pending=4)
        runs = pool.submit(wait, sys.argv[1])
        while not runs.running():
            time.sleep(0.01)
        queued = [pool.submit(time.sleep, 0) for _ in range(3)]

        def produce():
            try:
                pool.submit(print, "it ran all the same")
            except RuntimeError as error:
                refused.append(str(error))

        producers = [threading.Thread(target=produce) for _ in range(3)]
        for producer in producers:
            producer.start()
        (driver,) = entry.current().tables.drivers
        while not driver.waits.attended:  # some wait already
            time.sleep(0.01)
        pool.shutdown(wait=False, cancel_futures=bool(sys.argv[2]))
        for producer in producers:
            producer.join()  # at once, though there may be no room
        assert refused == ["cannot schedule new futures after shutdown"] * 3, refused
        assert not runs.done()
        assert all(future.cancelled() is bool(sys.argv[2]) for future in queued)
        open(sys.argv[1], "w").close()
        pool.shutdown()
        assert runs.done()
    """
    run_ranks(2, script, str(tmp_path / "gate"), cancels)


def test_nothing_is_submitted_after_shutdown_by_who_pickles_meanwhile(tmp_path: Path) -> None:
    script = """
        import os, sys, threading, time
        from workpool import WorkPool

        def wait(gate):
            while not os.path.exists(gate):
                time.sleep(0.01)

        class Slow:
            def __reduce__(self):
                pickling.set()
                assert shut.wait(30)
                return int, ()

        def produce():
            try:
                pool.submit(print, Slow())
            except RuntimeError as error:
                refused.append(str(error))

        pickling, shut, refused = threading.Event(), threading.Event(), []
        pool = WorkPool()
        runs = pool.submit(wait, sys.argv[1])
        producer = threading.Thread(target=produce)
        producer.start()
        assert pickling.wait(30)
        pool.shutdown(wait=False)
        shut.set()
        producer.join()
        assert refused == ["cannot schedule new futures after shutdown"], refused
        open(sys.argv[1], "w").close()
        runs.result()
    """
    run_ranks(2, script, str(tmp_path / "gate"))


def test_options_of_any_number_cost_no_memory(tmp_path: Path) -> None:
    script = """
        import os, sys, time
        from workpool import WorkPool

        def wait(gate):
            while not os.path.exists(gate):
                time.sleep(0.01)

        def prepare(place, content):
            with open(os.path.join(place, str(os.getpid())), "a") as file:
                print("prepared", file=file)

        gate, place = sys.argv[1], sys.argv[2]
        os.mkdir(place)
        with WorkPool(initializer=prepare, initargs=(place, b"x" * 100_000)) as pool:
            views = [pool.with_options(timeout_s=100 + n) for n in range(200)]
            futures = [view.submit(abs, -n) for n, view in enumerate(views)]
            assert [future.result() for future in futures] == list(range(200))
            assert list(pool.map(abs, range(100))) == list(range(100))
            assert pool.submit(abs, -1).result() == 1
            assert len(pool._core.contexts._known) == 32
            placed = [context for view in views if (context := view._context).placed is not None]
            assert len(placed) <= 32, len(placed)
            assert views[0].submit(abs, -7).result() == 7, "it goes on"
            for process in os.listdir(place):  # the rank and its child
                with open(os.path.join(place, process)) as file:
                    assert file.read() == "prepared\\n", "more than once"
            busy = pool.submit(wait, gate)
            futures = [view.submit(abs, -n) for n, view in enumerate(views)]
            pool.shutdown(wait=False, cancel_futures=True)
            assert all(future.cancelled() for future in futures)
            open(gate, "w").close()
    """
    run_ranks(2, script, str(tmp_path / "gate"), str(tmp_path / "place"))


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_pool_that_a_thread_is_opening_when_the_program_ends(ranks: int) -> None:
    script = """
        import threading
        import time
        import workpool
        from workpool.job import entry

        def call(*args):
            opening.set()
            calls(*args)

        def open_one():
            try:
                other = workpool.WorkPool(rows=64)
                print("opened")
                print("found", other.submit(abs, -3).result())
            except (workpool.UsageError, RuntimeError) as error:
                print("too late:", error)

        pool = workpool.WorkPool()
        pool.submit(abs, -1).result()
        for _ in range(pool.num_workers):
            pool.submit(time.sleep, 0.3)  # until then no table can be opened
        opening, crew = threading.Event(), entry.current()._crew
        calls, crew.call = crew.call, call
        thread = threading.Thread(target=open_one, daemon=True)
        thread.start()
        opening.wait(20)
        # The end of the program joins the pools, the one that is being opened included.
    """
    result = run_ranks(ranks, script, spmd=ranks == 1)
    assert "opened" in result.stdout
    assert "Error" not in result.stderr
    assert result.status == 0
