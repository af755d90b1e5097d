"""Room for what does not fit into a record: extents inside the window, by plain first fit.

Each member hands out one *region* of the arena by itself, so reserving and releasing touch no
remote memory, two members can never be given the same bytes, and a dead member takes nothing with
it but its own region.  An extent is in use as long as the row that names it; what is larger than a
region travels in pieces.

Prior art: first fit with coalescing of holes, D. E. Knuth, The Art of Computer Programming,
volume 1, section 2.5.
"""

from __future__ import annotations

from bisect import bisect_right

from . import verbs
from .errors import ProtocolError
from .layout import LINE_NBYTES, Extent
from .serializer import Encoded, segments


def in_lines(nbytes: int) -> int:
    """Return a number of bytes, rounded up to whole cache lines."""
    return -(-nbytes // LINE_NBYTES) * LINE_NBYTES


#: Most bytes of a piece of what is larger than a region: a few of them fit into a cache, and to ask
#: for one takes a hundredth of what copying it takes.
PIECE_NBYTES = 1 << 22

#: So many bytes of a region are used again before others are touched, as far as whoever hands them
#: out can wait for a moment: what is used again and again is in some cache, and what has never been
#: used costs 2 us for each page.
WARM_NBYTES = 1 << 23


def pair_nbytes(room_nbytes: int) -> int:
    """Return the size of two pieces that have room in so many bytes."""
    return 2 * min(PIECE_NBYTES, room_nbytes // 2 // LINE_NBYTES * LINE_NBYTES)


def piece_of(pair: Extent, position: int, total_nbytes: int) -> Extent:
    """Return where the piece of a stream that begins at a position comes, in room for two.

    Where the last one but one was: the last one is read while this one is written.
    """
    nbytes = pair.nbytes // 2
    offset = pair.offset + position // nbytes % 2 * nbytes
    return Extent(offset, min(nbytes, total_nbytes - position))


class Region:
    """Hands out extents of one stretch of the window.

    Knows bytes, not tasks, and does no RMA.

    Parameters
    ----------
    stretch : Extent
        What there is to hand out; begins on a cache line.
    """

    def __init__(self, stretch: Extent) -> None:
        self.stretch = stretch
        self._holes = [(stretch.offset, stretch.end)]  # in order, never adjacent
        self._free_nbytes = stretch.nbytes

    @property
    def free_nbytes(self) -> int:
        """Bytes in all holes together."""
        return self._free_nbytes

    @property
    def used_nbytes(self) -> int:
        """Bytes that are handed out."""
        return self.stretch.nbytes - self._free_nbytes

    def reserve(self, nbytes: int) -> Extent | None:
        """Return an extent of at least `nbytes`, or None while there is no hole so large.

        Notes
        -----
        Cost: linear in the number of holes.
        """
        needed = in_lines(max(1, nbytes))
        if needed > self._free_nbytes:
            return None
        for i, (start, end) in enumerate(self._holes):
            if end - start >= needed:
                # First: once the hole is changed nothing may fail, as calls may on a full stack.
                found = Extent(start, nbytes)
                if end - start == needed:
                    del self._holes[i]
                else:
                    self._holes[i] = start + needed, end
                self._free_nbytes -= needed
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
        _, before = holes[first - 1] if first else (0, self.stretch.offset)
        after, _ = holes[first] if first < len(holes) else (self.stretch.end, 0)
        if before > start or end > after:
            raise ProtocolError(f"release of {extent}, which is not reserved in {self.stretch}")
        if first and before == start:
            first -= 1
            start = holes[first][0]
        if last < len(holes) and end == after:
            end = holes[last][1]
            last += 1
        # By one step, in whose midst no signal's handler comes that raises; and sooner too many
        # bytes counted as free than too few.
        self._free_nbytes += nbytes
        holes[first:last] = [(start, end)]


def write(
    window: verbs.Window,
    offset: int,
    encoded: Encoded,
    position: int = 0,
    nbytes: int | None = None,
) -> None:
    """Put an encoding into a window, or a stretch of it; complete when this returns.

    Parameters
    ----------
    window : verbs.Window
    offset : int
        Displacement of the first byte.
    encoded : bytes or Packed
    position, nbytes : int
        Where in the encoding the stretch begins, and its size; by default all of the encoding.

    Notes
    -----
    RMA cost: 1 put for each segment that the stretch touches, 1 flush.
    """
    if nbytes is None:
        for segment in segments(encoded):
            window.put(offset, segment)
            offset += len(segment)
    else:
        end, start = position + nbytes, 0
        for segment in segments(encoded):
            first, last = max(position, start), min(end, start + len(segment))
            if first < last:
                part = memoryview(segment)[first - start : last - start]
                window.put(offset + first - position, part)
            start += len(segment)
    window.flush()  # the buffers belong to MPI until now; and whoever is told must see them
