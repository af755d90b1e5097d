"""The window of ranks on other hosts than its own, which may die or be cut off."""

from __future__ import annotations

from ..backoff import WAIT_S, Backoff
from ..whole import whole
from .window import Window


class PatientWindow(Window):
    """The same verbs, with counters that are counted by compare-and-swap alone.

    Over a network, Open MPI holds a lock at the host of a window while it fetches and adds: whoever
    dies just then, or loses the network, stops all others for ever.  It has none for a
    compare-and-swap.
    """

    @whole
    def fetch_add(self, disp: int, amount: int) -> int:
        """Add to a counter word; return what stood there.  An amount of 0 only reads.

        Notes
        -----
        RMA cost: 1 compare_and_swap to read, 1 more to add, and 1 for each rank that was quicker; 1
        flush for each.
        """
        found = self.load(disp)
        wait = Backoff(WAIT_S)
        while amount:
            seen, found = found, self.compare_and_swap(disp, found, found + amount)
            if found == seen:
                break
            wait.pause()  # those who are nearer to the host would always be quicker
        return found
