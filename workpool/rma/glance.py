"""A look at another host's memory by a rank that has nothing to do, and sleeps meanwhile."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

from ..backoff import FIRST_S
from ..clock import sleep
from .mpi import MPI

#: Longest sleep between two questions whether the answer is there.
LONGEST_S = 2e-3


class Glance:
    """Reads words of a window.  Not thread-safe.

    A ``peek`` would wait in a flush, which takes the whole core until the host enters MPI: up to
    5 ms for each look (see ``Ticker``), so a tenth of the core.

    Parameters
    ----------
    win : MPI.Win
    host : int
        Whose memory it is.
    lock : threading.Lock
        Held during every call into MPI.
    """

    def __init__(self, win: MPI.Win, host: int, lock: threading.Lock) -> None:
        self._win = win
        self._host = host
        self._lock = lock
        # After a look that was cut off they are still MPI's, and so is what they read into.
        self._requests: list[MPI.Request] = []
        self._found = array("q")

    def look(self, disps: Sequence[int]) -> list[int]:
        """Return some words, each as it was at some moment.

        Notes
        -----
        RMA cost: 1 rget for each.
        """
        self.end()
        self._found = array("q", bytes(8 * len(disps)))
        words = memoryview(self._found)
        with self._lock:
            for i, disp in enumerate(disps):
                origin = [words[i : i + 1], 1, MPI.INT64_T]
                self._requests.append(self._win.Rget(origin, self._host, disp))
        self.end()
        return self._found.tolist()

    def end(self) -> None:
        """Wait, asleep, until nothing is under way."""
        pause_s = FIRST_S
        while self._requests:
            with self._lock:
                if MPI.Request.Testall(self._requests):
                    self._requests.clear()
                    return
            sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)
