"""How a job ends: who waits for what, with which status, and what is left."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
from harness import run_ranks
from jobs import Ended, Job, start_ranks
from launching import run
from processes import PATIENCE

from workpool.system.shared_memory import remove

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def run_python(*words: str, text: str = "") -> Ended:
    """Run a Python that is a job by itself, with some input, and return what came of it."""
    with Job([sys.executable, *words], text=text) as job:
        return job.wait()


@pytest.mark.parametrize("ranks", [1, 3])
def test_return_without_shutdown_runs_every_task(ranks: int) -> None:
    script = """
        import sys
        from workpool import WorkPool

        def task(n):
            return n * n

        def tell(future):
            sys.stdout.write(f"done {future.result()}\\n")  # in one piece: any thread may be here

        pool = WorkPool()
        for n in range(20):
            pool.submit(task, n).add_done_callback(tell)
        sys.stdout.write("end of the script\\n")
    """
    lines = run_ranks(ranks, script).stdout.split("\n")
    assert {f"done {n * n}" for n in range(20)} | {"end of the script"} <= set(lines)


def test_nobody_is_left_when_the_process_manager_is_killed(tmp_path: Path) -> None:
    """Open MPI's leaves its ranks where they are; so does MPICH's, if a proxy of it is killed."""
    script = """
        import os, sys, time
        from pathlib import Path
        from workpool import WorkPool

        def hold(place):
            Path(place, str(os.getpid())).touch()
            time.sleep(1000)

        place = sys.argv[1]
        with WorkPool() as pool:
            held = pool.submit(hold, place)  # the other worker has nothing to do
            while not os.listdir(place):
                time.sleep(0.01)
            Path(place, "parent").write_text(str(os.getppid()))
            held.result()
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script))
    (place := tmp_path / "place").mkdir()
    words = ["-m", "workpool", str(tmp_path / "driver.py"), str(place)]
    with start_ranks(3, words) as job:
        give_up = time.monotonic() + 30 * PATIENCE
        while not (place / "parent").exists() or not (place / "parent").read_text():
            assert job.status() is None, job.result()
            assert time.monotonic() < give_up, job.stacks()
            time.sleep(0.01)
        assert len(job.members()) >= 4  # and what they have in shared memory is noted
        os.kill(int((place / "parent").read_text()), signal.SIGKILL)
        give_up = time.monotonic() + 5 * PATIENCE
        while job.members():
            assert time.monotonic() < give_up, job.stacks()
            time.sleep(0.05)
        assert job.status() != 0


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("raise ValueError('mine')", 1, "ValueError: mine\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "running tasks have 3 s to end"),
    ],
)
@pytest.mark.parametrize("with_block", [False, True])
def test_what_ends_a_process_by_itself_waits_for_no_tasks(
    tmp_path: Path, end: str, status: int, said: str, with_block: bool
) -> None:
    block = "with pool:" if with_block else "if True:"
    script = f"""
        import time
        from pathlib import Path
        from workpool import WorkPool

        def hold(n):
            Path({str(tmp_path)!r}, f"ran-{{n}}").touch()
            time.sleep(0.5)

        pool = WorkPool()
        {block}
            for n in range(100):
                pool.submit(hold, n)
            while not list(Path({str(tmp_path)!r}).glob("ran-*")):
                time.sleep(0.01)
            {end}
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script))
    ended = run_python(str(tmp_path / "driver.py"))
    assert ended.status == status
    assert said in ended.err
    assert len(list(tmp_path.glob("ran-*"))) <= 2


def test_an_error_in_an_interactive_session_ends_no_tasks() -> None:
    text = """
