"""Steps that are cut off by what a signal's handler of the script's own raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

#: `lost(pool)` returns the future of a task that a signal's handler has cut off.
CUT_OFF = """
        import signal, sys, threading, time
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

        def in_main():  # which alone is cut off
            return threading.current_thread() is threading.main_thread()

        def counted(pool):
            end = time.monotonic() + 20  # whoever gave a future its result counts it just then
            while "0 tasks" not in str(pool) and time.monotonic() < end:
                time.sleep(0.001)
            return pool

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
            print(counted(pool))
    """
    said = "True True True\n<WorkPool: 2 workers, 0 tasks pending>\n"
    assert run_ranks(3, CUT_OFF + script).stdout == said


def test_interrupts_wait_though_the_script_has_put_pythons_own_handler_back() -> None:
    script = """
        def interrupted(frame, event, function):
            if event == "c_return" and frame.f_code.co_filename.endswith("unresolved.py"):
                if function.__name__ == "popleft":
                    sys.setprofile(None)
                    signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        with WorkPool() as pool:
            caught = None
            while caught is None:
                future = pool.submit(abs, -2)
                sys.setprofile(interrupted)
                try:
                    future.result()
                except KeyboardInterrupt as interrupt:
                    caught = interrupt
                finally:
                    sys.setprofile(None)
            print(future.result())
    """
    assert run_ranks(3, CUT_OFF + script).stdout == "2\n"


@pytest.mark.parametrize("step", ["CANCEL", "RECLAIM"])
def test_what_is_cut_off_while_it_is_taken_back_is_waited_for_no_more(
    tmp_path: Path, step: str
) -> None:
    script = f"""
        from pathlib import Path
        from workpool.protocol import Step
        from workpool.repository import Publisher

        def cut_off(self, row, step):
            taken = take(self, row, step)
            if step is Step.{step}:
                Publisher.step = take
                assert taken
                signal.raise_signal(signal.SIGALRM)
            return taken

        def until_cut_off():
            while not caught.exists():
                time.sleep(0.01)

        caught = Path({str(tmp_path / "caught")!r})
        take, Publisher.step = Publisher.step, cut_off
        with WorkPool() as pool:
            view = pool.with_options(isolate=True)
            busy = [view.submit(until_cut_off) for _ in range(2)]
            while not all(each.running() for each in busy):
                time.sleep(0.01)
            future = busy[0] if "{step}" == "RECLAIM" else pool.submit(abs, -1)
            try:
                pool.kill(future)
            except Alarm:
                caught.touch()
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


def test_a_callback_of_a_cancelled_future_learns_what_was_cut_off() -> None:
    script = """
        with WorkPool() as pool:
            for learn in (lambda it: it.exception(20), lambda it: wait([it], 20)):
                later = lost(pool)
                slow = [pool.submit(time.sleep, 0.1) for _ in range(9)]
                slow[-1].add_done_callback(lambda _: learn(later))
                assert slow[-1].cancel()
                print(type(later.exception(0)).__name__)
    """
    assert run_ranks(3, CUT_OFF + script).stdout == "TaskLost\n" * 2


def test_what_a_signals_handler_cuts_off_while_it_is_restored_is_restored_again() -> None:
    script = """
        from workpool.pool import resolver
        from workpool.pool.future import PoolFuture

        def ring():
            if in_main():
                signal.raise_signal(signal.SIGALRM)

        class Hangs:
            def __reduce__(self):
                return ring, ()

        def late(make, *args):
            time.sleep(0.1)  # until the main thread waits
            return make(*args)

        def once_cut_off(owner, name):
            def cut_off(*arguments):
                if not in_main():
                    return whole(*arguments)
                setattr(owner, name, whole)
                signal.raise_signal(signal.SIGALRM)

            whole = getattr(owner, name)
            setattr(owner, name, cut_off)
            return whole

        with WorkPool(max_workers=1) as pool:
            for owner, name in ((resolver, "unpack_outcome"), (PoolFuture, "resolve")):
                whole = once_cut_off(owner, name)
                while getattr(owner, name) is not whole:
                    future = pool.submit(late, abs, -5)
                    try:
                        future.result()
                    except Alarm:
                        print(future.result(), counted(pool))
            rang = []
            while len(rang) < 2:  # else another thread has restored it
                future, rang = pool.submit(late, Hangs), []
                for _ in range(2):
                    try:
                        future.result()
                    except Alarm:
                        rang.append(future.done())
            print(rang, type(future.exception()).__name__, counted(pool))
    """
    counts = "<WorkPool: 1 workers, 0 tasks pending>\n"
    said = f"5 {counts}5 {counts}[False, True] Alarm {counts}"
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


