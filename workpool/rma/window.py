"""The verbs of one window, carried out in MPI."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..verbs import Swap
from ..whole import inside, whole
from .mpi import MPI
from .words import Words

#: Longest piece of one Put or Get: some MPIs refuse counts of 2 GiB and more, and over a network
#: the heart would miss its beats, which wants the lock between two pieces.
PIECE_NBYTES = 1 << 26

#: Most bytes that a buffered put copies: the copy stays until a flush has completed the put.
COPIED_NBYTES = 1 << 20

#: Modules whose functions call MPI, with the lock held, and nothing of the user's.
_CALLING = tuple(
    f"{__package__}.{name}"
    for name in ("elements", "glance", "group", "own", "patient", "ticker", "window", "words")
)


class Window(Words):
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
        unified model (MPI-4.1, 12.4).
    ticker : Ticker, optional
        Started on the host, where others need it inside MPI; it ends with the window.
    """

    def entered(self) -> bool:
        """Return whether this thread is in the middle of a call into MPI.

        Then who asks is a finalizer, or a signal's handler, that has come there: a call of its own
        would wait for the lock that this very thread holds.
        """
        return self._lock.locked() and inside(sys._getframe(1), _CALLING)

    @whole
    def put_and_swap(self, disp: int, buffer: bytes, steps: Sequence[Swap]) -> list[int]:
        """Write bytes, complete that, and only then carry out a few compare_and_swap.

        Whoever sees one of the words that they store sees the bytes, and whatever was put before.

        Parameters
        ----------
        disp : int
        buffer : bytes
        steps : sequence of Swap
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
                try:
                    self._win.Sync()  # as a flush does for others, see _sync
                except MPI.Exception as error:
                    self._failed("put_and_swap", disp, error)
            return self._swap(steps)

    @whole
    def get_and_swap(
        self, disp: int, nbytes: int, steps: Sequence[Swap]
    ) -> tuple[memoryview, list[int]]:
        """Return a copy of a few bytes, and carry out a few compare_and_swap, in no order.

        Parameters
        ----------
        disp, nbytes : int
        steps : sequence of Swap
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

    def put(self, disp: int, buffer: Any, buffered: bool = False) -> None:
        """Write the bytes of a contiguous buffer; complete at the next flush.

        Parameters
        ----------
        disp : int
        buffer : buffer
        buffered : bool
            Whether the buffer may change before that: then it is copied, or the call completes if
            there is much in it.

        Notes
        -----
        RMA cost: 1 put for every ``PIECE_NBYTES``, with a flush each if that is more than one, or
        if `buffered` and not copied; none where we have the memory.
        """
        view = self._checked("put", disp, buffer)
        if self._memory is not None:
            self._memory[disp : disp + view.nbytes] = view
        else:
            copied = buffered and view.nbytes <= COPIED_NBYTES
            self._transfer("put", self._win.Put, disp, memoryview(bytes(view)) if copied else view)
            if buffered and not copied:
                self.flush()

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
    def copy(self, disp: int, nbytes: int) -> memoryview:
        """Return a copy of a few bytes that are known to be there, complete at once.

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
        RMA cost: 1 flush; where we have the memory 1 sync, and a flush now and then, unless others
        need us inside MPI.
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
        self._glance.end()
        with self._lock:
            self._slots.clear()
            self._swaps.clear()
            if self._memory is not None and self._words is not None:
                self._words.release()
                self._memory.release()
                self._words = self._memory = None
            self._win.Unlock_all()
            self._win.Free()

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
