"""Steps that are cut off: by Ctrl-C, a signal's handler that raises, the end of the stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

# --- interrupts that the program catches ----------------------------------------------------------


def test_a_caught_interrupt_loses_nothing() -> None:
    script = """
        import os, random, signal, threading, time
        from workpool import WorkPool

        def task(n):
            return n

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)

        random.seed(1)
        caught = 0
        with WorkPool() as pool:
            for _ in range(60):
                futures = []
                timer = threading.Timer(random.uniform(2e-4, 15e-3), interrupt)
                try:
                    timer.start()
                    for n in range(500):
                        futures.append(pool.submit(task, n))
                    for future in futures:
                        future.result()
                    list(pool.map(task, range(1000)))
                    timer.join()
                    time.sleep(1)  # where it comes at the latest
                except KeyboardInterrupt:
                    caught += 1
                assert [future.result(20) for future in futures] == list(range(len(futures)))
        print("caught", caught)
    """
    assert run_ranks(3, script).stdout == "caught 60\n"


@pytest.mark.parametrize("option", ["rows=32", "journal=place"])
def test_an_interrupt_while_all_workers_are_waited_for_loses_nothing(
    tmp_path: Path, option: str
) -> None:
    script = f"""
        import os, signal, sys, threading, time
        from workpool import WorkPool

        place = sys.argv[1]

        def until_caught():
            while not os.path.exists(place + ".caught"):
                time.sleep(0.01)

        pool = WorkPool()
        busy = [pool.submit(until_caught) for _ in range(2)]
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            WorkPool({option})
        except KeyboardInterrupt:
            print("caught", [future.done() for future in busy])
            open(place + ".caught", "w").close()
        print(pool.submit(abs, -1).result(20))
        with WorkPool({option}) as other:
            print(other.submit(abs, -2).result(20))
    """
    assert run_ranks(3, script, str(tmp_path / "run.db")).stdout == "caught [False, False]\n1\n2\n"


def test_an_interrupt_while_a_table_of_a_rank_that_is_alone_is_closed(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, threading, time
        from workpool import WorkPool

        place = sys.argv[1]

        def until_caught():
            while not os.path.exists(place):
                time.sleep(0.01)

        first = WorkPool(rows=64)
        pool = WorkPool()
        first.shutdown()
        busy = pool.submit(until_caught)
        while not busy.running():
            time.sleep(0.01)
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            WorkPool(rows=128)  # takes the place of the first
        except KeyboardInterrupt:
            print("caught", busy.done())
            open(place, "w").close()
        for rows in (64, 128, 64):
            with WorkPool(rows=rows) as other:
                print(other.submit(abs, -rows).result(20))
        print(pool.submit(abs, -1).result(20))
    """
    stdout = run_ranks(1, script, str(tmp_path / "caught")).stdout
    assert stdout == "caught False\n64\n128\n64\n1\n"


def test_interrupts_at_any_moment_of_opening_and_closing_pools() -> None:
    script = """
        import os, random, signal, threading, time
        from workpool import WorkPool

        random.seed(1)
        pool = WorkPool()
        for n in range(12):
            timer = threading.Timer(random.uniform(0, 0.04), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                with WorkPool(rows=random.choice([16, 32, 64])) as other:
                    other.submit(abs, -1).result()
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                pass
            assert pool.submit(abs, -n).result(20) == n
        print("right")
    """
    assert run_ranks(3, script).stdout == "right\n"


def test_an_interrupt_while_open_pools_are_joined_ends_the_job() -> None:
    script = """
        import os, signal, threading, time
        from workpool import WorkPool

        pool = WorkPool()
        futures = [pool.submit(time.sleep, 30) for _ in range(4)]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    """
    result = run_ranks(3, script, expect_status=None)
    assert result.status != 0
    assert "KeyboardInterrupt" in result.stderr
    assert result.seconds < 20


# --- submits that fail in the middle --------------------------------------------------------------


