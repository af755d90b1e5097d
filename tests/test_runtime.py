"""What the runtime promises beyond an Executor's contract: bulk, order, rest."""

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


def test_a_manager_whose_key_came_after_the_pool() -> None:
    script = """
        import sys
        from workpool import WorkPool

        def main():
            with WorkPool() as pool:
                assert "multiprocessing.process" not in sys.modules
                from multiprocessing import Manager
                with Manager() as manager:
                    lock = manager.Lock()
                    for view in pool, pool.with_options(isolate=True):
                        error = view.submit(print, lock).exception(60)
                        assert "if that is imported before the pool is made" in str(error), error

        if __name__ == "__main__":
            main()
    """
    run_ranks(2, script)


def test_ranks_that_are_nobodys_workers_say_so() -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import UsageError

        with pytest.raises(UsageError, match=r"one of 2 ranks.*`workpool run -w 1 script"):
            WorkPool()
    """
    run_ranks(2, script, spmd=True)


def test_a_process_that_is_alone_in_a_batch_job_says_so() -> None:
    script = """
        from workpool import WorkPool
        for _ in range(2):
            with WorkPool() as pool:
                assert pool.submit(abs, -3).result() == 3
    """
    for room, told in (("64", 1), ("1", 0)):
        stderr = run_ranks(1, script, spmd=True, env={"NSLOTS": room}).stderr
        assert stderr.count(f"has room for {room} ranks, and this process is alone") == told


def test_tasks_that_add_to_accumulators_leave_no_memory_behind() -> None:
    script = """
        from workpool import WorkPool

        def add(numbers):
            numbers.add(1)
            with open("/proc/self/status") as file:
                return int(file.read().partition("RssAnon:")[2].split(None, 1)[0])

        with WorkPool() as pool:
            numbers = pool.accumulator((), int)
            used = [pool.submit(add, numbers).result() for _ in range(8000)]
            assert used[-1] < used[2000] + 300, used[::1000]  # KiB
    """
    run_ranks(2, script)


def test_memory_of_large_arguments_and_results_is_not_kept_for_long() -> None:
    script = """
        import time
        import numpy as np
        from workpool import WorkPool

        def kept(array=None):
            from workpool.system import spares
            spares.EASE_S = 0.1
            return len(spares.spares._slabs)

        with WorkPool() as pool:
            assert pool.submit(kept, np.zeros(1 << 20)).result() == 1, "in use"
            pool.submit(np.ones, 1 << 20).result()
            assert kept() == 1
            isolated = pool.with_options(isolate=True)
            assert isolated.submit(kept, np.zeros(1 << 20)).result() == 1, "in use"
            end = time.monotonic() + 30
            while kept() or pool.submit(kept).result() or isolated.submit(kept).result():
                assert time.monotonic() < end
                time.sleep(0.5)
    """
    run_ranks(2, script)


def test_who_has_served_may_drive() -> None:
    script = """
        import workpool

        for root in (0, 1, 0):
            assert workpool.run(lambda pool: pool.submit(abs, -1).result(), root=root) in (1, None)
    """
    run_ranks(2, script, spmd=True)


def test_who_has_served_has_its_own_handler_of_sigterm_again(tmp_path: Path) -> None:
    script = """
        import signal, sys
        import workpool

        def leave(signum, frame):
            sys.exit(3)

        signal.signal(signal.SIGTERM, leave)
        workpool.run(lambda pool: pool.submit(abs, -1).result(), journal=sys.argv[1])
        assert signal.getsignal(signal.SIGTERM) is leave
    """
    run_ranks(2, script, str(tmp_path / "journal"), spmd=True)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_task_cannot_make_a_pool(ranks: int) -> None:
    script = """
        import pytest
        from workpool import WorkPool
        from workpool.errors import UsageError

        with WorkPool() as pool:
            for view in (pool, pool.with_options(isolate=True)):
                for task in (WorkPool, lambda: WorkPool(rows=99)):
                    with pytest.raises(UsageError, match="a task cannot make a pool"):
                        view.submit(task).result()
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
            for _ in range(3):  # where others have emptied the caches, all takes longer
                before = {pid: used_ns(pid) for pid in pids}
                time.sleep(5)
                shares = {pid: (used_ns(pid) - before[pid]) / 5e9 for pid in pids}
                if max(shares.values()) <= 0.01:
                    break
        print(*(f"{share:.2%}" for share in shares.values()))
        assert max(shares.values()) <= 0.01, shares
    """
    run_ranks(ranks, script, str(ranks))
