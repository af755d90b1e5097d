"""Tables: on which rank, how many, how large, and where there is no memory for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


PIECES = """
    import numpy as np
    from workpool import WorkPool

    def double(array):
        return array * 2

    with WorkPool(arena_nbytes=4 << 20{more}) as pool:
        large = np.arange(3_000_000.0)                    # 24 MB through an arena of 4 MiB
        futures = [pool.submit(double, large + n) for n in range(4)]
        small = [pool.submit(double, n) for n in range(200)]
        middle = [pool.submit(double, np.full(40_000, n)) for n in range(60)]
        for n, future in enumerate(futures):
            assert np.array_equal(future.result(), (large + n) * 2)
        assert [future.result() for future in small] == [2 * n for n in range(200)]
        for n, future in enumerate(middle):
            assert np.array_equal(future.result(), np.full(40_000, 2 * n))

    def grown(array=large):                               # code larger than the arena
        return float(array[-1])

    with WorkPool(arena_nbytes=4 << 20, initializer=len, initargs=(large,){more}) as pool:
        assert pool.submit(grown).result() == large[-1]   # and a context larger than the arena
        assert pool.submit(grown).result() == large[-1]
"""


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_larger_than_the_arena_goes_in_pieces(ranks: int) -> None:
    run_ranks(ranks, PIECES.format(more=""), timeout=120)


@pytest.mark.parametrize("repository", [1, 2])
def test_the_repository_on_a_workers_rank(repository: int) -> None:
    script = f"""
        from workpool import WorkPool
        from workpool.job import entry

        with WorkPool() as pool:
            (driver,) = entry.current().tables.drivers
            assert driver.window.host == {repository}
            total = pool.accumulator((), "int64")
            futures = [pool.submit(total.add, n) for n in range(500)]
            assert [future.result() for future in futures] == [None] * 500
            assert total.value() == sum(range(500))
    """
    env = {"WORKPOOL_REPOSITORY": str(repository)}
    run_ranks(3, script, env=env)
    run_ranks(3, PIECES.format(more=f", repository={repository}"), timeout=120)


def test_pools_with_different_tables_at_the_same_time() -> None:
    script = """
        from workpool import WorkPool
        from workpool.job import entry

        def square(n):
            return n * n

        with WorkPool(claim="pointer") as one, WorkPool(claim="counter", rows=32) as two:
            with WorkPool(max_workers=1) as three:
                pools = [one, two, three]
                futures = [pool.submit(square, n) for n in range(300) for pool in pools]
                wanted = [n * n for n in range(300) for pool in pools]
                assert [future.result() for future in futures] == wanted
                assert [s.rank for s in three.stats()] == [1]
            assert one.submit(square, 3).result() == two.submit(square, 3).result() == 9
        for rows in range(8, 16):
            with WorkPool(rows=rows) as pool:
                assert pool.submit(square, rows).result() == rows * rows
                assert len(list(entry.current().tables)) == 3, "it takes the place of one"
    """
    run_ranks(4, script)


def test_a_new_table_waits_for_busy_workers_and_stops_nobody(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from workpool import WorkPool
        from workpool.job import crew

        def until_said():
            while not said.exists():
                time.sleep(0.01)

        def say(text):
            says(text)
            said.touch()

        said = Path(sys.argv[1])
        says, crew.say, crew.LATE_S = crew.say, say, 0.1
        with WorkPool() as one:
            slow = [one.submit(until_said) for _ in range(2)]
            quick = [one.submit(abs, n) for n in range(50)]
            with WorkPool(rows=64) as two:
                assert two.submit(pow, 2, 5).result() == 32
            assert [f.result() for f in quick] == list(range(50))
            assert [f.result() for f in slow] == [None, None]
    """
    ended = run_ranks(3, script, str(tmp_path / "said"))
    assert "until each has ended its task, or goes on if it is stopped: worker" in ended.stderr


def test_options_from_the_environment(claim: str) -> None:
    script = f"""
        from workpool import WorkPool
        from workpool.job import entry

        with WorkPool() as pool:
            (core,) = entry.current().pools
            assert core.choice[1:] == (77, 5_000_000, {claim!r}, 1, 10.0), core.choice
            assert sum(pool.map(abs, range(500))) == sum(range(500))
    """
    env = {"WORKPOOL_ROWS": "77", "WORKPOOL_ARENA_NBYTES": "5000000", "WORKPOOL_REPOSITORY": "1"}
    run_ranks(3, script, env=env)


