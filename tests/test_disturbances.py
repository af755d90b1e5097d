"""What comes between any two steps of a driver: the collector, callbacks, forks."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks
from launching import run

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]


def test_results_of_a_map_that_the_collector_finds() -> None:
    script = """
        from workpool import WorkPool

        def task(value):
            return value

        with WorkPool() as pool:
            for _ in range(100):
                results = pool.map(task, range(3000))
                next(results)
                cycle = [results]
                cycle.append(cycle)
                del results, cycle
                futures = [pool.submit(task, {"n": [n]}) for n in range(100)]
                assert [future.result()["n"][0] for future in futures] == list(range(100))
        print("ended")
    """
    assert run_ranks(3, script).stdout == "ended\n"


def test_a_worker_has_the_room_of_what_was_collected() -> None:
    script = """
        from workpool import WorkPool

        with WorkPool(max_workers=1, arena_nbytes=4 << 20) as pool:  # room for two results
            for _ in range(20):
                assert len(pool.submit(bytes, 900_000).result(20)) == 900_000
        print("ended")
    """
    assert run_ranks(2, script).stdout == "ended\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_callbacks_that_use_the_pool(ranks: int) -> None:
    script = """
        import sys, threading
        from workpool import WorkPool

        def task(n):
            return n

        ended = threading.Event()
        with WorkPool(max_pending=2) as pool:
            def again(future):
                if future.result() == 50:
                    ended.set()
                else:
                    pool.submit(task, future.result() + 1).add_done_callback(again)

            pool.submit(task, 0).add_done_callback(again)
            assert ended.wait(20)
            pool.submit(task, 1).add_done_callback(lambda future: sys.exit(5))
            assert pool.submit(task, 2).result() == 2

        ended.clear()
        last = WorkPool()

        def close(future):
            last.shutdown()
            ended.set()

        last.submit(task, 0).add_done_callback(close)
        assert ended.wait(20)
        print("ended")
    """
    result = run_ranks(ranks, script)
    assert result.stdout == "ended\n"
    assert "SystemExit: 5" in result.stderr


def test_a_callback_that_wants_a_pool_while_the_job_ends() -> None:
    script = """
        import time
        from workpool import WorkPool

        def callback(future):
            time.sleep(0.6)  # the program is over by now
            other = WorkPool(rows=77)
            print(other.submit(abs, -7).result())
            other.submit(time.sleep, 0.3).add_done_callback(lambda future: print("called"))

        pool = WorkPool()
        pool.submit(time.sleep, 0.3).add_done_callback(callback)
    """
    assert run_ranks(3, script).stdout == "7\ncalled\n"


def test_nobody_is_thought_to_wait_for_a_future_that_has_ended() -> None:
    script = """
        import threading, time
        from concurrent.futures import wait
        from workpool import WorkPool
        from workpool.job import entry

        with WorkPool() as pool:
            busy = [pool.submit(time.sleep, 0.3) for _ in range(2)]
            futures = [pool.submit(pow, 2, n) for n in range(50)]
            futures += [pool.submit(print, threading.Lock())]
            for future in futures[::2]:
                future.cancel()
            wait(futures + busy)
            (core,) = entry.current().pools
            assert not core.watched, core.watched
        print("ended")
    """
    assert run_ranks(3, script).stdout == "ended\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_callbacks_have_run_when_shutdown_returns(ranks: int, tmp_path: Path) -> None:
    script = """
        import os, sys, threading, time
        from workpool import WorkPool

        called = []

        def slow(future):
            time.sleep(0.005)
            called.append(future.result())

        with WorkPool() as pool:
            for n in range(20):
                pool.submit(abs, -n).add_done_callback(slow)
        print(sorted(called) == list(range(20)))

        ended = threading.Event()
        pool = WorkPool()
        pool.submit(abs, -1).add_done_callback(lambda future: (pool.shutdown(), ended.set()))
        print(ended.wait(20))

        place = sys.argv[1]

        def until_cancelled():
            while not os.path.exists(place):
                time.sleep(0.01)

        def cancelled(future):
            open(place, "w").close()
            print(last.shutdown(), future.cancelled())

        last = WorkPool()
        futures = [last.submit(until_cancelled) for _ in range(8)]
        futures[-1].add_done_callback(cancelled)
        print(futures[-1].cancel())
    """
    stdout = run_ranks(ranks, script, str(tmp_path / "cancelled")).stdout
    assert stdout == "True\nTrue\nNone True\nTrue\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_short_callbacks_have_run_when_a_result_is_returned(ranks: int) -> None:
    script = """
        import threading
        from workpool import WorkPool
        from workpool.pool import callbacks

        callbacks.CALLED_S = 60
        called = []

        def call(future):
            called.append(future.result())

        with WorkPool() as pool:
            for how in ("result", "exception"):
                for n in range(30):
                    futures = [pool.submit(abs, -n) for n in range(20)]
                    for future in futures:
                        future.add_done_callback(call)
                    for future in futures:
                        getattr(future, how)()
                    assert sorted(called) == list(range(20)), called
                    called.clear()

            # One that waits for who asks for the result is not waited for any longer.
            callbacks.CALLED_S = 0.01
            lock = threading.Lock()
            with lock:
                future = pool.submit(abs, -1)
                future.add_done_callback(lambda future: lock.acquire())
                assert future.result(60) == 1
        assert lock.locked()
        print("ended")
    """
    assert run_ranks(ranks, script).stdout == "ended\n"


@pytest.mark.parametrize("end", ["sys.exit(3)", "1 / 0", "pass"])
def test_a_process_that_the_program_forks_is_not_the_driver(end: str) -> None:
    text = f"""
