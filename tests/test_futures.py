"""A program that was written for mpi4py.futures, and imports ``workpool.futures`` instead."""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]

run_futures = functools.partial(run_ranks, module="workpool.futures")


@pytest.mark.smoke
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_program_changes_nothing_but_its_import(ranks: int) -> None:
    script = """
        from workpool.futures import MPIPoolExecutor, as_completed, wait

        def power(base, exponent=2):
            return base ** exponent

        if __name__ == "__main__":
            with MPIPoolExecutor(max_workers=2, main=False, use_pkl5=True) as executor:
                assert executor.bootup() is executor
                assert executor.num_workers in (1, 2)
                futures = [executor.submit(power, n, exponent=3) for n in range(9)]
                assert sorted(f.result() for f in as_completed(futures)) == [n**3 for n in range(9)]
                assert not wait(futures).not_done
                squares = [n * n for n in range(9)]
                pairs = [(n, 2) for n in range(9)]
                assert list(executor.map(power, range(9), timeout=60, chunksize=2)) == squares
                assert list(executor.map(power, range(9), buffersize=3)) == squares
                assert sorted(executor.map(power, range(9), unordered=True)) == squares
                assert list(executor.starmap(power, pairs)) == squares
                assert list(executor.starmap(power, iter(pairs), None, 4, 2)) == squares
                assert sorted(executor.starmap(power, pairs, 60, 1, None, True)) == squares
            assert executor.num_workers == 0
            print("right")
    """
    assert run_futures(ranks, script).stdout == "right\n"


def test_what_is_refused() -> None:
    script = """
        import pytest
        from workpool.futures import BrokenExecutor, MPICommExecutor, MPIPoolExecutor
        from mpi4py import MPI

        def fail():
            raise ValueError("no licence")

        for workers in (0, -1):
            with pytest.raises(ValueError, match="max_workers"):
                MPIPoolExecutor(workers)
        with pytest.raises(TypeError, match="callable"):
            MPIPoolExecutor(initializer=3)
        with pytest.raises(TypeError, match="python_path"):
            MPIPoolExecutor(python_path=[])
        executor = MPIPoolExecutor()
        for method in executor.map, executor.starmap:
            with pytest.raises(ValueError, match="unordered"):
                method(abs, [1], buffersize=1, unordered=True)
            with pytest.raises(ValueError, match="schedule"):
                method(abs, [1], schedule="best")
        executor.shutdown()
        with pytest.raises(RuntimeError):
            executor.bootup()
        executor = MPIPoolExecutor(initializer=fail)
        with pytest.raises(BrokenExecutor, match="no licence"):
            executor.submit(abs, -1).result()
        for call in executor.bootup, lambda: executor.submit(abs, -1):
            with pytest.raises(BrokenExecutor, match="no licence"):
                call()
        assert executor.num_workers == 0
        context = MPICommExecutor(MPI.COMM_SELF)
        with context, pytest.raises(RuntimeError, match="entered already"), context:
            pass
        print("right")
    """
    assert run_futures(2, script).stdout == "right\n"


def test_every_name_of_mpi4py_is_there() -> None:
    script = """
        import sys
        from workpool import futures

        assert "mpi4py.futures" not in sys.modules
        from mpi4py import futures as theirs

        for name in theirs.__all__:
            ours = getattr(futures, name)
            assert ours is getattr(theirs, name) or ours.__module__.startswith("workpool."), name
        print(sorted(set(theirs.__all__) ^ set(futures.__all__)))
    """
    assert run_futures(2, script).stdout == "[]\n"


