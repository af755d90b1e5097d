"""Tasks in a child process: what they may do to it, and that nothing else notices."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]

TASKS = """
import ctypes, itertools, os, resource, signal, subprocess, sys, threading, time
import numpy as np
from workpool import TaskKilled, TaskTimeout, WorkerCrashed, WorkPool
from workpool.job import entry
from workpool.system import process
from workpool.worker import isolation
from workpool.errors import RemoteTraceback, UsageError
from workpool.serializer import CallableCache

def add_one(n):
    return n + 1

def pid():
    return os.getpid()

def crash():
    ctypes.string_at(0)

def leave(status):
    print("last words", file=sys.stderr)
    os._exit(status)

def hang():
    while True:
        time.sleep(0.01)

def until_running(future):
    limit = time.monotonic() + 20
    while not future.running():
        assert time.monotonic() < limit and not future.done()
        time.sleep(0.002)

def until_made(path):
    limit = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < limit
        time.sleep(0.002)

def error(future):
    failure = future.exception(30)
    assert isinstance(failure.__cause__, RemoteTraceback), repr(failure)
    return failure
"""


def run(ranks: int, body: str, timeout: float = 60) -> str:
    script = TASKS + "\nwith WorkPool() as pool:\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return run_ranks(ranks, script, timeout=timeout).stdout


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
        try:
            pool.kill(own)
        except UsageError as refused:
            assert "isolate=True" in str(refused)
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
        code.mean_s, code.slow = 1e-4, 0.0
        driver._dispatcher.draining = False
        until_made(path)
        assert pool.kill(futures[20]) and type(futures[20].exception()) is TaskKilled
        assert [f.result(30) for n, f in enumerate(futures) if n != 20] == [
            n for n in range(60) if n != 20
        ]
        """,
    )


