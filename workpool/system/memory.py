"""Memory in which this process receives something large."""

from __future__ import annotations

import sys
from contextlib import suppress

from ..extents import LINE_NBYTES
from ..lazy import np
from .pages import Mapped, populate
from .spares import spares

#: Memory of at least this size is not zeroed before something is received in it: up to there, that
#: takes a few microseconds.
LONG_NBYTES = 1 << 16

#: The same as long as NumPy is not imported: that takes 60 ms, and many programs do without it.
#: More than what a turn in a map of numbers brings.
LONG_WITHOUT_NBYTES = 3 << 18

#: Blocks up to this size come from the heap, of whose end twice as much may stay free.
KEPT_NBYTES = (1 << 24) - (1 << 16)


def keep_freed(most_nbytes: int) -> None:
    """Have this process keep what arrays leave behind, for those that come next.

    As long as no large block was freed, malloc gives back to the system whatever is free at the end
    of the heap, and the pages of what is received next cost faults: for 64 KiB 13 us, where copying
    them takes 4.  It learns from the first one that is freed, as in any program that has once freed
    an array of that size.  Where ``MALLOC_TRIM_THRESHOLD_`` is set, this changes nothing.

    References: mallopt(3), M_MMAP_THRESHOLD.

    Parameters
    ----------
    most_nbytes : int
        Of all blocks in which something large is received; see `Spares`.
    """
    spares.most_nbytes = most_nbytes
    with suppress(MemoryError):
        bytes(KEPT_NBYTES)  # which the system gives without a page that is touched


def empty(nbytes: int) -> memoryview:
    """Return memory to write bytes in: if it is long, on a cache line, and with any content."""
    if nbytes < (LONG_NBYTES if "numpy" in sys.modules else LONG_WITHOUT_NBYTES):
        return memoryview(bytearray(nbytes))
    try:
        return spares.take(nbytes) or _fresh(nbytes)
    except (ImportError, OSError):  # no open files, or no memory, left to import NumPy
        return memoryview(bytearray(nbytes))


def _fresh(nbytes: int) -> memoryview:
    """Return a block that begins on a cache line."""
    if nbytes >= KEPT_NBYTES:
        mapped = Mapped(nbytes)
        mapped.populate(0, nbytes)
        return mapped.bytes
    memory = np.empty(nbytes + LINE_NBYTES, np.uint8)
    address = memory.ctypes.data
    populate(address, nbytes)
    start = -address % LINE_NBYTES
    return memory.data[start : start + nbytes]
