"""Who comes in the middle of a step of the very same thread is refused, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = pytest.mark.mpi


def test_who_submits_while_this_thread_is_in_mpi_is_refused() -> None:
    script = """
        import signal, time
        from workpool import WorkPool

        found = []

        def submits(*_):
            try:
                found.append(pool.submit(abs, -1))
            except RuntimeError as error:
                assert "in the middle" in str(error)
                found.append(None)

        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            numbers = pool.accumulator((4,), "int64")
            signal.signal(signal.SIGALRM, submits)
            give_up, i = time.monotonic() + 30, 0
            # Where the alarm comes is the system's matter; sooner or later it is in MPI.
            while i < 1000 or (None not in found and time.monotonic() < give_up):
                i += 1
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + (i % 30) * 1e-6)
                for _ in range(3):
                    numbers.value()
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert None in found
            assert all(future.result() == 1 for future in found if future is not None)
    """
    run_ranks(1, script)


@pytest.mark.parametrize("ranks", [1, 2])
def test_who_wants_numbers_while_this_thread_is_at_them_or_in_mpi_is_refused(ranks: int) -> None:
    script = """
        import signal, time
        from workpool import WorkPool

        added, refused = 0, set()

        def looks(*_):
            global added
            try:
                if i % 2:
                    numbers.value()
                else:
                    numbers.add([1, 1, 1, 1])
                    added += 1
            except RuntimeError as error:
                assert "in the middle" in str(error)
                refused.add(i % 2)

        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            numbers = pool.accumulator((4,), "int64")
            signal.signal(signal.SIGALRM, looks)
            give_up, i = time.monotonic() + 30, 0
            while i < 1000 or (len(refused) < 2 and time.monotonic() < give_up):
                i += 1
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + (i % 30) * 1e-6)
                pool.submit(abs, -1).result()
                numbers.value()
                numbers.add([0, 0, 0, 0])
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert refused == {0, 1}
            assert numbers.value().tolist() == [added] * 4
    """
    run_ranks(ranks, script)


def test_who_makes_a_pool_in_the_middle_of_a_step_is_refused(tmp_path: Path) -> None:
    """Workers that are called together while they are called together would wait for ever."""
    script = """
        import os, signal, sys, threading, time
        from pathlib import Path
        from workpool import WorkPool
        from workpool.job import entry

        def until_refused():
            while not over.exists():
                time.sleep(0.01)

        def ring_when_workers_are_called():
            while not entry.current()._crew.control.calling:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGALRM)

        def makes(*_):
            try:
                WorkPool(rows=16)
            except RuntimeError as error:
                assert "in the middle" in str(error)
                refused.append(where)
            if where != "the first one":
                try:
                    next(pool.map(abs, [1], journal=sys.argv[1]))
                except RuntimeError as error:
                    assert "in the middle" in str(error)
            if where.startswith("an opening"):
                over.touch()

        refused, over = [], Path(sys.argv[1] + " over")
        signal.signal(signal.SIGALRM, makes)
        where = "the first one"
        with entry._lock:
            signal.raise_signal(signal.SIGALRM)
        with WorkPool() as pool:
            where = "a step"
            (driver,) = entry.current().tables.drivers
            with driver._lock:
                signal.raise_signal(signal.SIGALRM)
            where = "an opening that waits for busy workers"
            busy = pool.submit(until_refused)
            while not busy.running():
                time.sleep(0.01)
            threading.Thread(target=ring_when_workers_are_called).start()
            with WorkPool(rows=32) as other:
                assert refused == ["the first one", "a step", where]
                assert other.submit(abs, -1).result() == 1
            with WorkPool(rows=64) as other:
                assert other.submit(abs, -1).result() == 1
    """
    run_ranks(3, script, str(tmp_path / "journal"))


def test_who_waits_for_what_this_thread_has_in_hand_is_refused() -> None:
    script = """
        import signal, threading, time
        from workpool import WorkPool
        from workpool.pool import resolver

        unpacks, refused = resolver.unpack_outcome, []

        def unpack(*args):
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGALRM)
            return unpacks(*args)

        def wait(*_):
            try:
                future.result()
            except RuntimeError as error:
                refused.append(str(error))

        resolver.unpack_outcome = unpack
        signal.signal(signal.SIGALRM, wait)
        with WorkPool() as pool:
            while not refused:
                future = pool.submit(time.sleep, 0.01)
                future.result()
        assert "can wait" in refused[0]
    """
    run_ranks(1, script)


def test_who_submits_while_this_thread_writes_a_journal_is_refused(tmp_path: Path) -> None:
    script = """
        import signal, sys, threading, time
        from workpool import WorkPool
        from workpool.journal.journal import Journal

        stores, refused = Journal.store, []

        def store(self, entries):
            entries = list(entries)
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.05)
                signal.raise_signal(signal.SIGALRM)
            return stores(self, entries)

        def submits(*_):
            try:
                pool.submit(pow, 2, len(refused))
            except RuntimeError as error:
                refused.append(str(error))

        Journal.store = store
        signal.signal(signal.SIGALRM, submits)
        with WorkPool(journal=sys.argv[1]) as pool:
            n = 0
            while not refused:
                n += 1
                futures = [pool.submit(time.sleep, n / 1e6 + wait) for wait in (0.01, 0.02)]
                for future in futures:
                    future.result()
        assert "in the middle" in refused[0]
    """
    run_ranks(1, script, str(tmp_path / "journal"))
