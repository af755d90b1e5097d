"""The verbs of one window, carried out in MPI."""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..verbs import NEVER
from ..whole import inside, whole
from .elements import Elements
from .mpi import MPI
from .ticker import Ticker

#: Longest piece of one Put or Get: some MPIs refuse counts of 2 GiB and more, and over a network
#: the heart would miss its beats, which wants the lock between two pieces.
PIECE_NBYTES = 1 << 26

#: How often who has the memory of a window enters MPI: some MPIs carry out what others ask of its
#: host only then.
ENTER_S = 0.2e-3

#: Most atomics that share one flush.
BATCH = 256


#: Modules whose functions call MPI, with the lock held, and nothing of the user's.
_CALLING = {f"{__package__}.{name}" for name in ("elements", "group", "own", "patient", "window")}


class Window(Elements):
    """One rank's memory, open to the one-sided calls of all.

    Allocated by ``Group.allocate``.  Thread-safe.

    Parameters
    ----------
    win : MPI.Win
    host : int
        Whose memory it is.
    nbytes : int
    lock : threading.Lock
        Held during every call into MPI.
    memory : memoryview, optional
        The memory, if this rank has it and its loads and stores are as good as Get and Put: in the
        unified model (MPI-4.1, 12.4), and on one host, where nobody needs us inside MPI.
    ticker : Ticker, optional
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
        self._memory = memory
        self._words = None if memory is None else memory[: nbytes & ~7].cast("q")
        self._held: list[memoryview] = []  # buffers of ours that belong to MPI until the flush
        self._under_way = False  # whether a call of ours into MPI may wait for a flush
        self._enter_s = 0.0  # when we next let MPI do whatever it has to do
        self._ticker = ticker
        self._win = win
        self._places = range(0, nbytes - 7, 8)  # where a word may be
        self._lock = lock
        # One element for each atomic under way; MPI reads and writes them until the flush.  Who
        # says what a buffer holds spares mpi4py a third of a microsecond of finding out.
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

    def busy(self) -> bool:
        """Return whether this thread is in the middle of a call, where a finalizer has come.

        Or a signal's handler; what it wants of MPI would wait for its own thread.
        """
        return self._lock.locked() and inside(sys._getframe(1), _CALLING)

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
    def compare_and_swap_all(self, steps: Sequence[tuple[int, int, int]]) -> list[int]:
        """Carry out many compare_and_swap; return what stood at each.

        Each is atomic by itself; they are not atomic together, and not ordered.  Complete at the
        end is also what was put and got before, in no order with them.

        Parameters
        ----------
        steps : sequence of (disp, expected, desired)

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
    def put_and_swap(
        self, disp: int, buffer: bytes, steps: Sequence[tuple[int, int, int]]
    ) -> list[int]:
        """Write bytes, complete that, and only then carry out a few compare_and_swap.

        Who sees one of the words that they store sees the bytes, and whatever was put before.

        Parameters
        ----------
        disp : int
        buffer : bytes
        steps : sequence of (disp, expected, desired)
            Up to ``BATCH``; see `compare_and_swap_all`.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap for each, 1 flush; where we have the memory 1
        sync in the place of the first two.
        """
        memory, end = self._memory, disp + len(buffer)
        if memory is None or not 0 <= disp <= end <= self.nbytes:
            self.put(disp, buffer)
        else:
            memory[disp:end] = buffer
        with self._lock:
            if memory is None or self._under_way:
                self._flush()
                self._under_way = False
            else:
                self._win.Sync()  # as a flush does for others, see _sync
            return self._swap(steps)

    @whole
    def get_and_swap(
        self, disp: int, nbytes: int, steps: Sequence[tuple[int, int, int]]
    ) -> tuple[memoryview, list[int]]:
        """Return a copy of a few bytes, and carry out a few compare_and_swap, in no order.

        Parameters
        ----------
        disp, nbytes : int
        steps : sequence of (disp, expected, desired)
            Up to ``BATCH``; see `compare_and_swap_all`.

        Notes
        -----
        RMA cost: 1 get, 1 compare_and_swap for each, 1 flush; no get where we have the memory.
        """
        if not 0 <= disp <= self.nbytes - nbytes:
            self._outside("get_and_swap", disp, nbytes)
        if self._memory is None:
            copy = memoryview(bytearray(nbytes))
            self._transfer("get_and_swap", self._win.Get, disp, copy)
        else:
            copy = memoryview(bytearray(self._memory[disp : disp + nbytes]))
        with self._lock:
            return copy, self._swap(steps)

    def _swap(self, steps: Sequence[tuple[int, int, int]]) -> list[int]:
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

        What was complete before a word was written is there for whoever has seen it.

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
            So long we look again and again, and leave the core to others, as long as nothing has
            changed; only where we have the memory.

        Notes
        -----
        RMA cost: as ``peek``.
        """
        words = self._words
        if words is None or not seconds:
            return self.peek(*disps)
        for disp in disps:
            if disp not in self._places:
                self._outside("await_change", disp, 8)
        places = [disp >> 3 for disp in disps]
        end = time.monotonic() + seconds
        while (found := [words[place] for place in places]) == seen and time.monotonic() < end:
            os.sched_yield()
        with self._lock:
            self._sync()  # as in peek
        return found

    def put(self, disp: int, buffer: Any) -> None:
        """Write the bytes of a contiguous buffer; complete at the next flush.

        Notes
        -----
        RMA cost: 1 put for every ``PIECE_NBYTES``, with a flush each if that is more than one;
        none where we have the memory.
        """
        view = self._checked("put", disp, buffer)
        if self._memory is not None:
            self._memory[disp : disp + view.nbytes] = view
        else:
            self._transfer("put", self._win.Put, disp, view)

    def get(self, disp: int, buffer: Any) -> None:
        """Fill a contiguous writable buffer of bytes; complete at the next flush.

        Notes
        -----
        RMA cost: 1 get for every ``PIECE_NBYTES``, with a flush each if that is more than one;
        none where we have the memory.
        """
        view = self._checked("get", disp, buffer)
        if self._memory is not None:
            view[:] = self._memory[disp : disp + view.nbytes]
        else:
            self._transfer("get", self._win.Get, disp, view)

    @whole
    def read(self, disp: int, nbytes: int) -> memoryview:
        """Return a copy of a few bytes, complete at once: nothing that is read after it is older.

        Notes
        -----
        RMA cost: 1 get, 1 flush; none where we have the memory, but as ``flush``.
        """
        copy = self.copy(disp, nbytes)
        if self._memory is not None:
            with self._lock:
                self._sync()
        return copy

    @whole
    def copy(self, disp: int, nbytes: int) -> memoryview:
        """Return a copy of a few bytes, complete at once: they were there when this was called.

        Notes
        -----
        RMA cost: 1 get, 1 flush; none where we have the memory.
        """
        if not 0 <= disp <= self.nbytes - nbytes:
            self._outside("copy", disp, nbytes)
        if self._memory is not None:
            return memoryview(bytearray(self._memory[disp : disp + nbytes]))
        copy = memoryview(bytearray(nbytes))
        self._transfer("copy", self._win.Get, disp, copy)
        self.flush()
        return copy

    @whole
    def flush(self) -> None:
        """Complete, here and at the host, every call that this rank has made.

        Notes
        -----
        RMA cost: 1 flush; where we have the memory 1 sync, and a flush now and then.
        """
        with self._lock:
            if self._memory is None:
                self._flush()
            else:
                self._sync()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._slots

    def close(self) -> None:
        """End the access epoch and free the window.  Collective."""
        if self._ticker is not None:
            self._ticker.stop()
        with self._lock:
            self._slots.clear()
            self._swaps.clear()
            if self._memory is not None and self._words is not None:
                self._words.release()
                self._memory.release()
                self._words = self._memory = None
            self._win.Unlock_all()
            self._win.Free()

    def _sync(self) -> None:
        """Do as a flush does, where we have the memory."""
        if self._under_way or time.monotonic() > self._enter_s:
            self._flush()
            self._enter_s = time.monotonic() + ENTER_S
            self._under_way = False
        else:
            self._win.Sync()  # what we load and store from here on is not moved before it

    def _flush(self) -> None:
        try:
            self._win.Flush(self.host)
        except MPI.Exception as error:
            self._failed("flush", 0, error)
        self._held.clear()

    def _checked(self, verb: str, disp: int, buffer: Any) -> memoryview:
        """Return a buffer as bytes, whose place is inside the window."""
        view = memoryview(buffer)
        if view.ndim != 1 or view.format != "B":
            view = view.cast("B")
        if not 0 <= disp <= self.nbytes - view.nbytes:
            self._outside(verb, disp, view.nbytes)
        return view

    @whole
    def _transfer(self, verb: str, call: Any, disp: int, view: memoryview) -> None:
        nbytes = view.nbytes
        if nbytes > PIECE_NBYTES:
            for at in range(0, nbytes, PIECE_NBYTES):
                self._transfer(verb, call, disp + at, view[at : at + PIECE_NBYTES])
                self.flush()
                os.sched_yield()  # to whoever waits for the lock
            return
        with self._lock:
            self._held.append(view)
            try:
                call([view, nbytes, MPI.BYTE], self.host, disp)
            except MPI.Exception as error:
                self._failed(verb, disp, error)
