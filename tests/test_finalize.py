"""MPI that is finalized by the program, or that is not such that a pool can use it."""

from __future__ import annotations

import pytest
from harness import run_ranks
from surviving import survive

pytestmark = pytest.mark.mpi

FINALIZES = """
    import sys, time
    from mpi4py import MPI
    import workpool

    pool = workpool.WorkPool()
    future = pool.submit(time.sleep, 0.5)
    print(list(pool.map(abs, range(-3, 0))))
    MPI.Finalize()
    print("ended", future.done())
    for late in workpool.WorkPool, lambda: pool.submit(abs, -1):
        try:
            late()
        except (workpool.UsageError, RuntimeError) as error:
            print(error)
    if "raise" in sys.argv:
        raise ValueError("later")
"""


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("then", ["end", "raise"])
def test_a_program_that_finalizes_mpi_ends_the_job_first(ranks: int, then: str) -> None:
    result = run_ranks(ranks, FINALIZES, then, spmd=ranks == 1, expect_status=int(then == "raise"))
    assert "[3, 2, 1]\nended True\n" in result.stdout
    assert "MPI is finalized: no pool can be made any more" in result.stdout
    assert "cannot schedule new futures after shutdown" in result.stdout
    assert ("ValueError: later" in result.stderr) == (then == "raise")


@pytest.mark.parametrize("when", ["in", "after"])
def test_an_spmd_program_finalizes_mpi(when: str) -> None:
    script = """
        import sys
        from mpi4py import MPI
        import workpool

        def main(pool):
            found = sum(pool.map(abs, range(-3, 0)))
            if "in" in sys.argv:
                MPI.Finalize()
            return found

        found = workpool.run(main)
        MPI.Is_finalized() or MPI.Finalize()
        sys.stdout.write(f"found {found}\\n")  # in one piece: other ranks write as well
    """
    assert run_ranks(3, script, when, spmd=True).stdout.count("found 6") == 1


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_task_that_finalizes_mpi_ends_the_job_with_a_message(ranks: int) -> None:
    script = """
        from mpi4py import MPI
        import workpool

        with workpool.WorkPool() as pool:
            pool.submit(MPI.Finalize).result()
    """
    result = run_ranks(ranks, script, spmd=ranks == 1, expect_status=1)
    assert "MPI.Finalize() in a task" in result.stderr


def test_a_job_that_outlives_its_workers_is_not_finalized() -> None:
    program = "from mpi4py import MPI\nassert WorkPool().submit(abs, -1).result(); MPI.Finalize()"
    with survive(program) as started:
        ended = started.wait()
    assert ended.status == 1
    assert "MPI.Finalize() in a job that outlives its workers" in ended.err


def test_a_job_that_outlives_its_workers_loses_one_whose_task_finalizes_mpi() -> None:
    program = "from mpi4py import MPI\nprint(WorkPool().submit(MPI.Finalize).exception())"
    with survive(program, workers=1) as started:
        ended = started.wait()
    assert (ended.status, ended.out.count("every worker of the pool has died")) == (0, 1)
    assert "MPI.Finalize() in a task (worker rank 1) would never return: leave it out" in ended.err
    assert "the worker ends here" in ended.err


@pytest.mark.parametrize("ranks", [1, 3])
def test_others_still_use_the_pools(ranks: int) -> None:
    script = """
        import threading, time
        from mpi4py import MPI
        from workpool import WorkPool

        def loop(make):
            try:
                while True:
                    assert list(make().map(abs, range(-100, 0))) == list(range(100, 0, -1))
            except (RuntimeError, ValueError) as error:
                told.append(error)

        def another(future):
            with WorkPool(rows=77) as late:
                told.append(late.submit(abs, -5).result())

        told = []
        pools = WorkPool(), WorkPool(rows=64)
        makes = [lambda: pools[0], lambda: pools[1], lambda: WorkPool(rows=65)]
        threads = [threading.Thread(target=loop, args=(make,)) for make in makes]
        for thread in threads:
            thread.start()
        pools[0].submit(time.sleep, 0.3).add_done_callback(another)
        time.sleep(0.2)
        MPI.Finalize()
        for thread in threads:
            thread.join()
        assert len(told) == 4, told
        assert 5 in told
        print("ended")
    """
    assert "ended" in run_ranks(ranks, script, spmd=ranks == 1).stdout


def test_a_finalize_that_was_imported_before_workpool_ends_the_job_with_a_message() -> None:
    script = """
        from mpi4py.MPI import Finalize
        import workpool

        workpool.run(lambda pool: Finalize())
    """
    result = run_ranks(3, script, spmd=True, expect_status=1)
    assert "MPI.Finalize() in the middle of a job would never return" in result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("thread_level = 'funneled'", "initialized with thread level"),
        ("initialize = False", "MPI is not initialized"),
    ],
)
def test_mpi_that_a_pool_cannot_use_is_refused(setting: str, message: str) -> None:
    script = f"""
        import mpi4py

        mpi4py.rc.{setting}
        import workpool

        workpool.run(lambda pool: None)
    """
    result = run_ranks(1, script, spmd=True, expect_status=None)
    if "initialize" not in setting and not result.status:
        pytest.skip("this MPI gives more than it is asked for")
    assert message in result.stderr


def test_ranks_are_named_as_the_program_knows_them() -> None:
    script = """
        from mpi4py import MPI
        import workpool

        def rank():
            return MPI.COMM_WORLD.Get_rank()

        def main(pool):
            assert rank() == 2
            assert {row.rank for row in pool.stats()} == {0, 1, 3}
            found = {pool.submit(rank).result() for _ in range(200)}
            assert found == {row.rank for row in pool.stats() if row.tasks}, found
            try:
                pool.submit(divmod, 1, 0).result()
            except ZeroDivisionError as error:
                assert error.__cause__.rank in (0, 1, 3)
            for repository in 0, 1, 3:
                with workpool.WorkPool(repository=repository) as other:
                    assert other.submit(abs, -1).result() == 1
                    job = workpool.job.entry.current()
                    host = job.tables[job.pools[-1].choice].window.host
                    assert host == repository + (repository < 2), host
            print("all right")

        workpool.run(main, root=2)
    """
    assert "all right" in run_ranks(4, script, spmd=True).stdout


def test_an_interrupt_while_a_busy_worker_is_waited_for_ends_the_job() -> None:
    """Else its worker serves for ever, and MPI_Finalize waits for it."""
    script = """
        import os, signal, sys, threading, time
        import workpool

        def wait():
            time.sleep(60)

        def main(pool):
            task = pool.submit(wait)
            while not task.running():
                time.sleep(0.01)
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
            raise ValueError("later")

        workpool.run(main)
        print("it went on")
    """
    result = run_ranks(2, script, spmd=True, expect_status=130, timeout=30)
    assert "KeyboardInterrupt" in result.stderr
    assert "it went on" not in result.stdout