def test_options_that_cannot_be_honoured() -> None:
    script = """
        import math
        import os
        import threading
        import pytest
        from workpool import WorkPool
        from workpool.errors import ResourceError, SerializationError, UsageError

        for options, word in [
            ({"max_workers": 0}, "max_workers"),
            ({"rows": 0}, "rows=0"),
            ({"rows": 10**9}, "rows=1000000000"),
            ({"arena_nbytes": 0}, "arena_nbytes=0"),
            ({"arena_nbytes": 100}, "arena_nbytes=100"),
            ({"arena_nbytes": 2**63}, f"arena_nbytes={2**63}"),
            ({"claim": "lottery"}, "lottery"),
            ({"repository": 3}, "repository=3"),
            ({"max_pending": 0}, "max_pending=0"),
            ({"max_workers": "4"}, "max_workers='4': give a whole number"),
            ({"max_pending": 1.5}, "max_pending=1.5: give a whole number"),
            ({"drain_s": "60"}, "drain_s='60': give a number"),
            ({"drain_s": None}, "drain_s=None: give a number"),
            ({"rows": "many"}, "rows='many': give a whole number"),
            ({"lease_s": 0.1}, "lease_s=0.1: give at least 0.5"),
            ({"lease_s": math.nan}, "lease_s=nan"),
        ]:
            with pytest.raises(UsageError, match=word):
                WorkPool(**options)
        for option, remedy in [
            ("timeout_s", "an option of tasks.*pool.with_options.timeout_s="),
            ("max_tasks_per_child", "pool.with_options.max_tasks_per_child="),
            ("timeout", "no option 'timeout'.* max_workers, .* journal, .*timeout_s.*with_options"),
        ]:
            with pytest.raises(TypeError, match=remedy):
                WorkPool(**{option: 3})
        for initargs in (3, "file"):  # ("file") is no tuple
            with pytest.raises(TypeError, match=f"initargs={initargs!r}: give a tuple"):
                WorkPool(initializer=print, initargs=initargs)
        with pytest.raises(TypeError, match="journal=True: give the name of a file"):
            WorkPool(journal=True)
        with pytest.raises(UsageError, match="retries=-1, .*: neither may be negative"):
            WorkPool().with_options(retries=-1)
        with pytest.raises(SerializationError, match="argument 2 of 2 .*_thread.lock"):
            WorkPool(initializer=print, initargs=(1, threading.Lock()))
        for name, text, message in [
            ("ROWS", "1e3", "='1e3': give a whole number"),
            ("ROWS", "0", "=0: a table has 1 to"),
            ("CLAIM", "lottery", "='lottery': use 'pointer' or 'counter'"),
            ("ARENA_NBYTES", "100", "=100: with 2 workers"),
            ("REPOSITORY", "3", "=3: this job has ranks 0 to 2"),
            ("LEASE_S", "0.1", "=0.1: give at least 0.5"),
        ]:
            os.environ[f"WORKPOOL_{name}"] = text
            with pytest.raises(UsageError, match=f"^WORKPOOL_{name}{message}"):
                WorkPool()
            with pytest.raises(UsageError, match="^rows=-1: "):
                WorkPool(claim="pointer", rows=-1, arena_nbytes=1 << 20, repository=0, lease_s=1)
            del os.environ[f"WORKPOOL_{name}"]
        with pytest.raises(ResourceError, match="/dev/shm"):
            WorkPool(arena_nbytes=10**14)
        with WorkPool() as pool:
            assert pool.submit(pow, 2, 3).result() == 8
    """
    run_ranks(3, script)


