"""Pages of this process's memory, which the system gives when they are first touched."""

from __future__ import annotations

import ctypes
from mmap import PAGESIZE

_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14: others refuse it, and nothing is lost

_libc = ctypes.CDLL(None)
_mincore, _madvise = _libc.mincore, _libc.madvise
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def populate(address: int, nbytes: int) -> None:
    """Have all pages inside of a block that is about to be written, if it lacks the last of them.

    Asked for together they take two thirds of the time that they take one by one, as each is
    touched: 1.4 and 2.1 us on the machine of the benchmarks, where copying one takes 0.2.

    Parameters
    ----------
    address, nbytes : int
        Of the block.

    Notes
    -----
    Cost: 2 us where they are there.
    """
    first, end = -(-address // PAGESIZE) * PAGESIZE, (address + nbytes) // PAGESIZE * PAGESIZE
    there = ctypes.create_string_buffer(1)
    if first < end and not _mincore(end - PAGESIZE, PAGESIZE, there) and there.raw == b"\0":
        _madvise(first, end - first, _POPULATE_WRITE)
