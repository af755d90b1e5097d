"""What the program of a job may do: use MPI, fork, stop the clock, have functions of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_programs_that_use_mpi_are_jobs_of_their_own() -> None:
    """They would take the line of their rank to mpiexec for theirs: an error, or a hang."""
    script = """
        import subprocess
        import sys
        from workpool import WorkPool

        ASK = (
            "import os; from mpi4py import MPI; print(MPI.COMM_WORLD.size); "
            "from workpool.system.shared_memory import mpi_files, remove; "
            "remove(mpi_files(os.getpid()))"  # Open MPI forgets it
        )
        POOL = "from workpool import WorkPool; print(WorkPool().submit(pow, 2, 5).result())"

        def start(*words):
            command = [sys.executable, *words]
            return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout

        with WorkPool() as pool:
            for words in (("-c", ASK), ("-c", POOL), ("-m", "workpool", "-c", POOL)):
                for view in (pool, pool.with_options(isolate=True)):
                    print(view.submit(start, *words).result(), end="")
                print(start(*words))
    """
    assert run_ranks(2, script).stdout.split() == ["1"] * 3 + ["32"] * 6


def test_a_child_that_forks_before_there_is_a_pool(tmp_path: Path) -> None:
    """As a server of another library may do: the job is the child's own."""
    script = """
        import os, sys, time
        from pathlib import Path
        import workpool.job.entry
        from workpool import WorkPool

        if child := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        WorkPool().submit(lambda: (time.sleep(0.5), Path(sys.argv[1], "ended").touch()))
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script))
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_pool_is_not_for_processes_that_its_driver_forks(ranks: int) -> None:
    """They would publish into its rows, and collect its outcomes."""
    script = """
        import os, tempfile, time
        from workpool import UsageError, WorkPool

        def power(path):
            while not os.path.exists(path):  # it has not ended when the child asks for it
                time.sleep(0.01)
            return 32

        with WorkPool() as pool:
            path = os.path.join(tempfile.mkdtemp(), "forked")
            waiting = pool.submit(power, path)
            total = pool.accumulator()
            child = os.fork()
            if not child:
                refused = 0
                uses = [waiting.cancel, waiting.running, lambda: pool.submit(abs, 1), WorkPool]
                uses += [total.value, lambda: total.add(1)]
                for use in uses:
                    try:
                        use()
                    except UsageError as error:
                        refused += "forked" in str(error)
                os._exit(refused)
            refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            open(path, "w").close()
            print(refused, waiting.result(), pool.submit(pow, 3, 2).result(), total.value())
    """
    assert run_ranks(ranks, script).stdout == "6 32 9 0.0\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_program_may_stop_the_clock(ranks: int) -> None:
    """As tests do that freeze time, and set it going again."""
    script = """
        import time
        from workpool import WorkPool

        clocks = {name: getattr(time, name) for name in dir(time) if "monotonic" in name or
                  "perf_counter" in name or name == "time"}
        for name in clocks:
            setattr(time, name, lambda: 2_000_000_000)
        with WorkPool() as pool:
            print(pool.submit(pow, 2, 3).result(10), list(pool.map(abs, range(-2, 3))))
        for name, clock in clocks.items():
            setattr(time, name, clock)
        with WorkPool(rows=64) as pool:
            print(pool.submit(pow, 2, 4).result(10))
    """
    assert run_ranks(ranks, script, timeout=30).stdout == "8 [2, 1, 0, 1, 2]\n16\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_program_may_have_a_sleep_of_its_own(ranks: int) -> None:
    """As tests do that count sleeps, or forbid them."""
    script = """
        import select, time
        from unittest import mock
        from workpool import WorkPool

        def task(seconds):
            select.select([], [], [], seconds)

        def forbids(n):
            with mock.patch("time.sleep", side_effect=AssertionError):
                task(2e-3)
            return n

        def use(pool):
            for seconds in (0, 1e-3, 0.05):
                pool.submit(task, seconds).result()
                task(0.05)
            pool.with_options(isolate=True).submit(task, 0.05).result()
            pool.with_options(retries=1, retry_delay_s=0.05).submit(task, 0).result()

        for options in ({}, {"side_effect": AssertionError}):
            with mock.patch("time.sleep", **options) as sleep, WorkPool() as pool:
                use(pool)
                print(sleep.call_count)
                print(sum(pool.map(forbids, range(20))))
            with WorkPool(rows=64) as pool:
                use(pool)
    """
    assert run_ranks(ranks, script, timeout=30).stdout == "0\n190\n" * 2


def test_a_program_may_have_an_open_of_its_own() -> None:
    """As tests do that have files of their own, or none."""
    script = """
        import select
        from unittest import mock
        from workpool import WorkPool

        def task(seconds):
            select.select([], [], [], seconds)
            return seconds

        def replaces(**options):
            with mock.patch("builtins.open", **options):
                return task(1)

        opens = [
            {"new_callable": mock.mock_open, "read_data": "x"},
            {"side_effect": FileNotFoundError},
        ]
        with WorkPool(lease_s=0.5) as pool:
            pool.submit(task, 0.1).result()
            for options in opens:
                with mock.patch("builtins.open", **options):
                    print(pool.submit(task, 1).result(), sum(pool.map(abs, range(100))))
            print([future.result() for future in [pool.submit(replaces, **o) for o in opens]])
        print([worker.evicted for worker in pool.stats()])
    """
    assert run_ranks(3, script).stdout == "1 4950\n1 4950\n[1, 1]\n[0, 0]\n"


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_module_that_makes_a_pool_may_be_imported_by_tasks(
    tmp_path: Path, ranks: int, isolate: bool
) -> None:
    module = """
        from workpool import WorkPool

        pool = WorkPool()

        def square(n):
            return n * n

        def misuse(n):
            return pool.submit(square, n).result()

        def make(n):
            return WorkPool()
    """
    script = """
        import sys
        import module_with_pool as module

        view = module.pool.with_options(isolate=sys.argv[1] == "True")
        print(list(view.map(module.square, range(4))))
        for task in (module.misuse, module.make):
            print(str(view.submit(task, 2).exception()).split(",")[0])
    """
    (tmp_path / "module_with_pool.py").write_text(textwrap.dedent(module))
    driver = tmp_path / "driver.py"
    driver.write_text(textwrap.dedent(script))
    lines = run_ranks(ranks, driver, str(isolate)).stdout.splitlines()
    # Tasks of a job of one process have the module of the script, with its pool.
    refused = "a task cannot make a pool: submit from the script"
    unusable = "a task cannot use a pool"
    assert lines[0] == "[0, 1, 4, 9]"
    assert lines[2] == refused
    assert lines[1] == unusable or (ranks == 1 and not isolate)


def test_a_module_of_tasks_is_told_not_to_use_a_pool_as_it_is_imported(tmp_path: Path) -> None:
    """As a script does that is meant to be run, but is imported by a test."""
    module = """
        from workpool import WorkPool

        def square(n):
            return n * n

        with WorkPool() as pool:
            squares = list(pool.map(square, range(4)))
    """
    (tmp_path / "unguarded.py").write_text(textwrap.dedent(module))
    script = """
        try:
            import unguarded
        except BaseException as error:
            print(error)
    """
    driver = tmp_path / "driver.py"
    driver.write_text(textwrap.dedent(script))
    said = run_ranks(2, driver).stdout
    assert "cannot restore a function, or what it reads: a module that tasks import uses a" in said
    assert said.endswith('have it do that in a function, or below `if __name__ == "__main__":`\n')


def test_guarded_script_runs_as_main_and_sees_its_arguments() -> None:
    script = """
        import sys
        from workpool import WorkPool

        def task(n):
            return n, __name__

        if __name__ == "__main__":
            with WorkPool() as pool:
                print(pool.submit(task, 1).result(), sys.argv[1:])
    """
    assert "(1, '__main__') ['a', '-b']" in run_ranks(3, script, "a", "-b").stdout


def test_a_warning_is_of_the_line_of_the_program_that_gives_the_tasks() -> None:
    script = """
        import random
        import warnings
        from workpool import WorkPool
        from workpool.futures import MPIPoolExecutor

        rng, heavy, model = random.Random(1), bytearray(3 << 20), None

        def get():
            global model
            model = model or object()

        def measure(_):
            return len(heavy)

        class Wrapper:
            def __init__(self, function):
                self.function = function

            def __call__(self, item):
                return self.function(item)

        likelihood = Wrapper(measure)
        with warnings.catch_warnings(record=True) as caught, MPIPoolExecutor() as pool:
            warnings.simplefilter("always")
            list(pool.map(lambda _: rng.random(), range(2)))
            list(pool.map(lambda _: rng.random(), range(2), chunksize=1))
            list(pool.starmap(lambda: rng.random(), [(), ()]))
            pool.submit(lambda: rng.random()).result()
            list(pool.map(lambda _: len(heavy), range(20), chunksize=1))
            pool.submit(get).result()
            for _ in range(10):  # as a sampler does
                list(pool.map(likelihood, range(20)))
        assert len(caught) == 7
        assert "get makes the global 'model' of the script" in str(caught[5].message)
        message = str(caught[6].message)
        assert "of __main__.Wrapper takes 3.1 MB along, mostly 'heavy', which measure" in message
        print({each.filename for each in caught} == {__file__})
    """
    assert run_ranks(2, script).stdout == "True\n"


def test_who_reads_the_rank_that_the_script_has_asked_for_is_told_that_it_is_the_drivers() -> None:
    script = """
        import functools
        import types
        import warnings
        from mpi4py import MPI
        from workpool import WorkPool
        from workpool.futures import MPIPoolExecutor

        comm = MPI.COMM_WORLD
        rank, size = comm.Get_rank(), comm.Get_size()
        place: int = comm.rank
        where = there = MPI.COMM_WORLD.rank
        note: int = comm.rank

        own = MPI.COMM_SELF.Get_rank()
        order = types.SimpleNamespace(rank=0).rank
        turn = comm.Get_rank()
        for turn in range(1):
            pass
        at = comm.Get_rank()
        zero = 0

        def called(x):
            return rank

        def calls(x):
            return called(x)

        @functools.wraps(calls)
        def wrapped(x):
            return there

        class Of:
            def method(self, x):
                return where

        def noted(x):
            return note

        def quiet(x, rank=1):
            place = comm.Get_rank()
            return size, own, order, turn, zero, at, place

        def of(rank):
            return lambda x: rank

        def setup():
            global at
            at = comm.Get_rank()

        def seeds():
            return rank

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with MPIPoolExecutor(initializer=setup) as pool:
                for fn in (quiet, of(0)):
                    list(pool.map(fn, range(9)))
                    pool.submit(fn, 1).result()
                assert not caught, caught[0]
                assert pool.submit(lambda: at).result() == size - 1 == 1
                for fn in (calls, called, wrapped, Of().method, noted):
                    for _ in range(2):
                        list(pool.map(functools.partial(fn), range(2), chunksize=1))
                        assert pool.submit(fn, 1).result() == 0
            WorkPool(initializer=seeds)
        for each in caught:
            print(str(each.message).partition(" of the script, which is the driver's")[0])
        assert {each.filename for each in caught} == {__file__}, [it.filename for it in caught]
    """
    assert run_ranks(2, script).stdout.splitlines() == [
        "partial(calls) reads 'rank'",
        "partial(calls) reads 'there'",
        "partial(Of.method) reads 'where'",
        "partial(noted) reads 'note'",
        "seeds reads 'rank'",
    ]
