"""Room for what does not fit into a record: extents inside the window.

Each member hands out one *region* of the arena by itself, so reserving and releasing touch no
remote memory, two members can never be given the same bytes, and a dead member takes nothing with
it but its own region.  An extent is in use as long as the row that names it; what is larger than a
region travels in pieces.
"""

from __future__ import annotations

from . import verbs
from .extents import LINE_NBYTES, Extent
from .serializer import Encoded, segments

#: Most bytes of a piece of what is larger than a region: a few of them fit into a cache, and to ask
#: for one takes a hundredth of what copying it takes.
PIECE_NBYTES = 1 << 22


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


def put(window: verbs.Window, offset: int, encoded: Encoded, buffered: bool = False) -> None:
    """Put an encoding into a window; complete at the next flush.

    Parameters
    ----------
    window : verbs.Window
    offset : int
        Displacement of the first byte.
    encoded : bytes or Packed
    buffered : bool
        Whether its buffers may change before that flush.

    Notes
    -----
    RMA cost: 1 put for each segment.
    """
    for segment in segments(encoded):
        window.put(offset, segment, buffered)
        offset += len(segment)


def write(
    window: verbs.Window,
    offset: int,
    encoded: Encoded,
    position: int,
    nbytes: int,
) -> None:
    """Put a part of an encoding into a window; complete when this returns.

    Parameters
    ----------
    window, offset, encoded
        As for `put`.
    position, nbytes : int
        Where in the encoding the part begins, and its size.

    Notes
    -----
    RMA cost: 1 put for each segment that the part touches, 1 flush.
    """
    end, start = position + nbytes, 0
    for segment in segments(encoded):
        first, last = max(position, start), min(end, start + len(segment))
        if first < last:
            part = memoryview(segment)[first - start : last - start]
            window.put(offset + first - position, part)
        start += len(segment)
    window.flush()  # the buffers belong to MPI until now; and whoever is told must see them
