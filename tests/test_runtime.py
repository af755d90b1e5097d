"""What the runtime promises beyond an Executor's contract: bulk, pieces, tables, rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_hundred_thousand_tasks_are_all_accounted_for(workers: int) -> None:
    script = """
        from collections import Counter
        from workpool import WorkPool

        N = 100_000

        def task(n):
            return n

        with WorkPool() as pool:
            before = sum(stats.tasks for stats in pool.stats())
            futures = [pool.submit(task, n) for n in range(N)]
            counts = Counter(future.result() for future in futures)
            after = sum(stats.tasks for stats in pool.stats())
        assert len(counts) == N, "lost"
        assert set(counts.values()) == {1}, "twice"
        assert sorted(counts) == list(range(N)), "foreign"
        assert after - before == N, "run more often than asked"
        print("accounted for", after - before)
    """
    result = run_ranks(workers + 1, script, timeout=120)
    assert "accounted for 100000" in result.stdout


@pytest.mark.smoke
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_more_tasks_than_rows(rows: int) -> None:
    script = f"""
        from workpool import WorkPool

        with WorkPool(rows={rows}) as pool:
            assert list(pool.map(lambda n: n + 1, range(3000))) == list(range(1, 3001))
    """
    run_ranks(3, script)


def test_a_long_task_holds_up_nobody(tmp_path: Path) -> None:
    """Far more short tasks than rows pass a task that waits for all of them to end."""
    script = """
        import os, sys, time
        from workpool import WorkPool

        flag = sys.argv[1]

        def wait():
            limit = time.monotonic() + 60
            while not os.path.exists(flag):
                assert time.monotonic() < limit
                time.sleep(0.01)
            return "seen"

        with WorkPool(rows=8) as pool:
            long = pool.submit(wait)
            assert sum(pool.map(lambda n: 1, range(2000))) == 2000
            assert not long.done()
            open(flag, "w").close()
            assert long.result() == "seen"
    """
    run_ranks(3, script, str(tmp_path / "flag"))


def test_tasks_that_wait_for_each_other_all_get_a_worker(tmp_path: Path) -> None:
    """After many short tasks, when tickets are taken by the dozen, four tasks must meet."""
    script = """
        import os, sys, time
        from workpool import WorkPool

        place = sys.argv[1]

        def meet(n):
            open(os.path.join(place, str(n)), "w").close()
            limit = time.monotonic() + 60
            while len(os.listdir(place)) < 4:
                assert time.monotonic() < limit, "the others never came"
                time.sleep(0.01)
            return n

        with WorkPool() as pool:
            list(pool.map(abs, range(3000)))
            futures = [pool.submit(meet, n) for n in range(4)]
            assert [future.result() for future in futures] == [0, 1, 2, 3]
    """
    run_ranks(5, script, str(tmp_path))


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


def test_arguments_are_taken_as_they_are_when_submitted() -> None:
    script = """
        import numpy as np
        from workpool import WorkPool

        with WorkPool(arena_nbytes=4 << 20) as pool:
            for count in (10, 5_000, 100_000, 2_000_000):
                array = np.zeros(count)
                futures = []
                for n in range(12):
                    array[:] = n
                    futures.append(pool.submit(lambda a: (a.min(), a.max()), array))
                array[:] = -1
                assert [f.result() for f in futures] == [(n, n) for n in range(12)], count
    """
    run_ranks(3, script)


@pytest.mark.parametrize("repository", [1, 2])
def test_the_repository_on_a_workers_rank(repository: int) -> None:
    script = f"""
        from workpool import WorkPool
        from workpool.job import entry

        with WorkPool() as pool:
            (table,) = entry.current().tables
            assert table.window.host == {repository}
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


def test_a_new_table_waits_for_busy_workers_and_stops_nobody() -> None:
    script = """
        import time
        from workpool import WorkPool

        with WorkPool() as one:
            slow = [one.submit(time.sleep, 0.5) for _ in range(2)]
            quick = [one.submit(abs, n) for n in range(50)]
            with WorkPool(rows=64) as two:
                assert two.submit(pow, 2, 5).result() == 32
            assert [f.result() for f in quick] == list(range(50))
            assert [f.result() for f in slow] == [None, None]
    """
    run_ranks(3, script)


def test_max_pending_bounds_what_waits() -> None:
    script = """
        from workpool import WorkPool

        with WorkPool(max_pending=20) as pool:
            futures = []
            for n in range(500):
                futures.append(pool.submit(abs, n))
                assert sum(not f.done() for f in futures) <= 20
            assert [f.result() for f in futures] == list(range(500))
    """
    run_ranks(3, script)


