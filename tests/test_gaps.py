"""What another thread, a finalizer or a signal's handler does between two steps of a pool.

Each of these holds one thread in the middle of a step, and has the other act just there.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import run_ranks
from stepped import Stepped
from stepped_pool import Make

from workpool.driver import waits as waits_module
from workpool.driver.waits import Waits
from workpool.errors import SerializationError
from workpool.job.drain import finish
from workpool.pool.future import Condition
from workpool.pool.mapping.call import MapCall
from workpool.pool.mapping.cutter import Cutter
from workpool.pool.mapping.stretch import Stretch
from workpool.pool.mapping.supply import Supply
from workpool.schedule import Schedule
from workpool.serializer.code_cache import CodeCache

mpi = pytest.mark.mpi


def test_what_comes_back_between_two_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread has the task in its hands, puts it back, and leaves its step."""
    back: list[bool] = []
    waits = Waits(lambda: 0, lambda waited_s: None, lambda: bool(back), lambda: False)
    waits._patience_s = 0.0

    def stepping() -> bool:
        back.append(True)
        return False

    monkeypatch.setattr(waits_module, "_stepping", stepping)
    assert waits.wait(lambda: len(back) > 3, 0.2) is False


def test_a_drain_waits_for_what_another_thread_writes_down() -> None:
    """What is neither in the table nor collected may not be stored yet."""
    job = Stepped()
    writing, go_on, written = threading.Event(), threading.Event(), []

    def write_down(several: Any) -> None:
        writing.set()
        assert go_on.wait(10)
        for finished in several:
            finished.written = True
            written.append(finished)

    job.context.write_down = write_down
    task = job.task(len, b"")
    task.noted = object()
    job.context.journaled = True
    job.driver.submit(task, None)
    job.driver.progress()
    job.work()
    other = threading.Thread(target=job.driver.progress)
    other.start()
    assert writing.wait(10)
    assert not finish([job.driver], 0.3)
    go_on.set()
    other.join()
    assert finish([job.driver], 10)
    assert len(written) == 1
    job.leave()


def test_nothing_is_cut_after_what_cannot_be_pickled() -> None:
    """The next window may come at the very moment when an item of the last one is refused."""
    cutter = Cutter(count().__next__, 2, partial(len), CodeCache(), Schedule.ADAPTIVE)
    mapping: Any = SimpleNamespace(over=False)
    supply = Supply(mapping, cutter, lambda stretch: None, threading.RLock())
    supply.add(cutter.begin(["a", "b", threading.Lock(), "c"]), [])
    assert isinstance(supply.refusal, SerializationError)
    supply.add(cutter.begin(["d"]), [])
    assert supply.ended
    assert [stretch.items for stretch in supply.stretches] == [2]
    refusal = supply.refusal
    supply.refuse(RuntimeError("later"))
    assert supply.refusal is refusal


def test_a_map_is_stopped_as_a_whole_though_its_first_items_are_used_up_just_then() -> None:
    exhausted = []

    def exhaust(segment: object) -> None:
        exhausted.append(segment)
        if len(exhausted) == 1:
            mapping._stretches.pop(0)  # by who iterates

    driver = SimpleNamespace(exhaust=exhaust, cancel=lambda task: False)
    pool: Any = SimpleNamespace(driver=driver, lock=threading.RLock())
    mapping = MapCall(pool, SimpleNamespace(fn=abs, operation=None))  # type: ignore[arg-type]
    for segment in "abc":
        stretch = Stretch(segment, 10, None, None, 10, True)  # type: ignore[arg-type]
        stretch.turns = 1
        mapping._stretches.append(stretch)
    mapping.stop()
    assert exhausted == ["a", "b", "c"]


def test_a_piece_of_a_map_gives_its_counter_back_before_the_others_are_over() -> None:
    """What was lost with a turn may be in more pieces than there are counters."""
    ended: list[Any] = []
    pool: Any = SimpleNamespace(
        driver=SimpleNamespace(end=ended.append, exhaust=bool, cancel=lambda task: False),
        lock=threading.RLock(),
        take_turn=lambda future, fn, further: future,
    )
    cutter = Cutter(count().__next__, 2, abs, CodeCache(), Schedule.SELF)
    mapping = MapCall(pool, cutter)
    found = cutter.cut(cutter.begin(range(9)), False)
    assert found is not None
    (stretch,) = found
    content = stretch.segments[0].content
    stretch.segments = pieces = [cutter.segment(content, range(n, n + 1), True) for n in (3, 5)]
    mapping._share(stretch)
    first, second = list(stretch.tasks)
    mapping.leave(first)
    assert ended == pieces[:1]
    mapping.stop()
    mapping.leave(second)
    assert ended == pieces


