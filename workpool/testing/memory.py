"""The verbs of ``rma.Window`` over plain memory, with MPI's freedoms taken to the full.

What MPI leaves open, this window uses: a Put is visible to others at its flush and not before, a
Get has filled its buffer at the flush and not before (until then the buffer holds rubbish).  What
MPI forbids is an error: a buffer that changes between call and flush, a put that overlaps another
put or a get of the same origin with no flush in between.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import WindowError
from ..reduction import ufunc
from ..verbs import NEVER, Swap

LINE = 64
_ZERO = bytes(LINE)
_RUBBISH = 0xA5

#: Methods of ``Memory`` that are not called like the verb.
_METHODS: dict[Any, str] = {"put": "write", "get": "read"}

#: Verbs that are complete at the next flush only.
TRANSFERS = frozenset({"put", "get", "accumulate"})

#: One call as the scheduler sees it: the verb, then its arguments; hashable.
Op = tuple[Any, ...]


class Memory:
    """Bytes that are all zero at first, kept as a dictionary of the lines that are not.

    Parameters
    ----------
    lines : dict, optional
        Shared with the memory that it was taken from: ``write`` replaces, never alters.
    """

    def __init__(self, lines: dict[int, bytes] | None = None) -> None:
        self.lines: dict[int, bytes] = {} if lines is None else dict(lines)

    def read(self, disp: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `disp`."""
        first, last = disp // LINE, -(-(disp + nbytes) // LINE)
        joined = b"".join(map(self.lines.get, range(first, last), repeat(_ZERO)))
        return joined[disp - first * LINE :][:nbytes]

    def write(self, disp: int, content: bytes) -> None:
        """Replace the bytes from `disp`."""
        first, last = disp // LINE, -(-(disp + len(content)) // LINE)
        old = self.read(first * LINE, (last - first) * LINE)
        start = disp - first * LINE
        joined = b"".join((old[:start], content, old[start + len(content) :]))
        for i, at in enumerate(range(0, len(joined), LINE), first):
            line = joined[at : at + LINE]
            if line == _ZERO:
                self.lines.pop(i, None)
            else:
                self.lines[i] = line

    def word(self, disp: int) -> int:
        """Return the 64-bit integer at `disp`."""
        return int.from_bytes(self.read(disp, 8), sys.byteorder, signed=True)

    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int:
        """Store `desired` where `expected` stands; return what stood there."""
        found = self.word(disp)
        if found == expected:
            self.write(disp, desired.to_bytes(8, sys.byteorder, signed=True))
        return found

    def fetch_add(self, disp: int, amount: int) -> int:
        """Add to the word at `disp`; return what stood there."""
        found = self.word(disp)
        self.write(disp, (found + amount).to_bytes(8, sys.byteorder, signed=True))
        return found

    def accumulate(self, disp: int, content: bytes, dtype: str, op: str) -> None:
        """Combine numbers into the memory, element by element."""
        values = np.frombuffer(content, dtype)
        old = np.frombuffer(self.read(disp, values.nbytes), dtype)
        self.write(disp, ufunc(op)(old, values).astype(dtype).tobytes())

    def perform(self, op: Op) -> Any:
        """Carry one call out; return its answer."""
        verb, *arguments = op
        return getattr(self, _METHODS.get(str(verb), str(verb)))(*arguments)

    def key(self) -> frozenset[tuple[int, bytes]]:
        """Return something hashable that equals for equal memories."""
        return frozenset(self.lines.items())