def test_modules_are_those_that_the_script_has(tmp_path: Path) -> None:
    """Found by a path that the script puts in front, by the initializer as well."""
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "one_of_two.py").write_text(f"def where():\n    return {place!r}\n")
    script = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import one_of_two
        from workpool import WorkPool

        def initialize(where):
            assert where() == "first"

        with WorkPool(initializer=initialize, initargs=(one_of_two.where,)) as pool:
            isolated = pool.with_options(isolate=True)
            print(*(view.submit(one_of_two.where).result() for view in (pool, isolated)))
    """
    path = os.environ.get("PYTHONPATH", "")
    env = {"PYTHONPATH": os.pathsep.join(filter(None, (path, str(tmp_path / "second"))))}
    assert run_ranks(2, script, str(tmp_path / "first"), env=env).stdout == "first first\n"


def test_what_an_initializer_sets_all_functions_of_the_script_see() -> None:
    script = """
        import functools
        from workpool import WorkPool

        model, cache, other = None, {}, {"level": 1}

        class Config:
            level = 1
            def describe(self):
                return f"{model} {cache} {self.level}"

        config = Config()

        def logged(function):
            @functools.wraps(function)
            def call(*args):
                return function(*args)
            return call

        @logged
        def setup(value):
            global model
            model = value
            cache["model"] = value
            return other["level"], config.level

        class Simulation:
            def run(self, n):
                return model + n, cache["model"]
            def __call__(self):
                return model

        @functools.lru_cache
        def remembered(n):
            return model * n

        @logged
        def read():
            return model, other["level"]

        def minimize(objective, start):
            return objective(start)

        for value in (10, 20):
            with WorkPool(initializer=setup, initargs=(value,)) as pool:
                for isolate in (False, True):
                    view = pool.with_options(isolate=isolate)
                    for _ in range(3):
                        assert view.submit(Simulation().run, 1).result() == (value + 1, value)
                        assert view.submit(Simulation()).result() == value
                        assert view.submit(remembered, 2).result() == 2 * value
                        assert view.submit(read).result() == (value, other["level"])
                        assert view.submit(lambda: config.level).result() == config.level
                        other["level"] += 1  # the initializer only reads it
                        config.level += 1
                    objective = functools.partial(minimize, Simulation().run)
                    assert list(view.map(objective, (0, 3))) == [(value, value), (value + 3, value)]
                    assert list(view.map(minimize, [remembered] * 2, (0, 3))) == [0, 3 * value]
                total = pool.reduce(remembered, range(100), op="sum")
                assert total == value * 4950
        with WorkPool() as pool:
            assert pool.submit(read).result() == (None, other["level"])
        assert model is None and not cache
    """
    run_ranks(2, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_proxies_of_a_multiprocessing_manager(ranks: int) -> None:
    script = """
        import threading
        from multiprocessing.managers import SyncManager
        from workpool import WorkPool

        class Manager(SyncManager):
            pass

        numbers = []
        Manager.register("numbers", callable=lambda: numbers, exposed=["append"])
        server = Manager(("localhost", 0)).get_server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        manager = Manager(server.address)
        manager.connect()
        proxy = manager.numbers()

        def use(proxy, number):
            proxy.append(number)

        def prepare(proxy):
            proxy.append(0)

        with WorkPool(initializer=prepare, initargs=(proxy,)) as pool:
            for view in pool, pool.with_options(isolate=True):
                for future in [view.submit(use, proxy, number) for number in range(1, 5)]:
                    future.result()
        print(sorted({*numbers}), numbers.count(4))
    """
    assert run_ranks(ranks, script).stdout == "[0, 1, 2, 3, 4] 2\n"


def test_options_from_the_environment(claim: str) -> None:
    script = f"""
        from workpool import WorkPool
        from workpool.job import entry

        with WorkPool() as pool:
            (core,) = entry.current().pools
            assert core.choice[1:] == (77, 5_000_000, {claim!r}, 1, 10.0), core.choice
            assert sum(pool.map(abs, range(500))) == sum(range(500))
    """
    env = {
        "WORKPOOL_ROWS": "77",
        "WORKPOOL_ARENA_NBYTES": "5000000",
        "WORKPOOL_REPOSITORY": "1",
    }
    run_ranks(3, script, env=env)


def test_options_that_cannot_be_honoured() -> None:
    script = """
        import os
        import threading
        import pytest
        from workpool import WorkPool
        from workpool.errors import ResourceError, SerializationError, UsageError

        for options, word in [
            ({"max_workers": 0}, "max_workers"),
            ({"rows": 0}, "rows=0"),
            ({"rows": 10**9}, "rows=1000000000"),
            ({"arena_nbytes": 100}, "arena_nbytes=100"),
            ({"arena_nbytes": 2**63}, f"arena_nbytes={2**63}"),
            ({"claim": "lottery"}, "lottery"),
            ({"repository": 3}, "repository=3"),
            ({"max_pending": 0}, "max_pending=0"),
            ({"max_workers": "4"}, "max_workers='4': give a whole number"),
            ({"max_pending": 1.5}, "max_pending=1.5: give a whole number"),
            ({"drain_s": "60"}, "drain_s='60': give a number"),
        ]:
            with pytest.raises(UsageError, match=word):
                WorkPool(**options)
        for initargs in (3, "file"):  # ("file") is no tuple
            with pytest.raises(TypeError, match=f"initargs={initargs!r}: give a tuple"):
                WorkPool(initializer=print, initargs=initargs)
        with pytest.raises(SerializationError, match="argument 2 of 2 .*_thread.lock"):
            WorkPool(initializer=print, initargs=(1, threading.Lock()))
        os.environ["WORKPOOL_ROWS"] = "1e3"
        with pytest.raises(UsageError, match="WORKPOOL_ROWS='1e3': give a whole number"):
            WorkPool()
        del os.environ["WORKPOOL_ROWS"]
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


