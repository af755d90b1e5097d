"""The thread beside the driver's own: what it is told, when it rests, and who comes meanwhile."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from harness import run_ranks

from workpool.job import attendant as attendant_module
from workpool.job.attendant import ATTENDED_S, LAZY_S, REST_S, Attendant
from workpool.pool.callbacks import Callbacks


def test_the_attendant_does_what_it_was_told_before_it_ends() -> None:
    class Late(Attendant):
        def _act(self) -> None:
            super()._act()
            if not self._stopped:  # somebody tells, and ends it, just now
                self.call(lambda: done.append(True))
                self.stop()

    done: list[bool] = []
    attendant = Late(list, bool, bool)
    attendant._thread = threading.current_thread()
    attendant._work.set()
    attendant._attend()
    assert done == [True]


@pytest.mark.parametrize("raised", [MemoryError, KeyboardInterrupt])
def test_the_attendant_goes_on_when_an_outcome_could_not_be_had(
    raised: type[BaseException],
) -> None:
    """Who waits by ``result`` gets the error; nobody is there to get it from the attendant."""

    class Driver:
        beats = calls = 0
        waits = SimpleNamespace(attended=False, pause=lambda wait: None)

        @property
        def outstanding(self) -> bool:
            return self.calls < 2

        def progress(self) -> int:
            self.calls += 1
            if self.calls == 1:
                raise raised
            attendant.stop()
            return 0

    driver: Any = Driver()
    looks: list[int] = []
    attendant = Attendant(lambda: [driver], lambda: True, bool, lambda: looks.append(driver.calls))
    attendant._thread = threading.current_thread()
    attendant.wake()
    attendant._attend()
    assert (driver.calls, looks) == (2, [0, 1, 2])


def test_the_attendant_that_rests_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        beats, outstanding = 0, False
        waits = SimpleNamespace(attended=False)

        def progress(self) -> int:
            self.outstanding = False
            looked.set()
            return 1

    rested, looked, done = (threading.Event() for _ in range(3))
    monkeypatch.setattr(attendant_module, "REST_S", 60.0)
    driver: Any = Driver()
    attendant = Attendant(lambda: [driver], bool, lambda interrupted: rested.set())
    attendant.wake()
    assert rested.wait(10)
    rested.clear()
    driver.outstanding = True
    attendant.wake()
    assert looked.wait(10)
    assert rested.wait(10)
    attendant.call(done.set)
    assert done.wait(10)
    attendant.stop()


def test_the_attendant_looks_the_less_often_the_longer_somebody_waits() -> None:
    """Where nothing is outstanding, it waits to be woken; else it does for so long at most."""

    class Driver:
        beats, outstanding, progress = 0, False, int
        waits = SimpleNamespace(attended=True)

    def wait(seconds: float) -> None:
        rests.append(seconds)
        driver.waits.attended = len(rests) < 6
        if len(rests) == 7:
            attendant.stop()

    def wake(interrupted: object) -> None:
        driver.outstanding = True
        attendant.wake()

    driver: Any = Driver()
    attendant = Attendant(lambda: [driver], bool, wake, lambda: looks.append(len(rests)))
    attendant._bell = SimpleNamespace(wait=wait, clear=bool, set=bool)  # type: ignore[assignment]
    attendant._thread = threading.current_thread()
    attendant._work.set()
    rests, looks = list[float](), list[int]()
    attendant._attend()
    assert rests == [2 * LAZY_S, 4 * LAZY_S, 8 * LAZY_S, *[ATTENDED_S] * 3, LAZY_S]
    assert looks == [0, *range(8)]


def test_an_attendant_that_could_not_start_is_started_with_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    attendant, done = Attendant(list, bool, bool), threading.Event()
    with monkeypatch.context() as poor:
        poor.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            attendant.wake()
    attendant.wake()
    attendant.call(done.set)
    assert done.wait(10)
    attendant.stop()


@pytest.mark.parametrize("come", ["", "task", "action", "end"])
def test_the_attendant_rests_unless_something_has_just_come(come: str) -> None:
    driver: Any = SimpleNamespace(outstanding=come == "task")
    rested: list[object] = []
    attendant = Attendant(lambda: [driver], bool, rested.append)
    attendant._work.set()
    if come == "action":
        attendant._actions.put(bool)
    if come == "end":
        attendant.stop()
    attendant._rest()
    assert attendant._work.is_set() == bool(come)
    assert bool(rested) != bool(come)


def test_a_finalizer_may_tell_the_attendant_wherever_it_comes() -> None:
    """It comes between any two steps of Python, in whatever thread sets or clears what it wants."""
    attendant = Attendant(list, bool, bool)

    def come(*_: object) -> object:
        if not coming:
            coming.append(True)
            attendant.ring()
            attendant.call(bool)
            coming.clear()
        return come

    def meet() -> None:
        steps = [attendant.ring, lambda: attendant.call(bool), attendant.stop]
        for flag in (attendant._work, attendant._bell):
            steps += [flag.clear, lambda flag=flag: flag.wait(0.0), flag.clear, flag.set]
        for step in steps:
            sys.settrace(come)
            step()
            sys.settrace(None)
        met.append(True)

    coming: list[bool] = []
    met: list[bool] = []
    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    thread.join(10)
    assert met


def test_a_finalizer_may_submit_wherever_the_attendant_starts() -> None:
    def start(attendant: Attendant, at: int) -> None:
        """Wake it, and once more from the midst of that."""

        def come(*_: object) -> object:
            nonlocal step
            step += 1
            if step == at:
                attendant.wake()
            return come

        sys.settrace(come)
        attendant.wake()
        sys.settrace(None)

    for at in range(1, 1000):
        step = 0
        attendant = Attendant(list, bool, bool)
        thread = threading.Thread(target=start, args=(attendant, at), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("workpool-attendant") == 1
        attendant.stop()
        if step < at:
            break
    assert at > 20


def test_the_attendant_is_a_thread_and_waits_for_locks_as_they_are_when_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As gevent replaces them in a script.

    Its threads never end a wait for a lock from before, nor for a thread of a class from before.
    """
    make = threading.Lock

    class ReplacedThread(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            joined.set()

    class Replaced:
        def __init__(self) -> None:
            self._lock = make()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if timeout == REST_S:
                waited.set()
            return self._lock.acquire(blocking, timeout)

    attendant = Attendant(list, bool, bool)
    done, waited, joined = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "Lock", Replaced)
    monkeypatch.setattr(threading, "Thread", ReplacedThread)
    attendant.call(done.set)
    attendant.wake()
    assert done.wait(10)
    assert waited.wait(10)
    attendant.stop()
    assert joined.is_set()