import os, sys, time
from workpool import WorkPool

pool = WorkPool()
futures = [pool.submit(time.sleep, 0.2) for _ in range(4)]
child = os.fork()
if child:
    os.waitpid(child, 0)
    print([future.result() for future in futures])
else:
    print("forked")
    {end}
"""
    with run("-w", "2", "-c", text) as started:
        ended = started.wait()
    assert (ended.status, ended.out) == (0, "forked\n[None, None, None, None]\n")


def test_what_cannot_be_restored_on_a_worker_is_named() -> None:
    script = """
        import sys, types
        from workpool import WorkPool

        module = sys.modules["only_here"] = types.ModuleType("only_here")
        exec("def function(): pass\\nclass Thing: pass", vars(module))
        with WorkPool() as pool:
            isolated = pool.with_options(isolate=True)
            for future in (
                pool.submit(module.function), pool.submit(len, [module.Thing()]),
                isolated.submit(module.function), isolated.submit(len, [module.Thing()]),
            ):
                print(future.exception(20).__cause__.task)
    """
    assert run_ranks(2, script).stdout == "function\nlen\nfunction\nlen\n"


def test_a_short_task_with_a_large_outcome_among_many() -> None:
    script = """
        from workpool import WorkPool

        def task(n):
            return bytes(n) if n > 100 else n

        with WorkPool(max_workers=1, arena_nbytes=256 << 10) as pool:
            for _ in range(5):
                for future in [pool.submit(task, n % 10) for n in range(500)]:
                    future.result()
            for _ in range(20):
                sizes = [n % 10 for n in range(300)]
                sizes[250] = 4_000_000
                futures = [pool.submit(task, n) for n in sizes]
                for n, future in zip(sizes, futures):
                    assert future.result(20) == (bytes(n) if n > 100 else n)
        print("ended")
    """
    assert run_ranks(2, script).stdout == "ended\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_finalizers_may_ask_cancel_and_shut_down(ranks: int) -> None:
    """They come in the middle of a submit, where their own thread holds the pool's locks."""
    script = """
        import gc, time
        from concurrent.futures import wait
        from workpool import WorkPool
        from workpool.job import entry

        class Holder:
            def __init__(self, act):
                self.me, self.act = self, act
            def __del__(self):
                self.act()

        gc.set_threshold(50)
        met = set()

        def submits():
            try:
                pool.submit(abs, -1)
            except RuntimeError as error:
                met.add(str(error))

        def waits():
            try:
                last.result()
            except RuntimeError as error:
                met.add(str(error))

        with WorkPool() as pool:
            futures = []
            for act in ("running", "cancel", "submit", "result"):
                for _ in range(3000):
                    last = future = pool.submit(abs, -1)
                    futures.append(future)
                    Holder({"submit": submits, "result": waits}.get(act) or getattr(future, act))
            wait(futures)
            assert all(future.cancelled() or future.result() == 1 for future in futures)
            last = pool.submit(time.sleep, 0.2)
            (driver,) = entry.current().tables.drivers
            with driver._lock:
                submits()
                waits()
                try:
                    pool.accumulator()
                except RuntimeError as error:
                    assert str(error) in met
                else:
                    raise AssertionError("made in the middle of a step")
            assert {text.partition(" can")[0] for text in met} == {
                "neither a finalizer nor a signal's handler", "neither a finalizer nor a task"
            }, met
            end = time.monotonic() + 30
            while time.monotonic() < end:
                Holder(pool.shutdown)  # which may be left to another thread
                try:
                    pool.submit(abs, -1)
                except RuntimeError:
                    break
            else:
                raise AssertionError("still open")
    """
    run_ranks(ranks, script)