class MemoryWindow:
    """A window whose every call is handed to a scheduler.

    Parameters
    ----------
    nbytes : int
        Size of the window.
    perform : callable, optional
        ``perform(op) -> answer``: carries one call out now, or decides what it answers.  A flush
        answers with what the gets since the last one have read.  By default calls are carried out
        at once in a memory of the window's own, puts, gets and accumulates at their flush.

    Attributes
    ----------
    memory : Memory
        What the default scheduler works on.
    """

    def __init__(self, nbytes: int, perform: Callable[[Op], Any] | None = None) -> None:
        self.nbytes = nbytes
        self.shared = True
        self.memory = Memory()
        self._perform = perform or self._perform_at_once
        self._given: list[tuple[memoryview, bytes]] = []  # buffers until the flush, and their bytes
        self._wanted: list[memoryview] = []  # buffers of gets
        self._begun: list[tuple[str, int, int]] = []  # since the flush: verb, first byte, end
        self._pending: list[Op] = []  # of the default scheduler

    def entered(self) -> bool:
        """Return that nothing comes in the middle of a call."""
        return False

    def load(self, disp: int) -> int:
        """Read a CAS word."""
        return self.compare_and_swap(disp, NEVER, NEVER)

    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int:
        """Store `desired` where `expected` stands; return what stood there."""
        self._check(disp, 8, 8)
        return int(self._perform(("compare_and_swap", disp, expected, desired)))

    def compare_and_swap_all(self, steps: Sequence[Swap]) -> list[int]:
        """Carry out many compare_and_swap: each atomic by itself, in whatever order.

        What was begun before is complete, too, at the end and not before.
        """
        for disp, _, _ in steps:
            self._check(disp, 8, 8)
        found = list(self._perform(("compare_and_swap_all", *steps)))
        if self._begun:
            self.flush()
        return found

    def put_and_swap(self, disp: int, buffer: bytes, steps: Sequence[Swap]) -> list[int]:
        """Write bytes, complete that, and then carry out many compare_and_swap."""
        self.put(disp, buffer)
        self.flush()
        return self.compare_and_swap_all(steps)

    def get_and_swap(
        self, disp: int, nbytes: int, steps: Sequence[Swap]
    ) -> tuple[memoryview, list[int]]:
        """Return a copy of bytes, read at any time until then, and carry out the steps."""
        copy = memoryview(bytearray(nbytes))
        self.get(disp, copy)
        return copy, self.compare_and_swap_all(steps)

    def fetch_add(self, disp: int, amount: int) -> int:
        """Add to a counter word; return what stood there."""
        self._check(disp, 8, 8)
        return int(self._perform(("fetch_add", disp, amount)))

    def peek(self, *disps: int) -> list[int]:
        """Return CAS words, each as it was at some moment."""
        found = memoryview(array("q", bytes(8 * len(disps))))
        for i, disp in enumerate(disps):
            self.get(disp, found[i : i + 1])
        self.flush()
        return found.tolist()

    def await_change(self, seen: Sequence[int], *disps: int, seconds: float) -> list[int]:
        """Return what `peek` does: how long it takes is the scheduler's to say."""
        return self.peek(*disps)

    def put(self, disp: int, buffer: Any, buffered: bool = False) -> None:
        """Write bytes; visible to others at the next flush."""
        view = _bytes(buffer)
        self._check(disp, view.nbytes)
        self._begin("put", disp, view.nbytes)
        content = bytes(view)
        if not buffered:
            self._given.append((view, content))
        self._perform(("put", disp, content))

    def get(self, disp: int, buffer: Any) -> None:
        """Fill a buffer; rubbish until the next flush."""
        view = _bytes(buffer)
        self._check(disp, view.nbytes)
        self._begin("get", disp, view.nbytes)
        self._want(disp, view)

    def copy(self, disp: int, nbytes: int) -> memoryview:
        """Return a copy of bytes; complete at once, with all that was put and got before."""
        copy = memoryview(bytearray(nbytes))
        self.get(disp, copy)
        self.flush()
        return copy

    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None:
        """Combine numbers into the window; visible to others at the next flush."""
        self._check(disp, values.nbytes, values.itemsize)
        self._begin("accumulate", disp, values.nbytes)
        view = _bytes(values)
        content = bytes(view)
        self._given.append((view, content))
        self._perform(("accumulate", disp, content, values.dtype.str, op))

    def get_numbers(self, disp: int, values: NDArray[Any]) -> None:
        """Fill an array of numbers that may be accumulated to; rubbish until the next flush."""
        self._check(disp, values.nbytes, values.itemsize)
        self._begin("accumulate", disp, values.nbytes)  # which it is, with an operation of its own
        self._want(disp, _bytes(values))

    def flush(self) -> None:
        """Complete every call made before."""
        for view, content in self._given:
            if bytes(view) != content:
                raise WindowError("a buffer was changed between its put or get and the flush")
        self._given.clear()
        self._begun.clear()
        for view, content in zip(self._wanted, self._perform(("flush",)), strict=True):
            view[:] = content
        self._wanted.clear()

    def _check(self, disp: int, nbytes: int, aligned: int = 1) -> None:
        if disp % aligned or not 0 <= disp <= self.nbytes - nbytes:
            raise WindowError(f"{nbytes} bytes at {disp}: outside the window, or not aligned")

    def _want(self, disp: int, view: memoryview) -> None:
        rubbish = bytes([_RUBBISH]) * view.nbytes
        view[:] = rubbish
        self._given.append((view, rubbish))
        self._wanted.append(view)
        self._perform(("get", disp, view.nbytes))

    def _begin(self, verb: str, disp: int, nbytes: int) -> None:
        for other, start, end in self._begun:
            if verb == other != "put":
                continue  # gets share what they read, accumulates are atomic
            if max(start, disp) < min(end, disp + nbytes):
                raise WindowError(
                    f"{verb} of {nbytes} bytes at {disp} overlaps a {other} at {start} that no "
                    "flush has completed: MPI leaves the outcome open"
                )
        self._begun.append((verb, disp, disp + nbytes))

    def _perform_at_once(self, op: Op) -> Any:
        verb, *arguments = op
        if verb in TRANSFERS:
            self._pending.append(op)
            return None
        if verb == "compare_and_swap_all":
            return [self.memory.compare_and_swap(*step) for step in arguments]
        if verb == "flush":
            answers = [self.memory.perform(pending) for pending in self._pending]
            self._pending.clear()
            return [answer for answer in answers if answer is not None]
        return self.memory.perform(op)


def _bytes(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    return view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")
