"""Tasks in a child process: what they may do to it, and that nothing else notices."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import run_ranks
from isolated import TASKS, run

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_crash_costs_its_own_attempt(ranks: int) -> None:
    run(
        ranks,
        """
        isolated = pool.with_options(isolate=True)
        around = [isolated.submit(add_one, n) for n in range(200)]
        crashes = [isolated.submit(crash) for _ in range(3)]
        around += [isolated.submit(add_one, n) for n in range(200)]
        assert [future.result(30) for future in around] == [n + 1 for n in range(200)] * 2
        for future in crashes:
            failure = error(future)
            assert type(failure) is WorkerCrashed and failure.signum == signal.SIGSEGV
            assert failure.exitcode is None and "in crash" in failure.stderr
            assert "crash" in str(failure) and "SIGSEGV" in str(failure)
        failure = error(isolated.submit(leave, 7))
        assert (failure.exitcode, failure.signum, failure.stderr) == (7, None, "last words")
        failure = error(isolated.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)))
        assert failure.signum == signal.SIGKILL and "memory" in str(failure)
        """,
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_classes_of_the_script_are_the_same_ones_there_and_back(ranks: int) -> None:
    script = """
        import dataclasses
        from workpool import WorkPool

        @dataclasses.dataclass
        class Point:
            x: int

        def moved(point):
            return Point(point.x + 1)

        def local():
            class Local:
                pass
            return Local()

        with WorkPool() as pool:
            for view in (pool, pool.with_options(isolate=True)):
                for _ in range(3):
                    assert view.submit(moved, Point(1)).result() == Point(2)
                    assert view.submit(lambda: Point).result() is Point
                found = list(view.map(moved, [Point(x) for x in range(50)]))
                assert found == [Point(x + 1) for x in range(50)]
                assert type(view.submit(local).result()).__name__ == "Local"
                most = view.submit(max, [Point(1), Point(2)], key=lambda point: point.x)
                assert most.result() == Point(2)
    """
    run_ranks(ranks, script)


@pytest.mark.smoke
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_time_limit_ends_a_task_and_shows_where_it_was(ranks: int) -> None:
    run(
        ranks,
        """
        def be_patient():
            process.STACK_S = 10
            time.sleep(0.02)
            return os.getpid()
        ranks = set()
        while len(ranks) < pool.num_workers:
            ranks.update(pool.map(lambda n: be_patient(), range(4), chunksize=1))
        limited = pool.with_options(timeout_s=1)
        short = limited.with_options(retries=10)  # a busy machine may take longer
        futures = [limited.submit(hang), short.submit(add_one, 1), limited.submit(hang)]
        for future in (futures[0], futures[2]):
            failure = error(future)
            assert type(failure) is TaskTimeout and isinstance(failure, TimeoutError)
            assert "in hang" in failure.stack and "runner.py" not in failure.stack
            assert "after 1 s" in str(failure) and failure.stack in str(failure)
        assert futures[1].result(30) == 2
        # C that is called by nobody else's Python.
        failure = error(limited.submit(time.sleep, 60))
        assert failure.stack == "" and str(failure).endswith("was killed")
        # One that never lets go of the interpreter's lock.
        locked = limited.submit(lambda: ctypes.PyDLL(None).sleep(60))
        assert type(error(locked)) is TaskTimeout
        # One that ignores every signal that can be ignored, and has children.
        def stubborn():
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(signum, signal.SIG_IGN)
            subprocess.run(["sleep", "60"])
        assert type(error(limited.submit(stubborn))) is TaskTimeout
        # The limit is for each task: many short ones together may take longer.
        def together():
            try:
                return len(list(pool.with_options(timeout_s=0.3).map(time.sleep, [0.02] * 60)))
            except TaskTimeout:
                return 0
        assert any(together() == 60 for _ in range(10))
        """,
    )


def test_kill_ends_what_runs_and_withdraws_what_waits(tmp_path: Path) -> None:
    run(
        3,
        f"""
        place = {str(tmp_path)!r}
        isolated = pool.with_options(isolate=True)
        running = [isolated.submit(hang) for _ in range(2)]
        for future in running:
            until_running(future)
        waiting = isolated.submit(add_one, 1)
        assert isolated.kill(waiting) and waiting.cancelled()
        for future in running:
            assert pool.kill(future) and future.done() and not future.cancelled()
            assert type(future.exception()) is TaskKilled and "hang" in str(future.exception())
            assert not pool.kill(future)
        assert isolated.submit(add_one, 1).result(30) == 2  # the workers are free again
        own = pool.submit(until_made, f"{{place}}/refused")
        until_running(own)
        other = WorkPool().submit(abs, -1)
        for future, why in ((own, "isolate=True"), (other, "not of this pool")):
            try:
                pool.kill(future)
            except UsageError as refused:
                assert why in str(refused)
            else:
                raise AssertionError("killed a rank?")
        open(f"{{place}}/refused", "w").close()
        assert own.result(30) is None
        # Killed in the middle of a batch: the others are run all the same.
        def odd(n, path=""):
            if path:
                open(path, "w").close()
                hang()
            return n
        path = f"{{place}}/hangs"
        (driver,) = entry.current().tables.drivers
        driver._dispatcher.draining = True  # until they can be divided among rows
        futures = [isolated.submit(odd, n, *[path] * (n == 20)) for n in range(60)]
        code = futures[-1]._task.code
        code.measured(1, [100_000] * 1000)
        driver._dispatcher.draining = False
        until_made(path)
        assert pool.kill(futures[20]) and type(futures[20].exception()) is TaskKilled
        assert [f.result(30) for n, f in enumerate(futures) if n != 20] == [
            n for n in range(60) if n != 20
        ]
        """,
    )


def test_what_a_task_has_started_does_not_answer_for_it() -> None:
    run(
        3,
        """
        import multiprocessing
        isolated = pool.with_options(isolate=True)

        def forks(n):
            if os.fork() == 0:
                sys.exit(0)  # or returns: it is not the process that is asked
            return n

        def leaves_another(signum):
            os.system("sleep 100 &")
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,)).start()
            os.kill(os.getpid(), signum)

        def terminates():
            process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
            process.start()
            process.terminate()
            process.join()
            return process.exitcode

        assert [isolated.submit(forks, n).result(30) for n in range(8)] == list(range(8))
        assert list(isolated.map(forks, range(8))) == list(range(8))
        failure = isolated.submit(leaves_another, signal.SIGSEGV).exception(10)
        assert failure.signum == signal.SIGSEGV, repr(failure)
        assert isolated.submit(terminates).result(30) == -signal.SIGTERM
        """,
    )


def test_a_task_that_closes_the_connection_and_goes_on_is_killed() -> None:
    run(
        1,
        """
        from workpool.system import process

        def close_and_sleep():
            os.closerange(3, 256)
            time.sleep(100)

        process.GONE_S = 0.1
        isolated = pool.with_options(isolate=True)
        failure = error(isolated.submit(close_and_sleep))
        assert type(failure) is WorkerCrashed, repr(failure)
        assert (failure.signum, failure.exitcode) == (None, None)
        assert "closed the connection" in str(failure) and "memory" not in str(failure)
        assert isolated.submit(add_one, 1).result(30) == 2
        """,
    )


def test_a_limit_of_memory() -> None:
    run(
        2,
        """
        def allocate(nbytes):
            return len(bytearray(nbytes))
        limited = pool.with_options(memory_limit_nbytes=64 << 20)
        assert type(error(limited.submit(allocate, 128 << 20))) is MemoryError
        assert limited.submit(allocate, 16 << 20).result() == 16 << 20
        assert pool.with_options(memory_limit_nbytes=2**64).submit(abs, -1).result() == 1
        free = pool.with_options(isolate=True)
        assert free.submit(allocate, 128 << 20).result() == 128 << 20
        # What is sent there, and comes back, counts as well.
        for task in (limited.submit(len, bytes(96 << 20)), limited.submit(bytes, 48 << 20)):
            assert type(error(task)) is MemoryError
        # The first array that a child sees costs the task its bytes, and not NumPy's libraries.
        tight = pool.with_options(memory_limit_nbytes=4 << 20, max_tasks_per_child=1)
        assert tight.submit(np.sum, np.ones(1000)).result() == 1000
        def spoil():
            import builtins
            builtins.open = None
        assert (limited.submit(spoil).result(), limited.submit(abs, -2).result()) == (None, 2)
        """,
    )


def test_initializer_and_accumulators_work_there() -> None:
    script = TASKS + textwrap.dedent(
        """
            state = None
            def begin(value):
                global state
                state = (value, os.getpid())
            def read():
                return state
            def count(sums, n):
                sums.add([n, 1])
                if n == 13:
                    raise ValueError(n)
                return n
            def broken():
                raise RuntimeError("no")

            with WorkPool(initializer=begin, initargs=("set",)) as pool:
                isolated = pool.with_options(isolate=True)
                for view in (pool, isolated, pool.with_options(timeout_s=20), pool):
                    for _ in range(3):
                        value, process = view.submit(read).result(30)
                        assert value == "set"
                sums = pool.accumulator((2,), "int64")
                futures = [isolated.submit(count, sums, n) for n in range(300)]
                assert type(futures[13].exception(30)) is ValueError
                assert sum(f.result(30) for f in futures if f is not futures[13]) == 44850 - 13
                assert sums.value().tolist() == [44850 - 13, 299]
            with WorkPool(initializer=broken) as pool:
                try:
                    pool.with_options(isolate=True).submit(read).result(30)
                except Exception as failure:
                    assert type(failure).__name__ == "BrokenPool", failure
                else:
                    raise AssertionError
            """
    )
    run_ranks(3, script)


def test_options_that_cannot_be() -> None:
    run(
        1,
        """
        for options in (
            dict(timeout_s=-1), dict(retries=-1), dict(retry_delay_s=-1),
            dict(retries=1.5), dict(max_tasks_per_child=1.5), dict(timeout_s="1"),
            dict(isolate="no"),
            dict(max_tasks_per_child=0), dict(retry_delay_s=float("inf")),
            dict(memory_limit_nbytes=0), dict(retry_on="ValueError"), dict(timeout_s=float("nan")),
            dict(retries=None), dict(max_tasks_per_child=np.inf), dict(retry_on=(KeyError, int)),
        ):
            try:
                pool.with_options(**options)
            except UsageError as refused:
                assert next(iter(options)) in str(refused)
            else:
                raise AssertionError(options)
        try:
            pool.with_options(timeout=3)
        except TypeError as refused:
            for word in ("'timeout'", "timeout_s", "those of a pool are given to WorkPool"):
                assert word in str(refused), refused
        else:
            raise AssertionError("timeout")
        view = pool.with_options(retries=1).with_options(isolate=True)
        assert view.num_workers == 1
        numbers = dict(memory_limit_nbytes=2e9, max_tasks_per_child=3.0, retries=1.0)
        whole = pool.with_options(timeout_s=np.array(30.0), **numbers)
        assert whole.submit(pow, 2, 5).result(30) == 32
        try:
            view.reduce(abs, range(3))
        except UsageError:
            pass
        else:
            raise AssertionError("reduce")
        """,
    )