def test_a_process_that_is_alone_gets_no_more_than_its_host_has() -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import ResourceError

        with WorkPool() as pool:
            with pytest.raises(ResourceError, match=r"cannot map it .Cannot allocate memory"):
                WorkPool(arena_nbytes=10**14)
            assert pool.submit(pow, 2, 3).result() == 8
    """
    run_ranks(1, script)


@pytest.mark.parametrize("repository", [0, 1])
def test_an_mpi_that_needs_the_host_of_the_window(repository: int) -> None:
    """Then a thread there enters MPI, also while the script and its tasks do not.

    The host has the memory: of each Get from its own, Open MPI keeps 656 bytes, if another rank is
    beside it and there are other hosts.
    """
    script = f"""
        import sys, time
        import workpool
        from mpi4py import MPI
        from workpool.rma import Group, Window

        genuine = Group._advances
        Group._advances = lambda self, *args: genuine(self, *args) and False
        transfer = Window._transfer

        def from_afar(self, *args):
            assert self.host != MPI.COMM_WORLD.Get_rank()
            transfer(self, *args)

        Window._transfer = from_afar

        def slow(n):
            time.sleep(0.01)
            return -n

        def main(pool):
            futures = [pool.submit(slow, n) for n in range(20)]
            time.sleep(0.2)
            assert [future.result() for future in futures] == [-n for n in range(20)]
            assert list(pool.map(abs, range(1000))) == list(range(1000))
            assert len(pool.submit(bytes, 3_000_000).result()) == 3_000_000
            return sum(worker.tasks for worker in pool.stats())

        values = workpool.run(main, repository={repository})
        sys.stdout.write(f"tasks {{values}}\\n")
    """
    stdout = run_ranks(3, script, spmd=True).stdout
    assert "tasks 1021" in stdout


def test_tables_that_are_open_have_their_memory_though_it_is_not_touched_yet() -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import ResourceError
        from workpool.job import entry
        from workpool.rma import group

        free = group.free
        group.free = lambda: 64 << 20  # whatever is open
        entry.current().group._most_free = 0
        pools = [WorkPool(rows=32 * n) for n in (1, 2, 3)]
        assert sum(core.choice.arena_nbytes for core in entry.current().pools) < 64 << 20
        pools.append(WorkPool(rows=32))
        assert len(list(entry.current().tables)) == 3, "another for what is open"
        with pytest.raises(ResourceError, match="bytes left"):
            WorkPool(arena_nbytes=16 << 20)
        group.free = free
        assert [pool.submit(abs, -1).result() for pool in pools] == [1, 1, 1, 1]
    """
    run_ranks(2, script)


@pytest.mark.parametrize("what", ["descriptors", "memory"])
def test_a_rank_that_cannot_map_a_table_stops_nobody(what: str) -> None:
    script = f"""
        import os
        import resource
        from workpool import ResourceError, WorkPool

        KIND = resource.RLIMIT_NOFILE if "{what}" == "descriptors" else resource.RLIMIT_AS

        def limit(given):
            soft, hard = resource.getrlimit(KIND)
            if given is None:  # nothing more than there is now
                given = 3
                if KIND == resource.RLIMIT_AS:
                    with open("/proc/self/statm") as file:
                        given = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                    given += 16 << 20
            resource.setrlimit(KIND, (given, hard))
            return soft

        def other():
            with WorkPool(rows=64, arena_nbytes=64 << 20) as pool:
                return pool.submit(abs, -1).result()

        with WorkPool(max_workers=1, arena_nbytes=1 << 20) as pool:
            before = pool.submit(limit, None).result()
            try:
                other()
            except ResourceError as error:
                print(error)
            pool.submit(limit, before).result()
            print(other(), pool.submit(abs, -2).result())
    """
    said, worked = run_ranks(3, script).stdout.splitlines()
    assert said.startswith("a window of ")
    assert "rank 1 cannot map it" in said
    assert worked == "1 2"


def test_a_driver_without_memory_for_a_large_table_keeps_nobody_waiting() -> None:
    script = """
        import os
        import resource
        from workpool import ResourceError, WorkPool

        with open("/proc/self/statm") as file:
            nbytes = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with WorkPool(arena_nbytes=1 << 20) as pool:
            resource.setrlimit(resource.RLIMIT_AS, (nbytes + (48 << 20), hard))
            try:
                WorkPool(rows=1 << 16, arena_nbytes=1 << 20)
            except ResourceError as error:
                print(error)
            print(pool.submit(abs, -2).result())
    """
    said, worked = run_ranks(2, script).stdout.splitlines()
    assert "rank 0 cannot map it" in said
    assert worked == "2"


def test_a_table_in_files_that_may_not_be_large() -> None:
    script = """
        import resource
        from workpool import ResourceError, WorkPool

        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, hard))
        try:
            WorkPool(arena_nbytes=64 << 20)
        except ResourceError as error:
            print(error)
        with WorkPool() as pool:
            print(pool.submit(len, bytes(40 << 20)).result())
    """
    said, worked = run_ranks(3, script).stdout.splitlines()
    assert "rank 0 has " in said
    assert "ulimit -f" in said
    assert worked == str(40 << 20)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_table_whose_driver_finds_no_memory_is_freed_all_the_same(ranks: int) -> None:
    script = """
        from unittest import mock
        from workpool import WorkPool
        from workpool.job import entry, tables

        def fails(rows):
            with mock.patch.object(tables, "Driver", side_effect=MemoryError):
                try:
                    WorkPool(rows=rows)
                except MemoryError:
                    print("refused", len(list(entry.current().tables)))

        with WorkPool() as pool:
            fails(64)
            fails(32)
            with WorkPool(rows=32) as other:
                print(pool.submit(abs, -1).result(), other.submit(abs, -2).result())
            fails(16)
    """
    said = run_ranks(ranks, script).stdout.splitlines()
    assert said == ["refused 2", "refused 2", "1 2", "refused 2"]
