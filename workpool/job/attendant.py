"""The thread beside the driver's own that makes progress when nobody else does."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ..backoff import Backoff
from ..clock import monotonic
from ..driver.driver import Driver
from ..flag import Flag
from ..system.spares import spares
from ..system.streams import vital

#: How often the attendant looks while nobody waits for a result; and, after a while, while threads
#: wait that make progress themselves, because each look takes the interpreter lock from them.
LAZY_S = 5e-3
ATTENDED_S = 50e-3

#: Its longest sleep while somebody waits who makes no progress himself.
CLOSE_S = 1e-3

#: How often it looks where nothing is outstanding: a step that was cut off may have left something.
REST_S = 1.0


class Attendant:
    """Makes progress when nobody else does: futures with callbacks, waits of the standard library.

    A daemon thread that starts with the first task.  It only looks in from time to time, because
    two threads that compete for the interpreter lock cost milliseconds, unless a future is watched
    by somebody who makes no progress himself.

    Parameters
    ----------
    drivers : callable
        Returns those to attend to.
    watched : callable
        Returns whether a future is watched.
    give_up_lost : callable
        ``give_up_lost(interrupted)``: fails watched futures that are nowhere any more, after a
        while, unless it is interrupted.
    check : callable
        Called with each look: ends this process if nothing can come of it.
    """

    def __init__(
        self,
        drivers: Callable[[], list[Driver]],
        watched: Callable[[], bool],
        give_up_lost: Callable[[Callable[[], bool]], object],
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._drivers = drivers
        self._watched = watched
        self._give_up_lost = give_up_lost
        self._check = check
        self._work = Flag()
        self._bell = Flag()
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._stopped = False
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether it is this thread that asks."""
        return self._thread is threading.current_thread()

    def wake(self) -> None:
        """There is something to attend to."""
        if not self._work.is_set() or self._thread is None:
            self._work.set()
            # A finalizer that submits may have come while this thread starts the attendant.
            if not self._starting._is_owned():  # type: ignore[attr-defined]
                with self._starting:
                    self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._bell.renew()
            self._work.renew()
            self._work.set()
            # By the class that `threading` has now: where gevent has replaced it meanwhile, nobody
            # would be told of the end of a thread of the class before.
            made_with = vital("attendant", self._attend, "the driver's attendant")
            self._thread = threading.Thread(**made_with)
            try:
                self._thread.start()
            except BaseException:
                self._thread = None
                raise

    def ring(self) -> None:
        """A future is watched: look at once."""
        self._bell.set()

    def call(self, action: Callable[[], object]) -> None:
        """Have an action done by the thread, when it does nothing else."""
        self._actions.put(action)
        self._work.set()
        self.ring()

    def join(self, ended: Callable[[], bool]) -> None:
        """Wait until the thread has done what it was told, as far as `ended` wants to know.

        An action that waits for others has them done at once.
        """
        if self.is_current:
            self._act()
            return
        if not ended():
            self.wake()  # `call` may have been by a finalizer, which has started no thread
        wait = Backoff(CLOSE_S)
        while not ended():
            wait.pause()

    def stop(self) -> None:
        """End the thread when it has done what it was told."""
        self._stopped = True
        self._work.set()
        self._bell.set()
        with self._starting:  # a thread can be joined only after it was started
            thread = self._thread
        if thread is not None and not self.is_current:
            thread.join()

    def _attend(self) -> None:
        wait = Backoff(CLOSE_S)
        rest_s = LAZY_S
        seen: dict[Driver, int] = {}
        while True:
            self._work.wait(REST_S)
            self._check()
            spares.ease(monotonic())
            stopped = self._stopped  # first: what we were told before the stop is still done
            self._act()
            if stopped or self._thread is not threading.current_thread():
                return  # in the second case our start was cut off, and another thread was started
            busy = self._busy()
            if not busy:
                self._rest()
                continue
            self._work.set()  # it may have been cleared while the last outcomes were being fetched
            # Each driver by itself: a thread that waits for one makes no progress for another, for
            # whose answer the workers may be waiting.
            attended = all(driver.waits.attended for driver in busy)
            closely = not attended and self._watched()
            idle = [
                driver
                for driver in busy
                if driver.beats == seen.get(driver) or (closely and not driver.waits.attended)
            ]
            try:
                found = sum(driver.progress() for driver in idle)
            except KeyboardInterrupt:  # of a result that was being restored: its future has it
                continue
            except MemoryError:  # no memory for an outcome, which is still there: perhaps later
                wait.pause()
                continue
            if found:
                wait.reset()
                self._act()
            seen = {driver: driver.beats for driver in busy}
            if closely:
                if len(busy) == 1:
                    busy[0].waits.pause(wait)
                else:
                    wait.pause()
            else:
                wait.reset()
                self._bell.clear()
                rest_s = min(2 * rest_s, ATTENDED_S) if attended else LAZY_S
                if self._actions.empty() and (attended or not self._watched()):
                    self._bell.wait(rest_s)

    def _busy(self) -> list[Driver]:
        """Return the drivers that have tasks outstanding."""
        return [driver for driver in self._drivers() if driver.outstanding]

    def _rest(self) -> None:
        """Have nothing to attend to, unless something has come just now."""
        self._work.clear()
        # After the clear: then nothing is missed.
        if self._busy() or not self._actions.empty() or self._stopped:
            self._work.set()
        else:
            self._give_up_lost(self._work.is_set)

    def _act(self) -> None:
        """Do what the thread was told."""
        while True:
            try:
                action = self._actions.get_nowait()
            except Empty:
                return
            try:
                action()
            except BaseException:  # the user's callback: nothing of ours depends on it
                traceback.print_exc()
