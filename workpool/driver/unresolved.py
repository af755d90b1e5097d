"""Rows that have ended, on their way to the futures that somebody waits for."""

from __future__ import annotations

import threading
from collections import deque

from ..clock import monotonic
from ..tasks import Finished

#: Rows whose futures a thread resolves before it looks again for what it waits for itself.
RESOLVED = 64

#: For how long it does so at the most: while it takes in large results, workers send as many more,
#: and all of them would have to be kept.
RESOLVED_S = 1e-3

#: Bytes of an outcome that is taken in before any more are collected.
MUCH_NBYTES = 1 << 20


class Unresolved(deque[Finished]):
    """What was collected, in order.  Resolved without the driver's lock, by any of its threads.

    But by one at a time: what restores an object may be no more used to threads than the program,
    which need not know that there is an attendant beside it.  The others write down what there is.

    Attributes
    ----------
    hands : list of int
        The threads that have something of it in hand, each as often as it has.  The first of them
        takes it from here; those behind it only write down what there is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hands: list[int] = []

    @property
    def much(self) -> bool:
        """Whether the next one has a large outcome: until it is taken in, collect no others."""
        if not self:
            return False
        try:
            outcomes = list(self[0].outcomes)
        except IndexError:  # another thread was quicker
            return False
        return any(len(content) >= MUCH_NBYTES for _, _, content in outcomes)

    def resolve(self) -> int:
        """Resolve some futures and return of how many rows, or parts of batches.

        An interrupt leaves the others here.
        """
        count = 0
        me = threading.get_ident()
        end = monotonic() + RESOLVED_S
        while self and count < RESOLVED and (not count or monotonic() < end):
            try:
                self.hands.append(me)  # first: what we take is always here or in our hands
                if self.hands[0] != me:
                    self._write_all_down()
                    break
                try:
                    finished = self.popleft()
                except IndexError:  # another thread was quicker
                    break
                count += 1
                try:
                    if not finished.written:
                        self._write_down(finished)
                    finished.context.resolve(finished)
                except BaseException:
                    self.appendleft(finished)
                    raise
            finally:
                self.hands.remove(me)
        return count

    def _write_all_down(self) -> None:
        for finished in list(self):
            if not finished.written:
                self._write_down(finished)

    def _write_down(self, finished: Finished) -> None:
        """Have all outcomes of a pool written down together that must be before anybody sees them.

        One transaction of a journal for all of them costs little more than that of a single one.
        """
        context = finished.context
        others = [it for it in list(self) if it.context is context and not it.written]
        context.write_down([finished, *(it for it in others if it is not finished)])