def test_ranks_that_are_nobodys_workers_say_so() -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import UsageError

        with pytest.raises(UsageError, match=r"one of 2 ranks.*`workpool run -w 1 script"):
            WorkPool()
    """
    run_ranks(2, script, spmd=True)


@pytest.mark.parametrize("repository", [0, 1])
def test_an_mpi_that_needs_the_host_of_the_window(repository: int) -> None:
    """Then a thread there enters MPI, also while the script and its tasks do not."""
    script = f"""
        import sys, time
        import workpool
        from workpool.rma import Group

        genuine = Group._advances
        Group._advances = lambda self, *args: genuine(self, *args) and False

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


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("isolate", [False, True])
def test_what_an_initializer_has_made_goes_with_its_pool(ranks: int, isolate: bool) -> None:
    script = f"""
        import gc
        import workpool
        from workpool import WorkPool

        data = None

        def setup():
            global data
            data = bytearray(64 << 20)

        def used():
            assert len(data) == 64 << 20
            with open("/proc/self/status") as file:
                return int(file.read().partition("RssAnon:")[2].split(None, 1)[0]) >> 10

        def main(pool):
            return pool.with_options(isolate={isolate}).submit(used).result()

        def once():
            gc.collect()  # whole jobs, where this process is one
            if {ranks} == 1:
                return workpool.run(main, initializer=setup)
            with WorkPool(initializer=setup) as pool:
                return main(pool)

        first, *others, last = [once() for _ in range(6)]
        assert last < first + 96, (first, *others, last)
    """
    run_ranks(ranks, script)


def test_who_has_served_may_drive() -> None:
    script = """
        import workpool

        for root in (0, 1, 0):
            assert workpool.run(lambda pool: pool.submit(abs, -1).result(), root=root) in (1, None)
    """
    run_ranks(2, script, spmd=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_task_cannot_make_a_pool(ranks: int) -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import UsageError

        with WorkPool() as pool:
            with pytest.raises(UsageError, match="a task cannot make a pool"):
                pool.submit(WorkPool).result()
            with pytest.raises(UsageError, match="a task cannot make a pool"):
                pool.with_options(isolate=True).submit(WorkPool).result()
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_idle_ranks_sleep(ranks: int) -> None:
    script = """
        import os, sys, time
        from workpool import WorkPool

        def used_ns(pid):
            place = f"/proc/{pid}/task"
            return sum(
                int(open(f"{place}/{thread}/schedstat").read().split()[0])
                for thread in os.listdir(place)
            )

        with WorkPool() as pool:
            pids = {os.getpid()}
            while len(pids) < int(sys.argv[1]):
                futures = [pool.submit(os.getpid) for _ in range(8)]
                pids.update(future.result() for future in futures)
            time.sleep(1)
            before = {pid: used_ns(pid) for pid in pids}
            time.sleep(5)
            shares = {pid: (used_ns(pid) - before[pid]) / 5e9 for pid in pids}
        print(*(f"{share:.2%}" for share in shares.values()))
        assert max(shares.values()) <= 0.01, shares
    """
    run_ranks(ranks, script, str(ranks))
