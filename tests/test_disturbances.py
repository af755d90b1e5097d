"""What comes between any two steps of a driver: the collector, callbacks, forks."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from harness import run_ranks
from launching import run

from workpool.system.shared_memory import remove

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

# --- the collector --------------------------------------------------------------------------------


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


# --- callbacks ------------------------------------------------------------------------------------


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


# --- processes ------------------------------------------------------------------------------------


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
    {end}
"""
    with run("-w", "2", "-c", text) as started:
        ended = started.wait()
    assert (ended.status, ended.out) == (0, "[None, None, None, None]\n")


def test_a_task_cannot_make_a_pool() -> None:
    script = """
        from workpool import WorkPool

        def task():
            with WorkPool(rows=99) as pool:
                return pool.submit(pow, 2, 3).result()

        with WorkPool() as pool:
            print(pool.submit(task).exception())
    """
    for ranks in (1, 3):
        assert "a task cannot make a pool" in run_ranks(ranks, script).stdout


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


# --- large outcomes -------------------------------------------------------------------------------


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


# --- what tasks do to their rank ------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("how", ["submit", "map", "isolated"])
def test_what_a_task_forks_is_no_worker(ranks: int, how: str) -> None:
    script = """
        import os, sys
        from workpool import WorkPool

        def fork(end):
            child = os.fork()
            if child:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if end == "raise":
                raise ValueError("in the child")
            return sys.exit(3) if end == "exit" else "of the child"

        def initialize():
            assert fork("return") in (0, "of the child")

        ends = ["raise", "exit", "return"]
        with WorkPool(initializer=initialize) as pool:
            if sys.argv[1] == "map":
                print(list(pool.map(fork, ends * 20)) == [1, 3, 0] * 20)
            else:
                pool = pool.with_options(isolate=sys.argv[1] == "isolated")
                print([pool.submit(fork, end).result(30) for end in ends] == [1, 3, 0])
            print(sum(pool.map(abs, range(1000))))
    """
    result = run_ranks(ranks, script, how)
    assert result.stdout == "True\n499500\n"
    assert "ValueError: in the child" in result.stderr


def test_a_text_that_raises_keyboard_interrupt_is_a_task_like_others() -> None:
    script = """
        from workpool import WorkPool

        with WorkPool() as pool:
            print(repr(pool.submit(exec, "raise KeyboardInterrupt").exception()))
    """
    with run("-w", "2", "-c", dedent(script)) as started:
        ended = started.wait()
    assert ended == (0, "KeyboardInterrupt()\n", "")


def test_what_a_task_leaves_as_standard_output_does_not_break_the_job() -> None:
    script = """
        import sys
        from workpool import WorkPool

        class Broken:
            def flush(self):
                raise RuntimeError("broken")

        def full():
            sys.stdout = open("/dev/full", "w")
            print("text")
            return 1

        def broken():
            sys.stderr = Broken()
            return 2

        with WorkPool() as pool:
            print(pool.submit(full).result(), pool.submit(broken).result())
    """
    assert run_ranks(2, script).stdout == "1 2\n"


def test_a_task_that_breaks_what_its_rank_waits_with_ends_the_job() -> None:
    script = """
        import os
        import time
        from workpool import WorkPool
        from workpool.system.shared_memory import litter_of

        def broken():
            import builtins, os
            builtins.print = lambda *args, **options: None  # as where one rank alone shall print
            os.sched_yield = None

        with WorkPool(max_workers=1) as pool:
            print(*litter_of(os.getpid()), flush=True)
            pool.submit(broken).result()
            time.sleep(60)  # the worker has nothing to do, and sleeps
    """
    result = run_ranks(3, script, expect_status=None)
    assert result.seconds < 30
    remove(set(result.stdout.split()))  # the job has ended before its harness could see what it had
    assert result.status != 0
    assert "failed, the job ends here" in result.stderr


def test_a_rank_that_mpiexec_does_not_hear_any_more_ends_the_job() -> None:
    script = """
        import os
        import time
        from workpool import WorkPool
        from workpool.system.shared_memory import litter_of

        def unheard():
            os.sched_yield = None  # which the worker waits with, and fails
            os.closerange(3, 256)

        with WorkPool(max_workers=1) as pool:
            print(*litter_of(os.getpid()), flush=True)
            pool.submit(unheard).exception()
            time.sleep(60)
    """
    result = run_ranks(3, script, expect_status=None)
    remove(set(result.stdout.split()))
    assert result.seconds < 30
    assert result.status != 0


def test_a_rank_whose_streams_are_closed_starts_children() -> None:
    script = """
        import os
        from workpool import WorkPool

        def loud():
            print("x" * 100_000)
            return "heard"

        with WorkPool() as pool:
            for fd in range(3):
                pool.submit(os.close, fd).result()
            print(pool.with_options(isolate=True).submit(loud).result(20))
    """
    assert run_ranks(2, script).stdout == "heard\n"


def test_what_the_driver_has_no_memory_for_fails_alone() -> None:
    script = """
        import resource
        import numpy as np
        from workpool import WorkPool

        def ones(mib):
            return np.ones(mib << 20, np.uint8)

        with WorkPool(arena_nbytes=1 << 28) as pool, WorkPool(arena_nbytes=1 << 23) as pieces:
            for each in (pool, pieces):
                each.submit(ones, 0).result()
            (line,) = (line for line in open("/proc/self/status") if line.startswith("VmData"))
            most = (int(line.split()[1]) << 10) + (40 << 20)
            resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
            for each in (pool, pieces):
                large = each.submit(ones, 60)
                small = [each.submit(abs, -n) for n in range(100)]
                print(type(large.exception()).__name__, sum(f.result(20) for f in small))
                try:
                    list(each.map(ones, [60]))
                except MemoryError:
                    print(sum(each.map(abs, range(100))))
    """
    assert run_ranks(3, script).stdout == "MemoryError 4950\n4950\n" * 2


def test_large_values_where_no_more_files_can_be_opened() -> None:
    script = """
        import os, resource, sys
        from workpool import WorkPool

        def use_up():
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, most))
            sys.used = []
            try:
                while True:
                    sys.used.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                return "numpy" in sys.modules

        def release():
            for fd in sys.used:
                os.close(fd)

        with WorkPool(max_workers=1) as pool:
            print(pool.submit(use_up).result(), use_up())
            futures = [pool.submit(bytes, 2_000_000) for _ in range(3)]
            print(pool.submit(len, bytes(3_000_000)).result(20))
            print([len(future.result(20)) for future in futures])
            print([len(value) for value in pool.map(bytes, [4_000_000] * 2)])
            pool.submit(release).result()
            release()
    """
    stdout = run_ranks(2, script).stdout
    assert stdout == "False False\n3000000\n[2000000, 2000000, 2000000]\n[4000000, 4000000]\n"


# --- finalizers that the garbage collector calls ------------------------------------------------


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
                "a finalizer", "neither a finalizer nor a task"
            }, met
            for _ in range(3000):
                Holder(pool.shutdown)
                try:
                    pool.submit(abs, -1)
                except RuntimeError:
                    break
            else:
                raise AssertionError("still open")
    """
    run_ranks(ranks, script)
