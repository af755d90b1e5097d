"""The thread that keeps MPI moving where other hosts need this one inside it."""

from __future__ import annotations

import sys
import threading

from ..clock import sleep
from ..system.streams import VitalThread
from ..whole import whole
from .mpi import MPI


def enter() -> None:
    """Enter MPI, which does then what others wait for."""
    world = MPI.COMM_WORLD
    try:
        world.Iprobe()  # for messages of anybody: for our own alone, MPI does less
    except MPI.Exception:
        # An MPI that tolerates the death of a rank wants to hear that we know of it.
        world.Ack_failed(world.Get_size())


class Ticker(VitalThread):
    """Keeps MPI moving on the host of a window that ranks on other hosts use.

    Their one-sided calls advance only while the host is inside MPI, and the host may be running a
    task.  Measured with two hosts over TCP and a host busy in Python, an atomic of a remote rank
    takes 0.3 to 0.9 ms with this thread and 6 to 18 ms without.  It looks often while the control
    words change and for some time after (what is only read changes nothing), and seldom while they
    do not.  A task that keeps the interpreter lock stops it.
    """

    SHORTEST_S = 0.2e-3
    LONGEST_S = 5e-3
    GROWTH = 1.02  # of the pause, from one to the other within a quarter of a second
    SWITCH_S = 0.5e-3  # how long the interpreter lets another thread go on

    def __init__(self, memory: memoryview, lock: threading.Lock) -> None:
        super().__init__("progress", self._run, "the thread that keeps MPI moving")
        self._memory = memory
        self._lock = lock
        self._stopped = False
        sys.setswitchinterval(min(sys.getswitchinterval(), self.SWITCH_S))

    def _run(self) -> None:
        seen = b""
        pause_s = self.SHORTEST_S
        while not self._stopped:
            self._enter()
            words = bytes(self._memory)
            pause_s = min(self.GROWTH * pause_s, self.LONGEST_S)
            if words != seen:
                seen, pause_s = words, self.SHORTEST_S
            sleep(pause_s)

    @whole  # a finalizer that comes here must not wait for the lock
    def _enter(self) -> None:
        with self._lock:
            enter()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self.join()