def test_submits_that_fail_for_want_of_stack_leave_no_trace() -> None:
    script = """
        import sys, time
        from concurrent.futures import wait
        from workpool import WorkPool
        from workpool.job import entry

        def deep(frames):
            return pool.submit(abs, -1) if not frames else deep(frames - 1)

        failed = 0
        with WorkPool() as pool:
            pool.submit(abs, -1).result()
            for left in range(50):
                try:
                    deep(sys.getrecursionlimit() - left).result()
                except RecursionError:
                    failed += 1
                for count in (1, 2):  # if so many were not counted, nobody would attend to them
                    assert not wait([pool.submit(abs, -n) for n in range(count)], 20).not_done, left
                (driver,) = entry.current().tables.drivers
                assert driver.outstanding == 0, left
        print(failed > 0)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_submit_that_fails_takes_no_others_with_it() -> None:
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.driver.backlog import Backlog
        from workpool.driver.store import Store

        def fails(method, at):
            def failing(*args):
                nonlocal at
                at -= threading.current_thread() is threading.main_thread()
                if not at:
                    raise MemoryError
                return method(*args)
            return failing

        methods = [(Store, "descriptor"), (Backlog, "_most")]
        with WorkPool() as pool:
            for kind, name in methods:
                real = getattr(kind, name)
                futures = [pool.submit(time.sleep, 0.2) for _ in range(2)]
                futures += [pool.submit(abs, -n) for n in range(60)]
                setattr(kind, name, fails(real, 4))
                try:
                    while len(futures) < 10_000:
                        futures.append(pool.submit(abs, -1))
                except MemoryError:
                    print("failed")
                setattr(kind, name, real)
                for future in futures:
                    future.result(20)
    """
    assert run_ranks(3, script).stdout == "failed\nfailed\n"


#: `lost(pool)` returns the future of a task that a signal's handler has cut off.
CUT_OFF = """
        import signal, sys, time
        from concurrent.futures import as_completed, wait
        from workpool import TaskLost, WorkPool

        class Alarm(Exception): ...

        def alarm(*args):
            raise Alarm

        def cut_off(frame, event, function):  # where the handler runs
            if event == "c_return" and frame.f_code.co_filename.endswith("unresolved.py"):
                if function.__name__ == "popleft":
                    sys.setprofile(None)
                    signal.raise_signal(signal.SIGALRM)

        def lost(pool):
            while True:
                future = pool.submit(abs, -2)
                sys.setprofile(cut_off)  # this thread alone: the attendant resolves tasks as well
                try:
                    future.result()
                except Alarm:
                    return future
                finally:
                    sys.setprofile(None)

        signal.signal(signal.SIGALRM, alarm)
"""


def test_what_a_signals_handler_cuts_off_is_waited_for_no_more() -> None:
    script = """
        with WorkPool() as pool:
            assert pool.submit(abs, -1).result() == 1
            future = lost(pool)
            try:
                future.result()
            except TaskLost as error:
                print("lost" in str(error), future.done(), future.exception() is error)
            slow = pool.submit(time.sleep, 2)  # of which nothing is lost
            assert slow.result() is None
        with WorkPool(max_pending=2) as pool:
            unwaited = [lost(pool) for _ in range(2)]
            pool.submit(abs, -1).result()  # after a second
            pool._core._wait_for_room = None
            assert [pool.submit(abs, n).result() for n in range(100)] == list(range(100))
            assert [type(each.exception()) for each in unwaited] == [TaskLost, TaskLost]
            print(pool)
    """
    said = "True True True\n<WorkPool: 2 workers, 0 tasks pending>\n"
    assert run_ranks(3, CUT_OFF + script).stdout == said


@pytest.mark.parametrize("step", ["cancel", "reclaim"])
def test_what_is_cut_off_while_it_is_taken_back_is_waited_for_no_more(step: str) -> None:
    script = f"""
        from workpool.repository import Publisher

        def cut_off(self, row):
            Publisher.{step} = {step}
            assert {step}(self, row)
            signal.raise_signal(signal.SIGALRM)

        {step}, Publisher.{step} = Publisher.{step}, cut_off
        with WorkPool() as pool:
            view = pool.with_options(isolate=True)
            busy = [view.submit(time.sleep, 0.5) for _ in range(2)]
            while not all(each.running() for each in busy):
                time.sleep(0.01)
            future = busy[0] if "{step}" == "reclaim" else pool.submit(abs, -1)
            try:
                pool.kill(future)
            except Alarm:
                print(type(future.exception()).__name__, busy[1].exception())
    """
    assert run_ranks(3, CUT_OFF + script).stdout == "TaskLost None\n"