import time
from workpool import WorkPool
pool = WorkPool()
futures = [pool.submit(time.sleep, 0.2), pool.submit(print, "ran")]
1 / 0
"""
    ended = run_python("-i", text=text)
    assert "ZeroDivisionError" in ended.err
    assert "ran\n" in ended.out


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_error_in_what_an_spmd_program_runs_waits_for_no_tasks(ranks: int) -> None:
    script = """
        import time
        import workpool

        def main(pool):
            futures.extend(pool.submit(time.sleep, 0.2) for _ in range(200))
            futures[0].result()
            raise ValueError("mine")

        futures = []
        try:
            workpool.run(main)
        except ValueError as error:
            assert sum(future.cancelled() for future in futures) > 150
            print(error)
    """
    assert run_ranks(ranks, script, spmd=True).stdout == "mine\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_system_exit_in_what_an_spmd_program_runs_loses_no_task(ranks: int) -> None:
    script = """
        import sys, time
        import workpool

        def main(pool):
            futures.extend(pool.submit(time.sleep, 0.05) for _ in range(20))
            sys.exit(3)

        futures = []
        try:
            workpool.run(main)
        except SystemExit as end:
            print(end.code, sum(not future.cancelled() for future in futures))
    """
    assert run_ranks(ranks, script, spmd=True).stdout == "3 20\n"


def test_uncaught_exception_ends_the_job_with_its_traceback() -> None:
    script = """
        from workpool import WorkPool

        with WorkPool() as pool:
            pool.submit(pow, 2, 3).result()
            raise KeyError("nobody catches it")
    """
    result = run_ranks(3, script, expect_status=1)
    assert "nobody catches it" in result.stderr


@pytest.mark.parametrize("ranks", [1, 3])
def test_exception_of_a_task_that_nobody_catches(ranks: int) -> None:
    script = """
        from workpool import WorkPool

        def task(n):
            return 1 / n

        with WorkPool() as pool:
            pool.submit(task, 0).result()
    """
    result = run_ranks(ranks, script, expect_status=1)
    assert "ZeroDivisionError" in result.stderr
    assert "rank" in result.stderr


def test_system_exit_gives_the_status_of_the_job() -> None:
    script = """
        import sys
        from workpool import WorkPool

        with WorkPool() as pool:
            pool.submit(pow, 2, 3).result()
        sys.exit(7)
    """
    run_ranks(3, script, expect_status=7)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_signal_that_comes_while_the_workers_are_sent_home_leaves_none_behind(ranks: int) -> None:
    script = """
        import signal
        import sys
        from workpool import WorkPool

        def leave(signum, frame):
            sys.exit(5)

        def interrupt(crew, order, part):
            kind.call = call
            signal.raise_signal(signal.SIGTERM)

        with WorkPool() as pool:
            assert pool.submit(int).result() == 0
        signal.signal(signal.SIGTERM, leave)
        kind = type(pool._core._job._crew)
        call, kind.call = kind.call, interrupt
    """
    result = run_ranks(ranks, script, expect_status=5)
    assert result.seconds < 30


def test_a_signal_while_another_is_seen_to_ends_the_job(tmp_path: Path) -> None:
    script = """
        import signal
        from workpool import WorkPool
        from workpool.job.runtime import Runtime

        def interrupt(runtime):
            Runtime.cancel = cancel
            signal.raise_signal(signal.SIGTERM)

        with WorkPool() as pool:
            pool.submit(int).result()
            cancel, Runtime.cancel = Runtime.cancel, interrupt
            signal.raise_signal(signal.SIGTERM)
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script))
    with run("-w", "2", str(tmp_path / "driver.py")) as started:
        assert started.wait() == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("1 / 0", 1)])
def test_a_process_by_itself_leaves_nothing_in_shared_memory(end: str, status: int) -> None:
    script = f"""
        import os
        from workpool import WorkPool
        from workpool.system.shared_memory import mpi_files

        with WorkPool() as pool:
            assert pool.submit(pow, 2, 3).result() == 8
        print(*mpi_files(os.getpid()), flush=True)
        {end}
    """
    result = run_ranks(1, script, expect_status=status)
    left = [path for path in result.stdout.split() if os.path.exists(path)]
    assert not left, result


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "workpool.launch.cli", "run", "-w", "1"], "the job has ended"),
        (["-m", "workpool.launch.cli", "run", "--survive", "-w", "1"], "the job has ended"),
        ([], "the program is at its end"),
    ],
)
@pytest.mark.parametrize("before", ["pass", "WorkPool().shutdown()"])
def test_a_pool_at_the_exit_is_refused(words: list[str], said: str, before: str) -> None:
    script = f"""
        import atexit
        from workpool import UsageError, WorkPool

        @atexit.register
        def late():
            try:
                WorkPool()
            except UsageError as error:
                print(error)

        {before}
    """
    ended = run_python(*words, "-c", textwrap.dedent(script))
    assert ended.out == f"{said}: no pool can be made any more\n"
    assert ended.status == 0, ended


def test_a_worker_may_begin_when_the_script_is_at_its_end() -> None:
    script = """
        import threading
        from workpool import WorkPool
        from workpool.worker.worker import Worker

        serve = Worker.serve

        def late(*args):
            threading.main_thread().join()
            serve(*args)

        Worker.serve = late
        WorkPool().submit(print, "done", flush=True)
    """
    ended = run_python("-c", textwrap.dedent(script))
    assert (ended.status, ended.out) == (0, "done\n"), ended


def test_a_process_by_itself_ends_at_a_hangup() -> None:
    script = """
        import os, signal, time
        from workpool import WorkPool
        from workpool.system.shared_memory import mpi_files

        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            print(*mpi_files(os.getpid()), flush=True)  # nobody removes it
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(5)
    """
    ended = run_python("-c", textwrap.dedent(script))
    remove(set(ended.out.split()))
    assert ended.status == -signal.SIGHUP, ended