def test_what_a_handler_raises_while_all_ranks_open_a_table_waits_for_its_end() -> None:
    script = """
        import signal
        from workpool import WorkPool
        from workpool.rma import Group

        class Alarm(Exception): ...

        def once(*_):
            signal.signal(signal.SIGALRM, later)
            raise Alarm

        def later(*_): ...

        def rings(*args):
            signal.raise_signal(signal.SIGALRM)
            return lack(*args)

        lack = Group._lack
        signal.signal(signal.SIGUSR1, later)
        with WorkPool() as pool:
            signal.signal(signal.SIGALRM, once)
            Group._lack = rings
            try:
                WorkPool(rows=64)
            except Alarm:
                print("rang")
            Group._lack = lack
            for number in (signal.SIGALRM, signal.SIGUSR1):
                print(signal.getsignal(number) is later)
            with WorkPool(rows=64) as other:
                print(other.submit(abs, -1).result(20), pool.submit(abs, -2).result(20))
    """
    assert run_ranks(3, script).stdout == "rang\nTrue\nTrue\n1 2\n"


def test_what_is_tried_again_is_not_tried_twice_though_a_handler_cuts_in(tmp_path: Path) -> None:
    script = f"""
        import threading
        from workpool.driver.driver import Driver

        def cut_off(self, task, delay_s):
            retry(self, task, delay_s)
            if threading.current_thread() is threading.main_thread():  # else it is the attendant
                Driver.retry = retry
                signal.raise_signal(signal.SIGALRM)

        def failing(total, name):
            total.add(1)
            with open(name, "a") as file:
                file.write("x")
                if file.tell() == 1:
                    raise ValueError
            time.sleep(0.1)

        retry, Driver.retry = Driver.retry, cut_off
        with WorkPool() as pool:
            total = pool.accumulator((), int)
            names = []
            while Driver.retry is not retry:
                names.append("{tmp_path}/" + str(len(names)))
                future = pool.with_options(retries=3).submit(failing, total, names[-1])
                try:
                    future.result()
                except Alarm:
                    print(future.result())
            pool.submit(time.sleep, 0.3).result()
            tried = sorted(len(open(name).read()) for name in names)
            print(set(tried), total.value() == len(names))
    """
    assert run_ranks(3, CUT_OFF + script).stdout == "None\n{2} True\n"


def test_who_is_interrupted_while_he_locks_futures_leaves_none_locked() -> None:
    script = """
        from workpool.pool.future import PoolFuture

        def interrupting(future):
            if future is futures[2]:
                PoolFuture._condition = condition
                signal.raise_signal(signal.SIGINT)
            return condition.fget(future)

        with WorkPool() as pool:
            futures = [pool.submit(time.sleep, 0.2) for _ in range(4)]
            condition, PoolFuture._condition = PoolFuture._condition, property(interrupting)
            try:
                wait(futures)
            except KeyboardInterrupt:
                print([future._condition._is_owned() for future in futures])
            time.sleep(1)  # so that another thread takes in what they return
            print([future.result(20) for future in futures])
    """
    said = "[False, False, False, False]\n[None, None, None, None]\n"
    assert run_ranks(3, CUT_OFF + script).stdout == said


def test_who_is_interrupted_as_he_has_locked_a_future_does_not_leave_it_locked() -> None:
    script = """
        def interrupt(frame, event, function):
            if event == "c_return" and function.__name__ == "__enter__":
                signal.raise_signal(signal.SIGALRM)

        with WorkPool() as pool:
            future = pool.submit(time.sleep, 0.2)
            sys.setprofile(interrupt)
            try:
                future.add_done_callback(len)
            except Alarm:
                print("cut off")
            finally:
                sys.setprofile(None)
            time.sleep(1)  # so that another thread takes in what it returns
            print(future.result(20), pool.submit(abs, -1).result(20))
    """
    assert run_ranks(3, CUT_OFF + script).stdout.endswith("None 1\n")
