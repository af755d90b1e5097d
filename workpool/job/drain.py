"""SIGTERM while a journal is open: what runs may end and is stored, no more is started.

::

    SIGTERM       main thread                   the drain's thread
    1st     ----> handler: tells the thread
                  goes on, or waits             no rows any more; progress until none runs
                                                or `drain_s` have passed
                  handler: SystemExit(75) <---- all that has ended is in the journal
                  `finally`, `with`, atexit     END_S later, or if a task still runs: ends the job

The main thread is interrupted only when there is nothing left that an interrupt could lose.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from ..clock import Stopwatch
from ..driver.driver import Driver
from ..driver.progress import progress_until
from ..interrupts import Deferring
from ..system.status import UNFINISHED, grace_s
from ..system.streams import VitalThread, say
from ..whole import inside, within

#: How long the program may take to end when everything is stored.
END_S = 3.0

#: How often the main thread is told to leave, as long as it is in a step that must not be cut off.
AGAIN_S = 20e-3

#: Modules that would take it for an error of the user's objects, which they call.  It waits until
#: these have returned, but not for ever: one of them may hang.
_CATCHES = ("workpool.serializer", "workpool.journal.keys")

#: What part of the launcher's grace tasks have to end in after a signal.
INTERRUPTED = 0.6


class Terminated(SystemExit):
    """A signal asks the program to leave.

    Attributes
    ----------
    signal : str
        Its name.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signal = signal.Signals(signum).name


def _leave(signum: int, frame: FrameType | None) -> None:
    raise Terminated(signum)


def _harms(frame: FrameType | None, late: bool) -> bool:
    """Return whether a SystemExit here would cut something in two, or become another's failure."""
    return within(frame) or (not late and inside(frame, _CATCHES))


#: A handler: what the program has in ``finally`` is run, and MPI remarks nothing.
leave = Deferring(_leave, _harms)


class Drain:
    """What SIGTERM does while journals are open.

    Parameters
    ----------
    drivers : callable
        Returns those of all tables.
    announce : callable
        ``announce(drain_s)``: tells whoever may end the job how long a drain may take.
    end : callable
        ``end(status)``: ends every process of the job at once.

    Attributes
    ----------
    cut : bool
        Whether tasks were running when the time was over.
    """

    def __init__(
        self,
        drivers: Callable[[], list[Driver]],
        announce: Callable[[float], None],
        end: Callable[[int], None],
    ) -> None:
        self.cut = False
        self._drivers = drivers
        self._announce = announce
        self._end = end
        self._drain_s = 0.0
        self._journals = 0
        # Reentrant: a finalizer may close a journal meanwhile.  The signal's handler takes no lock.
        self._lock = threading.RLock()
        self._before: object = None  # the handler that was there; None while ours is not
        self._asked: queue.SimpleQueue[bool]
        self._begun = self._over = self._left = False
        self._finished: list[Driver] = []  # those whose tasks have had their time
        self._closed = threading.Event()
        self._leave = Deferring(self._exit, _harms)

    def open(self, drain_s: float) -> None:
        """Count a journal that was opened; the main thread's first one prepares for SIGTERM."""
        with self._lock:
            self._journals += 1
            self._drain_s = max(self._drain_s, drain_s)
            if self._before is not None or self._prepare():
                self._announce(self._drain_s)

    def _prepare(self) -> bool:
        """Have SIGTERM be ours; return whether it is: the program may have its own plans."""
        before = signal.getsignal(signal.SIGTERM)
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or before not in (signal.SIG_DFL, leave):
            return False
        self._before = before
        self._asked = queue.SimpleQueue()  # gevent's own where its threads are such
        VitalThread("drain", self._run, "what drains the job").start()
        signal.signal(signal.SIGTERM, self._signalled)
        return True

    def close(self) -> None:
        """Count a journal that was closed; with the last one SIGTERM is as before."""
        with self._lock:
            self._journals -= 1
            if self._journals or self._before is None or self._begun:
                return
            with suppress(ValueError):  # not the main thread: ours goes on, and finds nothing to do
                self._put_back()
                self._announce(0.0)

    def _put_back(self) -> None:
        """Have SIGTERM be as it was before us; in the main thread alone."""
        before = self._before
        if before is not None:  # as where ours comes, and does this, while a journal is closed
            signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
            self._before = None
            self._drain_s = 0.0
            self._asked.put(False)

    def ended(self) -> None:
        """Say that the job ends by itself."""
        self._closed.set()

    def _signalled(self, signum: int, frame: FrameType | None) -> None:
        if not self._journals and not self._begun:  # the last was closed by another thread
            self._put_back()
            signal.raise_signal(signal.SIGTERM)
        elif not self._begun:
            self._begun = True
            self._asked.put(True)  # a SimpleQueue may be called in the middle of its own `put`
        elif self._over and not self._left:
            self._leave(signum, frame)

    def _exit(self, signum: int, frame: FrameType | None) -> None:
        self._left = True
        # Not before: who waits for the end of a pool would go on as if all its tasks had run.
        for driver in self._finished:
            driver.drained = True
        raise SystemExit(UNFINISHED)

    def _run(self) -> None:
        if not self._asked.get():
            return
        say(f"SIGTERM: running tasks have {self._drain_s:g} s to end, no others are started")
        self._finished = self._drivers()
        busy = self.cut = not finish(self._finished, self._drain_s)
        say(
            ("the time is over, what still runs is lost" if busy else "all of them have ended")
            + f"; status {UNFINISHED}: start the script again to go on"
        )
        self._over = True
        main = threading.main_thread().ident
        assert main is not None
        watch = Stopwatch()
        while not self._left and watch.look() < END_S:
            signal.pthread_kill(main, signal.SIGTERM)  # interrupts whatever it waits for
            if self._closed.wait(AGAIN_S):
                return
        watch = Stopwatch()
        while watch.look() < END_S:
            if self._closed.wait(AGAIN_S):
                return
        self._end(UNFINISHED)


def finish(drivers: list[Driver], limit_s: float) -> bool:
    """Have nothing more started, and wait for what runs; return whether all of it has ended."""
    for driver in drivers:
        driver.drain()
    return progress_until(drivers, lambda: not any(driver.busy for driver in drivers), limit_s)


def interrupted(drivers: list[Driver], what: str) -> bool:
    """Leave what runs a while to end, after a signal; return whether all of it has ended.

    Parameters
    ----------
    drivers : list of Driver
    what : str
        The signal's name.

    Raises
    ------
    KeyboardInterrupt or SystemExit
        When the next one comes.
    """
    if finish(drivers, 0):
        return True
    limit_s = INTERRUPTED * grace_s()
    say(f"{what}: running tasks have {limit_s:g} s to end; a second one ends them at once")
    return finish(drivers, limit_s)