def test_kill_ends_what_is_about_to_be_tried_again(tmp_path: Path) -> None:
    run(
        2,
        f"""
        def fail(path):
            open(path, "w").close()
            time.sleep(0.1)
            raise ValueError

        def late(task):
            alone(task)
            with driver._lock:  # nobody collects, and the attempt ends meanwhile
                time.sleep(0.5)

        view, path = pool.with_options(isolate=True, retries=9), {str(tmp_path / "begun")!r}
        view.submit(abs, 1).result()
        driver = pool._core.driver
        alone, driver.single_out = driver.single_out, late
        future = view.submit(fail, path)
        until_made(path)
        assert pool.kill(future)
        assert future.cancelled() or type(future.exception()) is TaskKilled
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


def test_the_initializer_is_not_within_the_tasks_memory() -> None:
    script = """
        import numpy as np
        from workpool import WorkPool

        def load():
            global table
            table = np.ones(40_000_000)

        with WorkPool(initializer=load) as pool:
            small = pool.with_options(memory_limit_nbytes=100_000_000)
            print(small.submit(pow, 2, 5).result(60), pool.submit(pow, 2, 6).result(60))
    """
    assert run_ranks(2, script).stdout == "32 64\n"


def test_the_initializer_is_not_within_the_tasks_time() -> None:
    script = """
        import time
        from workpool import TaskTimeout, WorkPool

        def last(seconds):
            time.sleep(seconds)
            return 32

        with WorkPool(initializer=time.sleep, initargs=(1,)) as pool:
            short = pool.with_options(timeout_s=1.6)
            print(short.submit(last, 1).result(60))
            assert isinstance(short.submit(time.sleep, 60).exception(60), TaskTimeout)
            print(short.submit(pow, 2, 6).result(60))
    """
    assert run_ranks(2, script).stdout == "32\n64\n"


def test_retries(tmp_path: Path) -> None:
    run(
        3,
        f"""
        def works_at(path, number, error):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) < number:
                raise error("not yet")
            return os.path.getsize(path)

        def place(name):
            return os.path.join({str(tmp_path)!r}, name)

        thrice = pool.with_options(retries=2)
        assert thrice.submit(works_at, place("a"), 3, ValueError).result(30) == 3
        failure = error(thrice.submit(works_at, place("b"), 4, ValueError))
        assert failure.__cause__.attempts == 3 and "attempt 3" in str(failure.__cause__)
        assert os.path.getsize(place("b")) == 3
        picky = pool.with_options(retries=5, retry_on=(KeyError, OSError))
        assert type(error(picky.submit(works_at, place("c"), 2, ValueError))) is ValueError
        assert picky.submit(works_at, place("d"), 2, KeyError).result(30) == 2
        start = time.monotonic()
        late = pool.with_options(retries=2, retry_delay_s=0.2)
        assert late.submit(works_at, place("e"), 3, ValueError).result(30) == 3
        assert 0.4 < time.monotonic() - start < 20
        # What has ended well, and cannot be restored here, has been committed.
        class Stubborn:
            def __setstate__(self, state):
                raise ValueError("not here")
        def once(path, numbers):
            with open(path, "a") as file:
                file.write("x")
            numbers.add(1)
            stubborn = Stubborn()
            stubborn.x = 1
            return stubborn
        numbers = pool.accumulator()
        assert "not here" in str(thrice.submit(once, place("s"), numbers).exception(30))
        assert os.path.getsize(place("s")) == numbers.value() == 1
        late = pool.with_options(retries=1, retry_delay_s=60)
        waiting = late.submit(works_at, place("w"), 2, ValueError)
        until_made(place("w"))
        limit = time.monotonic() + 30
        while not waiting.cancel():  # its first attempt is not over yet
            assert time.monotonic() < limit
            time.sleep(0.002)
        assert waiting.cancelled()
        # Each attempt has a limit of its own; an array is sent as it was at the submission.
        sure = pool.with_options(retries=20, timeout_s=0.3)
        def slow_at_first(path, array):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) < 3:
                hang()
            return float(array.sum())
        ones = np.ones(100_000)
        future = sure.submit(slow_at_first, place("f"), ones)
        ones[:] = 0
        assert future.result(30) == 100_000
        assert list(thrice.map(add_one, range(100))) == list(range(1, 101))
        """,
    )


def test_what_brings_down_three_processes_is_not_tried_again() -> None:
    run(
        2,
        """
        future = pool.with_options(retries=100, isolate=True).submit(crash)
        failure = error(future)
        assert failure.__cause__.attempts == 3 and "no more tries" in str(failure)
        """,
    )


def test_the_child_is_a_process_of_its_own() -> None:
    stdout = run(
        2,
        """
        isolated = pool.with_options(isolate=True)
        rank, child = pool.submit(pid).result(), isolated.submit(pid).result()
        assert rank != child == isolated.submit(pid).result()
        import sys
        assert isolated.submit(lambda: sys.argv).result() == sys.argv
        limited = pool.with_options(max_tasks_per_child=2)
        assert len({limited.submit(pid).result() for _ in range(8)}) >= 4
        def asks_for_mpi():
            from mpi4py import MPI
        failure = error(isolated.submit(asks_for_mpi))
        assert isinstance(failure, ImportError) and "child process" in str(failure)
        # Large things, both ways; what a result refers to is its own.
        array = np.arange(3_000_000.0)
        assert np.array_equal(isolated.submit(lambda a: a + 1, array).result(60), array + 1)
        isolated.submit(print, "from the child").result()
        """,
    )
    assert stdout == "from the child\n"  # passed on


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_script_may_have_more_arguments_than_one_word_of_a_command_line_holds(ranks: int) -> None:
    script = """
        import sys
        from workpool import WorkPool

        def extend():  # not by the command line: Open MPI's mpiexec takes no more
            sys.argv += ["\\u00e4 'b' \\\\ \\n", *(f"argument-{n}" for n in range(20_000))]
            return sys.argv

        with WorkPool() as pool:
            isolated = pool.with_options(isolate=True)
            given = pool.submit(extend).result(30)
            assert isolated.submit(lambda: sys.argv).result(30) == given
            assert isolated.submit(lambda: sys.stdin.read()).result(30) == ""
            print(len(given))
    """
    assert run_ranks(ranks, script).stdout == "20002\n"


def test_under_python_without_asserts() -> None:
    script = """
        import sys
        from workpool import WorkPool
        with WorkPool() as pool:
            print(sys.flags.optimize, pool.with_options(isolate=True).submit(pow, 2, 5).result())
    """
    assert run_ranks(2, script, env={"PYTHONOPTIMIZE": "1"}).stdout == "1 32\n"


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


def test_a_child_asks_for_what_it_lacks() -> None:
    script = TASKS + textwrap.dedent(
        """
            def keep_two():
                defaults = CallableCache.__init__.__defaults__
                CallableCache.__init__.__defaults__ = (2, *defaults[1:])

            def check(pool):
                isolated = pool.with_options(isolate=True)
                for function in 2 * (add_one, abs, float, str, add_one, add_one):
                    assert isolated.submit(function, 1).result(30) == function(1)

            # The child is the same all the time; what it has of a function belongs to a pool.
            with WorkPool(max_workers=1) as first, WorkPool(max_workers=1) as second:
                child = first.with_options(isolate=True).submit(pid).result(30)
                for pool in (first, second, first):
                    check(pool)
            for initializer in (None, keep_two):
                with WorkPool(max_workers=1, initializer=initializer) as pool:
                    check(pool)
                    assert pool.with_options(isolate=True).submit(pid).result(30) == child
            """
    )
    run_ranks(2, script)


def test_a_child_that_cannot_be_started_costs_an_attempt() -> None:
    run(
        2,
        """
        def limits():
            return resource.getrlimit(resource.RLIMIT_NOFILE)
        def descriptors():
            with open("/proc/net/unix") as sockets:  # a bell is made when a worker first sleeps
                bells = [line.split()[6] for line in sockets if "@workpool" in line]
            links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
            held = [os.readlink(link) for link in links if os.path.islink(link)]
            return len([what for what in held if what.strip("socket:[]") not in bells])
        def leave_free(count):
            free = (n for n in range(1024) if not os.path.exists(f"/proc/self/fd/{n}"))
            highest = next(itertools.islice(free, count, None))
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits()[1]))
        def reset(limits):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        def allow_threads(allowed):
            def refuse(self):
                raise RuntimeError("can't start new thread")
            if allowed:
                del process._Tail.start
            else:
                process._Tail.start = refuse

        def fails(why):
            failure = error(isolated.submit(add_one, 1))
            assert type(failure) is WorkerCrashed, repr(failure)
            assert why in str(failure) and "add_one was not run" in str(failure)
            assert failure.signum is failure.exitcode is None

        isolated = pool.with_options(isolate=True)
        before, usual = pool.submit(descriptors).result(30), pool.submit(limits).result(30)
        for count in range(9):  # so many are needed
            pool.submit(leave_free, count).result(30)
            fails("Too many open files")
            pool.submit(reset, usual).result(30)
            assert pool.submit(descriptors).result(30) == before
        pool.submit(allow_threads, False).result(30)
        fails("new thread")
        def have_memory(some):
            def refuse(*given):
                raise MemoryError
            if some:
                isolation.ChildProcess = process.ChildProcess
            else:
                isolation.ChildProcess = refuse
        pool.submit(have_memory, False).result(30)
        fails("no memory")
        pool.submit(have_memory, True).result(30)
        pool.submit(allow_threads, True).result(30)
        assert pool.submit(descriptors).result(30) == before
        assert isolated.submit(add_one, 1).result(30) == 2
        """,
    )


def test_a_limit_of_no_open_files_is_the_tasks_own_matter() -> None:
    run(
        2,
        """
        def allow_none():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            return pid()
        isolated = pool.with_options(isolate=True)
        child = isolated.submit(allow_none).result(30)
        # It goes on: with the limit, as with whatever else a task leaves in its process.
        assert isolated.submit(pid).result(30) == child
        large = np.ones(1_000_000)  # waited for in pieces
        assert np.array_equal(isolated.submit(np.add, large, 1).result(30), large + 1)
        assert type(error(isolated.submit(open, os.devnull))) is OSError
        other = pool.with_options(max_tasks_per_child=1)
        assert other.submit(allow_none).result(30) != other.submit(allow_none).result(30)
        """,
    )


def test_a_child_that_does_not_begin_costs_an_attempt(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text("import time\ndef main(*given): time.sleep(60)\n")
    run(
        2,
        f"""
        def start(module, start_s):
            sys.path.append({str(tmp_path)!r})
            isolation.child.__name__, isolation.START_S = module, start_s
        isolated = pool.with_options(isolate=True)
        pool.submit(start, "no_such_module", 60.0).result(30)
        failure = error(isolated.submit(add_one, 1))
        assert type(failure) is WorkerCrashed and failure.exitcode == 1
        assert "no_such_module" in failure.stderr
        pool.submit(start, "sleepy", 0.1).result(30)
        failure = error(isolated.submit(add_one, 1))
        assert type(failure) is WorkerCrashed and "within 0.1 s" in str(failure)
        pool.submit(start, "workpool.worker.child", 60.0).result(30)
        assert isolated.submit(add_one, 1).result(30) == 2
        """,
    )


def test_a_child_that_does_not_read_can_be_ended() -> None:
    run(
        2,
        """
        isolated = pool.with_options(isolate=True)
        large = np.ones(100_000)  # more than fits between two processes
        def never(array):
            hang()
        def stop():
            child = isolated.submit(pid).result(30)
            os.kill(child, signal.SIGSTOP)
            return child
        child = stop()
        failure = error(pool.with_options(timeout_s=0.3).submit(np.sum, large))
        assert type(failure) is TaskTimeout and "0.3 s" in str(failure)
        assert isolated.submit(pid).result(30) != child
        child = stop()
        limit = time.monotonic() + 30
        while os.path.exists(f"/proc/{child}"):  # a task may be killed before the child is asked
            assert time.monotonic() < limit
            future = isolated.submit(never, large)
            until_running(future)
            assert pool.kill(future) and type(future.exception()) is TaskKilled
        assert isolated.submit(np.sum, large).result(30) == 100_000
        """,
    )


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
            assert "'timeout'" in str(refused) and "timeout_s" in str(refused)
        else:
            raise AssertionError("timeout")
        view = pool.with_options(retries=1).with_options(isolate=True)
        assert view.num_workers == 1
        whole = pool.with_options(memory_limit_nbytes=2e9, max_tasks_per_child=3.0, retries=1.0)
        assert whole.submit(pow, 2, 5).result(30) == 32
        try:
            view.reduce(abs, range(3))
        except UsageError:
            pass
        else:
            raise AssertionError("reduce")
        """,
    )


def test_what_a_forked_task_forks_keeps_its_files_and_signals() -> None:
    run(
        2,
        """
        def fork(then):
            child = os.fork()
            if not child:
                status = 1
                try:
                    status = then()
                finally:
                    os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        def write_to(fds):
            for fd in fds:
                os.write(fd, b"x")
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            return len(blocked & {signal.SIGINT, signal.SIGTERM})
        def first():
            fds = [os.open(os.devnull, os.O_WRONLY) for _ in range(60)]
            return fork(lambda: write_to(fds))
        assert pool.with_options(isolate=True).submit(fork, first).result(30) == 0
        """,
    )


def test_what_counts_as_a_failure_may_raise() -> None:
    run(
        2,
        """
        class Meta(type):
            def __instancecheck__(cls, instance):
                raise RuntimeError("asked")
        class Odd(Exception, metaclass=Meta):
            pass
        failure = pool.with_options(retries=1, retry_on=(Odd,)).submit(int, "x").exception(30)
        assert str(failure) == "asked" and type(failure.__cause__) is ValueError
        """,
    )