def test_what_a_finalizer_told_the_attendant_before_the_first_task_is_done() -> None:
    attendant = Attendant(list, bool, bool)
    done: list[bool] = []
    attendant.call(lambda: done.append(True))
    thread = threading.Thread(target=lambda: attendant.join(lambda: bool(done)), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    attendant.stop()


def test_a_callback_that_the_attendant_was_not_told_of_is_not_waited_for() -> None:
    def interrupted(action: object) -> None:
        raise KeyboardInterrupt  # by a signal's handler

    over: list[bool] = []
    attendant: Any = SimpleNamespace(call=interrupted, join=lambda ended: over.append(ended()))
    callbacks = Callbacks(attendant)
    with pytest.raises(KeyboardInterrupt):
        callbacks.call(bool)
    callbacks.join()
    assert over == [True]


def test_one_attendant_though_its_start_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler raises where `Thread.start` waits for the thread, which runs by then."""
    attendant = Attendant(list, bool, bool)
    starts = threading.Thread.start

    def start(self: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", starts)
        starts(self)
        raise TimeoutError

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(TimeoutError):
        attendant.wake()
    (first,) = (each for each in threading.enumerate() if each.name == "workpool-attendant")
    attendant.wake()
    first.join(10)
    assert not first.is_alive()
    attendant.stop()


@pytest.mark.mpi
def test_a_callback_that_is_not_handed_over_is_not_waited_for() -> None:
    script = """
        import signal, threading, time
        from workpool import WorkPool
        from workpool.job.attendant import Attendant

        class Alarm(Exception):
            pass

        def raises(*_):
            raise Alarm

        calls = Attendant.call

        def call(self, action):
            if threading.current_thread() is threading.main_thread():
                Attendant.call = calls
                signal.raise_signal(signal.SIGALRM)
            return calls(self, action)

        Attendant.call = call
        signal.signal(signal.SIGALRM, raises)
        with WorkPool() as pool:
            try:
                while True:
                    future = pool.submit(time.sleep, 0.01)
                    future.add_done_callback(lambda future: None)
                    future.result()
            except Alarm:
                pass
    """
    run_ranks(1, script)
