"""The child process that runs tasks: how it begins, what it has, and what if it fails."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from harness import run_ranks
from isolated import TASKS, run

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


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


def test_neither_initializer_nor_import_is_within_the_tasks_time(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time; time.sleep(2)\ndef last(s): return time.sleep(s) or 32"
    )
    script = """
        import sys, time
        from workpool import TaskTimeout, WorkPool

        sys.path.insert(0, sys.argv[1])
        from slow import last

        with WorkPool(initializer=time.sleep, initargs=(2,)) as pool:
            short = pool.with_options(timeout_s=1.6)
            print(short.submit(last, 1).result(60))
            assert isinstance(short.submit(time.sleep, 60).exception(60), TaskTimeout)
            print(short.submit(last, 1).result(60), short.submit(pow, 2, 6).result(60))
    """
    assert run_ranks(2, script, str(tmp_path)).stdout == "32\n32 64\n"


def test_the_time_for_which_the_job_was_stopped_is_not_within_the_tasks_time(
    tmp_path: Path,
) -> None:
    script = """
        import os, signal, sys, time
        from pathlib import Path
        from workpool import WorkPool

        def work(path):
            Path(path).write_text(f"{os.getppid()} {os.getpid()}")
            end = time.process_time() + 0.1
            while time.process_time() < end:
                pass
            return 32

        def stopped(pids):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(6)
            for pid in pids:  # the worker goes on before its child
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.1)

        path = Path(sys.argv[1])
        with WorkPool() as pool:
            future = pool.with_options(timeout_s=5).submit(work, str(path))
            while not path.exists() or len(pids := path.read_text().split()) < 2:
                time.sleep(0.001)
            stopped([int(pid) for pid in pids])
            print(future.result(60))
    """
    assert run_ranks(2, script, str(tmp_path / "pids")).stdout == "32\n"


def test_the_child_is_a_process_of_its_own() -> None:
    stdout = run(
        2,
        """
        isolated = pool.with_options(isolate=True)
        rank, child = pool.submit(pid).result(), isolated.submit(pid).result()
        assert rank != child == isolated.submit(pid).result()
        import importlib.util, sys
        assert isolated.submit(lambda: sys.argv).result() == sys.argv
        limited = pool.with_options(max_tasks_per_child=2)
        assert len({limited.submit(pid).result() for _ in range(8)}) >= 4
        def asks_for_mpi():
            from mpi4py import MPI
        failure = error(isolated.submit(asks_for_mpi))
        assert isinstance(failure, ImportError) and "child process" in str(failure)
        assert isolated.submit(lambda: bool(importlib.util.find_spec("mpi4py"))).result()
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


def test_under_python_with_options_of_its_own() -> None:
    script = """
        import sys
        from workpool import WorkPool
        def given():  # as by -X
            sys._xoptions["pycache_prefix"] = "/nowhere"
        def shown():
            return sys.pycache_prefix
        with WorkPool() as pool:
            pool.submit(given).result()
            print(pool.with_options(isolate=True).submit(shown).result())
    """
    assert run_ranks(2, script).stdout == "/nowhere\n"


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
            with open("/proc/net/unix", "rb") as sockets:  # the machine's: names need not be text
                ours = [line.decode().split() for line in sockets if b"@workpool" in line]
            bells = [fields[6] for fields in ours]  # a bell is made when a worker first sleeps
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
            import _thread, types
            def refuse(*args):
                raise RuntimeError("can't start new thread")
            refusing = types.SimpleNamespace(start_new_thread=refuse)
            process._thread = _thread if allowed else refusing

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
        def freeze(frozen):
            if frozen:
                sys.frozen = True
            else:
                del sys.frozen
        pool.submit(freeze, True).result(30)
        fails("is a frozen program")
        pool.submit(freeze, False).result(30)
        assert pool.submit(descriptors).result(30) == before
        assert isolated.submit(add_one, 1).result(30) == 2
        """,
    )


def test_there_are_children_where_no_file_can_be_in_memory() -> None:
    """Python has no way to make one where it was built for an old C library, as conda's is."""
    run(
        2,
        """
        def refuse(name):
            raise PermissionError(1, "refused")  # EPERM
        def forget(missing):
            if missing:
                os.made = os.__dict__.pop("memfd_create", None)
            else:
                os.memfd_create = refuse
        def stall():
            time.sleep(60)

        isolated = pool.with_options(isolate=True)
        for missing in (True, False):
            pool.submit(forget, missing).result(30)
            # Which ends the child, if there was one.
            timeout = error(isolated.with_options(timeout_s=0.5).submit(stall))
            assert type(timeout) is TaskTimeout and "in stall" in str(timeout.__cause__), timeout
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


def test_shared_memory_goes_with_the_child_that_has_made_it() -> None:
    script = """
        import os
        import time
        from multiprocessing.shared_memory import SharedMemory
        from workpool import WorkPool

        def hold(name, end, *args):
            import sys
            sys.held = SharedMemory(name, create=True, size=1)
            end(*args)

        def left(view, *call):
            name = f"workpool-test-{os.getpid()}"
            view.submit(hold, name, *call).exception(30)
            view.submit(abs, -1).result(30)  # by another child
            try:
                found = SharedMemory(name)
            except FileNotFoundError:
                return False
            found.close()
            found.unlink()
            return True

        with WorkPool(max_workers=1) as pool:
            print(left(pool.with_options(timeout_s=2), time.sleep, 60))
            print(left(pool.with_options(isolate=True), os._exit, 3))
            print(left(pool.with_options(max_tasks_per_child=1), abs, -1))
    """
    assert run_ranks(2, script).stdout == "False\n" * 3
