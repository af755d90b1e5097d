"""The verbs of a window that work on words of 64 bits, one by one, by atomics."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..clock import monotonic
from ..verbs import NEVER, Swap
from ..whole import whole
from .elements import Elements
from .glance import Glance
from .mpi import MPI
from .ticker import Ticker

#: How often a rank that has a window's memory enters MPI all the same: some MPIs carry out what
#: others ask of its host only then.
ENTER_S = 0.2e-3

#: By how much longer a look goes on where ranks of other hosts need this one inside MPI.
ENTERING = 10

#: Most atomics that share one flush.
BATCH = 256


class Words(Elements):
    """The part of a ``Window`` that works on words, flushes, and has the attributes of all parts.

    The parameters are those of ``Window``.
    """

    def __init__(
        self,
        win: MPI.Win,
        host: int,
        nbytes: int,
        lock: threading.Lock,
        memory: memoryview | None = None,
        ticker: Ticker | None = None,
    ) -> None:
        self.host = host
        self.nbytes = nbytes
        self.shared = memory is not None and ticker is None
        self._memory = memory
        self._words = None if memory is None else memory[: nbytes & ~7].cast("q")
        self._held: list[memoryview] = []  # buffers of ours that belong to MPI until the flush
        self._under_way = False  # whether a call of ours into MPI may wait for a flush
        self._enter_s = 0.0  # when we next let MPI do whatever it has to do
        self._ticker = ticker
        self._glance = Glance(win, host, lock)
        self._win = win
        self._places = range(0, nbytes - 7, 8)  # where a word may be
        self._lock = lock
        # One element for each atomic under way; MPI reads and writes them until the flush.  To be
        # told what a buffer holds spares mpi4py a third of a microsecond.
        self._origin, self._compare, self._result = (array("q", bytes(8 * BATCH)) for _ in "ocr")
        self._slots = [
            tuple(
                [memoryview(a)[i : i + 1], 1, MPI.INT64_T]
                for a in (self._origin, self._compare, self._result)
            )
            for i in range(BATCH)
        ]
        #: By slot: ``Compare_and_swap`` at a displacement.
        self._swaps: list[Callable[[int], Any]] = [
            partial(win.Compare_and_swap, origin, compare, result, host)
            for origin, compare, result in self._slots
        ]

    def load(self, disp: int) -> int:
        """Read a CAS word.

        Notes
        -----
        RMA cost: 1 compare_and_swap, 1 flush.
        """
        return self.compare_and_swap(disp, NEVER, NEVER)

    @whole
    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int:
        """Store `desired` where `expected` stands; return what stood there.

        Notes
        -----
        RMA cost: 1 compare_and_swap, 1 flush.
        """
        if disp not in self._places:
            self._outside("compare_and_swap", disp, 8)
        with self._lock:
            self._origin[0] = desired
            self._compare[0] = expected
            try:
                self._swaps[0](disp)
                self._win.Flush(self.host)  # the answer is ours only after the flush
            except MPI.Exception as error:
                self._failed("compare_and_swap", disp, error)
            return self._result[0]

    @whole
    def compare_and_swap_all(self, steps: Sequence[Swap]) -> list[int]:
        """Carry out many compare_and_swap; return what stood at each.

        Each is atomic by itself; they are not atomic together, and not ordered.  Complete at the
        end is also what was put and got before, in no order with them.

        Parameters
        ----------
        steps : sequence of Swap

        Notes
        -----
        RMA cost: 1 compare_and_swap for each, 1 flush for every ``BATCH``.
        """
        if len(steps) > BATCH:
            found = []
            for first in range(0, len(steps), BATCH):
                found += self.compare_and_swap_all(steps[first : first + BATCH])
            return found
        with self._lock:
            return self._swap(steps)

    @whole
    def fetch_add(self, disp: int, amount: int) -> int:
        """Add to a counter word; return what stood there.  An amount of 0 only reads.

        Notes
        -----
        RMA cost: 1 fetch_and_op, 1 flush.
        """
        if disp not in self._places:
            self._outside("fetch_add", disp, 8)
        with self._lock:
            self._origin[0] = amount
            origin, _, result = self._slots[0]
            try:
                self._win.Fetch_and_op(
                    origin, result, self.host, disp, MPI.SUM if amount else MPI.NO_OP
                )
                self._win.Flush(self.host)  # the answer is ours only after the flush
            except MPI.Exception as error:
                self._failed("fetch_add", disp, error)
            return self._result[0]

    @whole
    def peek(self, *disps: int) -> list[int]:
        """Return CAS words, each as it was at some moment: a hint, for a Get is no atomic.

        Whoever has seen a word sees what was complete before it was written.

        Notes
        -----
        RMA cost: 1 get for each, 1 flush; none where we have the memory, but as ``flush``.
        """
        places, words, found = self._places, self._words, []
        with self._lock:
            if words is not None:
                for disp in disps:
                    if disp not in places:
                        self._outside("peek", disp, 8)
                    found.append(words[disp >> 3])
                self._sync()  # nothing that is read after them is older
                return found
            for disp, (_, _, result) in zip(disps, self._slots[: len(disps)], strict=True):
                if disp not in places:
                    self._outside("peek", disp, 8)
                try:
                    self._win.Get(result, self.host, disp)
                except MPI.Exception as error:
                    self._failed("peek", disp, error)
            self._flush()
            return self._result[: len(disps)].tolist()

    @whole
    def await_change(self, seen: Sequence[int], *disps: int, seconds: float) -> list[int]:
        """Return what `peek` does, later if the words are those that were seen.

        Parameters
        ----------
        seen : list of int
        *disps : int
        seconds : float
            For how long to look again and again, leaving the core to others, while nothing has
            changed; only where we have the memory.  Where others need us inside MPI, ``ENTERING``
            times as long: a change takes several steps of theirs, and each waits for that.  0 says
            that there is no haste: where the memory is that of another host, this thread sleeps
            until the answer comes.

        Notes
        -----
        RMA cost: as ``peek``, again and again where others need us inside MPI; 1 rget for each
        where the memory is that of another host and there is no haste.
        """
        words = self._words
        if self._ticker is not None:
            end = monotonic() + ENTERING * seconds
            while (found := self.peek(*disps)) == seen and monotonic() < end:
                os.sched_yield()
            return found
        for disp in disps:
            if disp not in self._places:
                self._outside("await_change", disp, 8)
        if words is None:
            try:
                return self.peek(*disps) if seconds else self._glance.look(disps)
            except MPI.Exception as error:
                self._failed("await_change", disps[0], error)
        places = [disp >> 3 for disp in disps]
        end = monotonic() + seconds
        while (found := [words[place] for place in places]) == seen and monotonic() < end:
            os.sched_yield()
        with self._lock:
            self._sync()  # as in peek
        return found

    def _swap(self, steps: Sequence[Swap]) -> list[int]:
        places, swaps, origins, compares = self._places, self._swaps, self._origin, self._compare
        i = disp = 0
        try:
            for disp, expected, desired in steps:
                if disp not in places:
                    self._outside("compare_and_swap", disp, 8)
                origins[i] = desired
                compares[i] = expected
                swaps[i](disp)
                i += 1
            self._win.Flush(self.host)  # one flush completes the whole batch
        except MPI.Exception as error:
            self._failed("compare_and_swap", disp, error)
        if self._held:
            self._held.clear()
        return self._result[:i].tolist()

    def _sync(self) -> None:
        """Do as a flush does, where we have the memory.

        The standard has a sync put our loads and stores in order.  A flush does so as well, in
        MPICH and in Open MPI, which take their memory barrier first; and others may need us there.
        """
        if self._ticker is not None or self._under_way or monotonic() > self._enter_s:
            self._flush()
            self._enter_s = monotonic() + ENTER_S
            self._under_way = False
        else:
            try:
                self._win.Sync()  # what we load and store from here on is not moved before it
            except MPI.Exception as error:
                self._failed("sync", 0, error)

    def _flush(self) -> None:
        try:
            self._win.Flush(self.host)
        except MPI.Exception as error:
            self._failed("flush", 0, error)
        self._held.clear()