@mpi
def test_a_pool_is_over_when_shutdown_returns_whoever_ends_it() -> None:
    """The attendant resolves the last task, and lets go of the table; the next pool frees it."""
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.accumulator import Accumulators

        close, closing, go_on = Accumulators.close, threading.Event(), threading.Event()

        def slowly(self, spec):
            if threading.current_thread() is not threading.main_thread():
                closing.set()
                assert go_on.wait(20)
            close(self, spec)

        def add(numbers):
            time.sleep(0.1)
            numbers.add(1)

        Accumulators.close = slowly
        pool = WorkPool(rows=64)
        numbers = pool.accumulator((), "int64")
        pool.submit(add, numbers)
        pool.shutdown(wait=False)
        assert closing.wait(20)
        threading.Timer(0.3, go_on.set).start()
        pool.shutdown(wait=True)
        assert go_on.is_set()
        with WorkPool(rows=128) as other:
            assert other.submit(abs, -3).result() == 3
        assert numbers.value() == 1
    """
    run_ranks(1, script)


@mpi
def test_a_journal_is_not_opened_for_a_pool_that_was_shut_down(tmp_path: Path) -> None:
    script = """
        import sys
        from workpool import WorkPool
        from workpool.journal.ledger import Ledgers

        path = sys.argv[1]
        opens = Ledgers.open

        def late(self, path):
            pool.shutdown()  # by another thread, when it is known that the pool is open
            return opens(self, path)

        pool = WorkPool()
        pool.submit(abs, -1).result()
        Ledgers.open = late
        try:
            list(pool.map(abs, range(5), journal=path))
        except RuntimeError as error:
            assert "after shutdown" in str(error)
        else:
            raise AssertionError("it has run")
        Ledgers.open = opens
        with WorkPool(journal=path) as other:  # nobody has it
            assert other.submit(abs, -1).result() == 1
    """
    run_ranks(1, script, str(tmp_path / "journal"))


@mpi
@pytest.mark.parametrize("schedule", ["adaptive", "static"])
def test_a_map_that_begins_after_a_shutdown_runs_nothing(tmp_path: Path, schedule: str) -> None:
    script = """
        import sys, threading, time
        from concurrent.futures import CancelledError
        from pathlib import Path
        from workpool import WorkPool
        from workpool.pool.core import Core

        place, schedule = Path(sys.argv[1]), sys.argv[2]
        takes = Core.take_turn

        def late(self, *args):
            Core.take_turn = takes
            other = threading.Thread(target=lambda: pool.shutdown(False, cancel_futures=True))
            other.start()
            other.join()
            return takes(self, *args)

        def touch(n):
            (place / str(n)).touch()

        def until_mapped():
            while not mapped.exists():
                time.sleep(0.01)

        mapped = place.with_name("mapped")
        pool = WorkPool()
        busy = pool.submit(until_mapped)
        while not busy.running():
            time.sleep(0.01)
        Core.take_turn = late
        results = pool.map(touch, range(100), schedule=schedule)
        mapped.touch()
        pool.shutdown()
        assert not list(place.iterdir())
        try:
            next(results)
        except CancelledError:
            pass
        else:
            raise AssertionError("there is a result")
    """
    (place := tmp_path / "place").mkdir()
    run_ranks(1, script, str(place), schedule)


@mpi
def test_no_more_tasks_are_pending_than_may_be_though_several_threads_submit() -> None:
    script = """
        import threading, time
        from workpool import WorkPool

        most = 0

        with WorkPool(max_pending=2) as pool:
            core, meet = pool._core, threading.Barrier(6)
            submits = core._submit

            def slowly(*args):
                global most
                if not meet.broken:
                    try:
                        meet.wait(0.5)  # all of them have seen that there is room
                    except threading.BrokenBarrierError:
                        pass
                taken = submits(*args)
                most = max(most, core._pending)
                return taken

            core._submit = slowly
            futures = []
            threads = [
                threading.Thread(target=lambda: futures.append(pool.submit(time.sleep, 0.05)))
                for _ in range(6)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for future in futures:
                future.result()
            assert len(futures) == 6
        assert most == 2, most
    """
    run_ranks(1, script)


@mpi
def test_who_cannot_start_a_thread_has_submitted_nothing() -> None:
    script = """
        from threading import Thread
        from workpool import WorkPool

        starts = Thread.start

        def start(self):
            if self.name == "workpool-attendant":
                raise RuntimeError("can't start new thread")
            starts(self)

        Thread.start = start
        pool = WorkPool()
        try:
            pool.submit(print, "it ran all the same")
        except RuntimeError as error:
            assert "start new thread" in str(error)
        else:
            raise AssertionError("it was submitted")
        Thread.start = starts
        assert pool.submit(abs, -1).result() == 1
        pool.shutdown()
    """
    run_ranks(1, script)


@mpi
def test_a_fork_does_not_wait_for_what_another_thread_holds() -> None:
    script = """
        import os, threading, time
        from workpool import WorkPool

        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            held, go_on = threading.Event(), threading.Event()

            def hold():
                with pool._core.lock:
                    held.set()
                    go_on.wait(20)

            other = threading.Thread(target=hold)
            other.start()
            held.wait()
            child = os.fork()
            if not child:
                try:
                    pool.shutdown()
                except BaseException as error:
                    os._exit(7 if "forked" in str(error) else 8)
                os._exit(9)
            end = time.monotonic() + 20
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
                time.sleep(0.01)
            if ended == (0, 0):
                os.kill(child, 9)
            go_on.set()
            other.join()
            assert os.waitstatus_to_exitcode(ended[1]) == 7, ended
    """
    run_ranks(1, script)


def test_a_finalizer_that_comes_while_its_thread_has_the_pools_lock_cannot_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever resolves the future that it waits for wants that lock, and may begin any time."""
    pool = make(workers=1)
    future = pool.submit(abs, -1)
    refused = []

    def condition() -> Condition:  # where the garbage collector runs
        pool.members.states[1] = "stopped"
        with pytest.raises(RuntimeError, match="a finalizer"):
            future.result()
        del pool.members.states[1]
        refused.append(True)
        return Condition()

    monkeypatch.setattr("workpool.pool.future.Condition", condition)
    future.add_done_callback(bool)
    assert refused == [True]