def test_who_waits_by_the_standard_library_learns_what_was_cut_off() -> None:
    script = """
        with WorkPool() as pool:
            later = lost(pool)
            told = []
            later.add_done_callback(told.append)
            slow = pool.submit(time.sleep, 2)
            ended = as_completed([slow, later], 20)
            print([type(each.exception()).__name__ for each in ended])
            done = wait([lost(pool), lost(pool)], 20).done
            print([type(each.exception()).__name__ for each in done])
            assert not pool._core.watched
        assert told == [later]
    """
    said = "['NoneType', 'TaskLost']\n['TaskLost', 'TaskLost']\n"
    assert run_ranks(3, CUT_OFF + script).stdout == said


def test_what_a_signals_handler_cuts_off_while_it_is_restored_is_restored_again() -> None:
    script = """
        from workpool.pool import resolver
        from workpool.pool.future import PoolFuture

        class Hangs:
            def __reduce__(self):
                return signal.raise_signal, (signal.SIGALRM,)

        def late(make, *args):
            time.sleep(0.1)  # until the main thread waits, which alone is cut off
            return make(*args)

        def once_cut_off(owner, name):
            def cut_off(*arguments):
                setattr(owner, name, whole)
                signal.raise_signal(signal.SIGALRM)

            whole = getattr(owner, name)
            setattr(owner, name, cut_off)

        with WorkPool(max_workers=1) as pool:
            for owner, name in ((resolver, "unpack_outcome"), (PoolFuture, "resolve")):
                once_cut_off(owner, name)
                future = pool.submit(late, abs, -5)
                try:
                    future.result()
                except Alarm:
                    print(future.result(), pool)
            future = pool.submit(late, Hangs)
            for _ in range(2):
                try:
                    future.result()
                except Alarm:
                    print(future.done())
            print(type(future.exception()).__name__, pool)
    """
    counts = "<WorkPool: 1 workers, 0 tasks pending>\n"
    said = f"5 {counts}5 {counts}False\nTrue\nAlarm {counts}"
    assert run_ranks(2, CUT_OFF + script).stdout == said


def test_what_a_signals_handler_raises_is_not_the_fault_of_what_is_pickled(tmp_path: Path) -> None:
    script = """
        import signal, sys
        from functools import partial
        from workpool import WorkPool

        class Alarm(Exception): ...

        class Handler:
            def __call__(self, *args):
                raise Alarm
            method = __call__

        def alarm(error, *args):
            raise error

        class Late:
            def __init__(self):
                self.calls = 0
            def __reduce__(self):
                self.calls += 1
                if self.calls == 1:
                    signal.raise_signal(signal.SIGALRM)
                return Late, ()
            def __call__(self, *args):
                return 5
            def __len__(self):
                return 5

        handlers = {
            lambda *args: sys.exit(3): SystemExit,
            Handler(): Alarm,
            Handler().method: Alarm,
            partial(alarm, ValueError()): ValueError,
            partial(alarm, TypeError()): TypeError,
        }
        with WorkPool() as pool:
            asked = [
                lambda late: pool.submit(len, late).result(),
                lambda late: pool.submit(late).result(),
                lambda late: next(pool.map(len, [late])),
                lambda late: next(pool.map(len, [late] * 1000)),
                lambda late: next(pool.map(late, range(1000))),
                lambda late: next(pool.map(len, iter([late] * 9000), buffersize=4096)),
                lambda late: next(pool.map(len, [late] * 1000, journal=sys.argv[1])),
                lambda late: next(pool.map(len, [late], journal=sys.argv[1], chunksize=1)),
                lambda late: pool.reduce(len, [late] * 1000, op="max"),
                lambda late: WorkPool(initializer=len, initargs=(late,)).submit(abs, 5).result(),
            ]
            for handler, error in handlers.items():
                signal.signal(signal.SIGALRM, handler)
                for number, ask in enumerate(asked):
                    late = Late()
                    try:
                        ask(late)
                    except error:
                        assert ask(late) == 5
                    else:
                        print("not raised:", number, error)
    """
    assert run_ranks(1, script, str(tmp_path / "journal.db")).stdout == ""
