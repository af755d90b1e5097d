"""Bytes that are handed out of a region and come back, by plain first fit.

A `Region` knows nothing of what the bytes are: of the arena in the window, or of this process's own
memory.

Prior art: first fit with coalescing of holes, D. E. Knuth, The Art of Computer Programming,
volume 1, section 2.5.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from .errors import ProtocolError

LINE_NBYTES = 64  # one cache line, so that two busy words never share one


class Extent(NamedTuple):
    """Some bytes of many: where they begin, and how many they are."""

    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """Where the bytes after them begin."""
        return self.offset + self.nbytes


def in_lines(nbytes: int) -> int:
    """Return a number of bytes, rounded up to whole cache lines."""
    return -(-nbytes // LINE_NBYTES) * LINE_NBYTES


class Region:
    """Hands out extents of a larger one.  Does no RMA, and touches none of the bytes.

    Parameters
    ----------
    whole : Extent
        What there is to hand out; begins on a cache line.

    Attributes
    ----------
    nbytes : int
        Of all of it.
    free_nbytes : int
        In all holes together.
    """

    def __init__(self, whole: Extent) -> None:
        self.nbytes = whole.nbytes
        self._whole = whole
        self._holes = [(whole.offset, whole.end)]  # in order, never adjacent
        self.free_nbytes = whole.nbytes

    @property
    def used_nbytes(self) -> int:
        """Bytes that are handed out."""
        return self.nbytes - self.free_nbytes

    def reserve(self, nbytes: int) -> Extent | None:
        """Return an extent of `nbytes`, on cache lines of its own; None while no hole is so large.

        Notes
        -----
        Cost: linear in the number of holes.
        """
        needed = in_lines(max(1, nbytes))
        if needed > self.free_nbytes:
            return None
        for i, (start, end) in enumerate(self._holes):
            if end - start >= needed:
                # First: once the hole is changed nothing may fail, as calls may on a full stack.
                found = Extent(start, nbytes)
                if end - start == needed:
                    del self._holes[i]
                else:
                    self._holes[i] = start + needed, end
                self.free_nbytes -= needed
                return found
        return None

    def release(self, extent: Extent) -> None:
        """Take an extent back.

        Raises
        ------
        ProtocolError
            If any of it was not handed out.
        """
        start, nbytes = extent.offset, in_lines(max(1, extent.nbytes))
        end = start + nbytes
        holes = self._holes
        first = last = bisect_right(holes, (start, end))  # of the holes that become one with it
        _, before = holes[first - 1] if first else (0, self._whole.offset)
        after, _ = holes[first] if first < len(holes) else (self._whole.end, 0)
        if before > start or end > after:
            raise ProtocolError(f"release of {extent}, which is not reserved in {self._whole}")
        if first and before == start:
            first -= 1
            start = holes[first][0]
        if last < len(holes) and end == after:
            end = holes[last][1]
            last += 1
        # By one step of the interpreter, which no signal's handler cuts in two.  One that raises
        # before it leaves too many bytes counted as free, which is better than too few.
        self.free_nbytes += nbytes
        holes[first:last] = [(start, end)]
