"""What tasks do to the rank that runs them, and what a rank has too little of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from harness import run_ranks
from launching import run
from processes import PATIENCE

from workpool.system.shared_memory import remove

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]


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
            assert fork("raise") == 1

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


@pytest.mark.parametrize("stderr", ["sys.stderr", "io.StringIO()"])
def test_a_task_that_breaks_what_its_rank_waits_with_ends_the_job(stderr: str) -> None:
    script = f"""
        import io
        import os
        import time
        from workpool import WorkPool
        from workpool.system.shared_memory import mpi_files

        def broken():
            import builtins, os, sys
            builtins.print = lambda *args, **options: None  # as where one rank alone shall print
            sys.stderr = {stderr}  # as where a library shall be silent
            os.sched_yield = None

        with WorkPool(max_workers=1) as pool:
            print(*mpi_files(os.getpid()), flush=True)
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
        from workpool.system.shared_memory import mpi_files

        def unheard():
            os.sched_yield = None  # which the worker waits with, and fails
            os.closerange(3, 256)

        with WorkPool(max_workers=1) as pool:
            print(*mpi_files(os.getpid()), flush=True)
            pool.submit(unheard).exception()
            time.sleep(60)
    """
    result = run_ranks(3, script, expect_status=None)
    remove(set(result.stdout.split()))
    assert result.seconds < 30
    assert result.status != 0


def test_a_task_that_damages_the_heap_ends_the_job() -> None:
    script = """
        import ctypes
        import os
        from workpool import WorkPool
        from workpool.system.shared_memory import mpi_files

        def damage():
            libc = ctypes.CDLL(None)
            libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
            places = [libc.malloc(1000) for _ in range(2000)]  # the last one is behind all others
            ctypes.memset(places[-1], 0xFF, 1100)
            for _ in range(100):
                libc.malloc(5000)  # the C library sees it, and aborts the process

        with WorkPool() as pool:
            print(*mpi_files(os.getpid()), flush=True)
            pool.submit(damage).result()
    """
    result = run_ranks(3, script, expect_status=None)
    remove(set(result.stdout.split("=", 1)[0].split()))  # what MPICH's mpiexec says comes after it
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


def test_mpi_does_not_take_the_places_of_closed_streams(tmp_path: Path) -> None:
    script = """
        import os, sys
        from workpool import WorkPool

        with WorkPool() as pool:
            pool.with_options(isolate=True).submit(print, "nobody reads this").result(20)
            with open(sys.argv[1], "w") as report:
                print([os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)], file=report)
    """
    report = tmp_path / "report"
    command = [sys.executable, "-c", dedent(script), str(report)]
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    subprocess.run([*closing, *command], timeout=60 * PATIENCE, check=True)
    assert report.read_text() == f"{['/dev/null'] * 3}\n"


def test_a_task_that_forgets_all_modules_is_a_task_like_others() -> None:
    script = """
        import sys
        from workpool import WorkPool

        with WorkPool() as pool:
            print(pool.submit(exec, "import sys; sys.modules.clear()").exception())
            print(pool.submit(abs, -1).result())
    """
    assert run_ranks(2, script).stdout == "None\n1\n"


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