def test_mpi_is_loaded_as_for_a_pool_though_mpi4py_has_the_name() -> None:
    script = """
        import sys
        from workpool.futures import ThreadPoolExecutor

        assert "workpool.rma" in sys.modules
        with ThreadPoolExecutor() as executor:
            print(executor.submit(abs, -1).result())
    """
    ended = run_ranks(1, script, spmd=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_library_that_imports_mpi4py_futures_finds_what_is_put_in_its_place(ranks: int) -> None:
    script = """
        import sys
        import mpi4py
        import workpool.futures

        sys.modules["mpi4py.futures"] = mpi4py.futures = workpool.futures

        import mpi4py.futures
        from mpi4py import futures
        from mpi4py.futures import *
        from workpool.futures.aplus import then

        with mpi4py.futures.MPIPoolExecutor() as executor, ThreadPoolExecutor(1) as thread:
            assert type(executor) is MPIPoolExecutor is workpool.futures.MPIPoolExecutor
            doubled = then(executor.submit(abs, -1), lambda found: 2 * found)
            made = [doubled, compose(executor.submit(abs, -3)), thread.submit(int)]
            print(collect(made).result())
        assert mpi4py.futures is futures is sys.modules["mpi4py.futures"] is workpool.futures
    """
    ended = run_ranks(ranks, script)
    assert (ended.stdout, ended.stderr) == ("[2, 3, 0]\n", "")


def test_a_block_waits_for_its_tasks_whatever_error_has_ended_it(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from workpool.futures import MPIPoolExecutor

        def until_told():
            while not told.exists():
                time.sleep(0.01)

        told = Path(sys.argv[1])
        for error, *task in (KeyError, time.sleep, 0.3), (KeyboardInterrupt, until_told):
            try:
                with MPIPoolExecutor() as executor:
                    future = executor.submit(*task)
                    raise error
            except error:
                print(future.done())
        told.touch()
    """
    assert run_futures(2, script, str(tmp_path / "told")).stdout == "True\nFalse\n"


def test_system_exit_in_a_block_waits_for_its_tasks() -> None:
    script = """
        import sys, time
        from workpool.futures import MPICommExecutor

        try:
            with MPICommExecutor() as executor:
                if executor is not None:
                    futures = [executor.submit(time.sleep, 0.05) for _ in range(20)]
                    sys.exit(3)
        except SystemExit as end:
            print(end.code, sum(future.done() for future in futures), futures[-1].exception())
    """
    assert run_futures(3, script).stdout == "3 20 None\n"
    assert run_ranks(3, script, spmd=True).stdout == "3 20 None\n"


def test_the_environment_says_how_many_workers() -> None:
    script = """
        from workpool.futures import MPIPoolExecutor

        print(MPIPoolExecutor().num_workers, MPIPoolExecutor(2).num_workers)
    """
    assert run_futures(4, script).stdout == "3 2\n"
    assert run_futures(4, script, env={"MPI4PY_FUTURES_MAX_WORKERS": "1"}).stdout == "1 2\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_workers_are_set_up_as_the_options_say(ranks: int, tmp_path: Path) -> None:
    module = """
        import __main__
        found = "module"
        def twice(): return 2 * __main__.limit
    """
    (tmp_path / "along_the_path.py").write_text(textwrap.dedent(module))
    script = """
        import os, sys
        from workpool.futures import MPIPoolExecutor

        ready = None

        def prepare(first, second):
            global ready
            ready = first, second, os.environ["OF_THE_WORKER"], os.getcwd()

        def look(n):
            import along_the_path
            return along_the_path.found, ready, limit, along_the_path.twice(), n

        place = sys.argv[1]
        options = dict(path=[place], wdir=place, env={"OF_THE_WORKER": "set"}, globals={"limit": 7})
        with MPIPoolExecutor(
            initializer=prepare, initargs=(1,), initkwargs={"second": 2}, **options
        ) as executor:
            expected = "module", (1, 2, "set", place), 7, 14
            assert executor.submit(look, 0).result() == (*expected, 0)
            assert list(executor.map(look, range(50))) == [(*expected, n) for n in range(50)]
        with MPIPoolExecutor(**options) as executor:
            assert executor.submit(look, 0).result()[2:] == (7, 14, 0)
        with MPIPoolExecutor(globals={"limit": 8}) as executor:
            assert executor.submit(lambda: limit).result() == 8
        print("right")
    """
    assert run_futures(ranks, script, str(tmp_path)).stdout == "right\n"


def test_all_workers_meet_in_their_communicator() -> None:
    script = """
        from workpool.futures import MPIPoolExecutor, get_comm_workers

        def alone():
            return get_comm_workers().size

        def together():
            comm = get_comm_workers()
            return comm.rank, comm.allreduce(10 ** comm.rank)

        def refused():
            try:
                get_comm_workers()
            except RuntimeError as error:
                return str(error)

        assert "rank of MPI" in refused()
        with MPIPoolExecutor() as executor:
            assert executor.submit(alone).result() == 3
            for _ in range(200):  # they count as short by then, and may be sent together
                found = [executor.submit(together) for _ in range(3)]
                assert {future.result() for future in found} == {(0, 111), (1, 111), (2, 111)}
            assert "rank of MPI" in executor.with_options(isolate=True).submit(refused).result()
        print("right")
    """
    assert run_futures(4, script).stdout == "right\n"
    assert run_futures(
        1,
        script.replace(" == 3\n", " == 1\n")
        .replace("range(3)", "range(1)")
        .replace("{(0, 111), (1, 111), (2, 111)}", "{(0, 1)}"),
    ).stdout == ("right\n")


def test_the_communicator_is_of_the_workers_of_the_pool() -> None:
    script = """
        from workpool.futures import MPIPoolExecutor, get_comm_workers

        def together():
            return get_comm_workers().allreduce(1)

        with MPIPoolExecutor() as wide, MPIPoolExecutor(2) as narrow, MPIPoolExecutor(1) as one:
            for executor in 3 * [wide, narrow, one, narrow]:
                found = [executor.submit(together) for _ in range(executor.num_workers)]
                assert {future.result() for future in found} == {executor.num_workers}
        for workers in 3 * [1, 2]:  # whose tables are opened and closed in turn
            with MPIPoolExecutor(workers) as executor:
                found = [executor.submit(together) for _ in range(workers)]
                assert {future.result() for future in found} == {workers}
        print("right")
    """
    assert run_futures(4, script).stdout == "right\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_futures_that_are_made_of_others(ranks: int) -> None:
    script = """
        import gc, threading, time, weakref
        import pytest
        from concurrent.futures import CancelledError, Future
        from workpool.futures import MPIPoolExecutor, collect, compose
        from workpool.futures.aplus import ThenableFuture, catch, then

        def divide(a, b):
            return a / b

        with MPIPoolExecutor() as executor:
            submit = executor.submit
            first = submit(divide, 6, 2)
            assert collect([first, submit(divide, 1, 4), first]).result() == [3, 0.25, 3]
            assert collect([]).result() == []
            with pytest.raises(ZeroDivisionError):
                collect([first, submit(divide, 1, 0)]).result()

            assert compose(first, lambda value: value + 1).result() == 4
            assert compose(submit(divide, 1, 0), None, repr).result().startswith("ZeroDiv")
            assert compose(submit(divide, 1, 0)).exception().__cause__ is not None

            doubled = then(first, lambda value: submit(divide, 2 * value, 1))
            assert isinstance(doubled, ThenableFuture)
            assert doubled.then(lambda value: value - 1).result() == 5
            assert catch(submit(divide, 1, 0), lambda error: "caught").result() == "caught"

            # To cancel what was made is to cancel what it was made of; and the other way round.
            blocked = [submit(time.sleep, 0.5) for _ in range(8 * executor.num_workers)]
            for make in (
                lambda futures: collect(futures),
                lambda futures: compose(futures[0]),
            ):
                futures = [submit(abs, -1)]
                made = make(futures)
                assert made.cancel() and futures[0].cancelled()
                futures = [submit(abs, -1)]
                made = make(futures)
                assert futures[0].cancel()
                with pytest.raises(CancelledError):
                    made.result(timeout=20)
            futures = [submit(abs, -1), submit(abs, -2)]
            made = collect(futures)
            futures[0].cancel()
            with pytest.raises(CancelledError):
                made.result(timeout=20)
            assert futures[1].cancelled()
            for future in blocked:
                future.cancel()

            # A result goes with the last who has it, without the garbage collector.
            class Result:
                pass

            gc.disable()
            future = submit(Result)
            made = compose(future)
            gone = weakref.ref(made.result())
            del future, made
            limit = time.monotonic() + 20
            while gone() is not None:
                assert time.monotonic() < limit
                time.sleep(0.01)
        print("right")
    """
    assert run_futures(ranks, script).stdout == "right\n"
