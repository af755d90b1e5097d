"""``MPICommExecutor``: one rank has a pool in its block, and the others serve it."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("root", [0, 2])
def test_one_rank_enters_with_a_pool_and_the_others_serve_it(root: int) -> None:
    script = """
        import sys
        from workpool.futures import MPICommExecutor, get_comm_workers
        from mpi4py import MPI

        comm, root = MPI.COMM_WORLD, int(sys.argv[1])
        context = MPICommExecutor(comm, root, initializer=int)
        for _ in range(2):
            with context as executor:
                assert (executor is not None) == (comm.rank == root)
                if executor is not None:
                    assert executor.num_workers == 2
                    served = [each.rank for each in executor.stats()]
                    assert served == [rank for rank in range(3) if rank != root]
                    assert list(executor.map(abs, range(-9, 0))) == list(range(9, 0, -1))
                    assert executor.submit(lambda: get_comm_workers().size).result() == 2
        try:
            with context as executor:
                if executor is not None:
                    raise KeyError(comm.rank)
        except KeyError as error:
            assert error.args == (root,)
        with MPICommExecutor(MPI.COMM_SELF) as executor:
            assert executor.submit(abs, -comm.rank).result() == comm.rank
        halves = comm.Split(comm.rank > 0)
        between = halves.Create_intercomm(0, comm, int(comm.rank == 0))
        for refused, of, root in (
            ("root", comm, -1), ("root", comm, comm.size), ("root", comm, 0.5), ("root", comm, "0"),
            ("comm", between, 0), ("comm", MPI.COMM_NULL, 0), ("comm", 3, 0),
        ):
            try:
                MPICommExecutor(of, root)
            except ValueError as error:
                assert f"{refused}=" in str(error), error
            else:
                raise AssertionError((of, root))
        sys.stdout.write("right\\n")  # in one piece: three ranks write
    """
    assert run_ranks(3, script, str(root), spmd=True).stdout == 3 * "right\n"


def test_what_is_raised_for_want_of_an_executor_is_dropped_where_there_is_none() -> None:
    script = """
        import sys
        import warnings
        from workpool.futures import MPICommExecutor
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
        if rank == 0:
            numbers = range(9)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):  # one that had left for good would be waited for the second time
                with MPICommExecutor() as executor:
                    squares = list(executor.map(lambda n: n * n, range(9)))
            assert not caught
            with MPICommExecutor() as executor:
                total = sum(numbers)
                total = executor.submit(lambda: total).result()
        if rank == 0:
            assert squares == [n * n for n in range(9)] and total == 36 and not caught
        else:
            [warning] = caught
            assert issubclass(warning.category, RuntimeWarning)
            assert "NameError" in str(warning.message), warning.message
        try:
            with MPICommExecutor() as executor:
                if executor is None:
                    raise SystemExit(rank)
        except SystemExit as leaving:
            assert leaving.code == rank
        sys.stdout.write("right\\n")  # in one piece: three ranks write
    """
    assert run_ranks(3, script, spmd=True).stdout == 3 * "right\n"


def test_a_communicator_does_not_matter_where_the_others_serve_already() -> None:
    script = """
        from workpool.futures import MPICommExecutor
        from mpi4py import MPI

        with MPICommExecutor(MPI.COMM_WORLD, root=1) as executor:
            print(executor.num_workers, executor.submit(abs, -1).result())
    """
    assert run_ranks(3, script, module="workpool.futures").stdout == "2 1\n"


def test_a_context_within_another_is_entered_by_ranks_that_serve_nobody_yet() -> None:
    script = """
        from workpool.futures import MPICommExecutor
        from mpi4py import MPI

        def rank(executor):
            return executor.submit(lambda: MPI.COMM_WORLD.rank).result()

        world = MPI.COMM_WORLD
        outer = world.Split(0 if world.rank != 2 else MPI.UNDEFINED, world.rank)
        inner = world.Split(0 if world.rank != 1 else MPI.UNDEFINED, world.rank)
        if world.rank == 2:
            with MPICommExecutor(inner) as executor:
                assert executor is None
        else:
            with MPICommExecutor(outer) as executor:
                if executor is not None:
                    with MPICommExecutor(inner) as other:
                        found = rank(executor), rank(other)
                    print(*found, rank(executor))
    """
    assert run_ranks(3, script, spmd=True).stdout == "1 2 1\n"
