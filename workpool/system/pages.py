"""Pages of this process: the system gives each when it is first touched.

Most of the time in which a large array is received goes there: on the machine of the benchmarks
0.55 ms for a megabyte that takes 0.04 to copy.  In large pages, of 2 MiB in place of 4 KiB, it is
0.12 ms as a rule.  But a hypervisor may take back what has been free for a while (free page
reporting): then a large page takes four times as long as the small ones in its place.  So large
ones are asked for until one takes that long.

References: Linux, Documentation/admin-guide/mm/transhuge.rst; madvise(2).
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from time import thread_time
from typing import ClassVar

from ..lazy import np

#: Most machines have large pages of this size, or none.
LARGE_PAGE_NBYTES = 1 << 21

#: About the seconds that the small pages in the place of a large one take.
LARGE_PAGE_S = 1e-3

_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14: others refuse it, and nothing is lost

_libc = ctypes.CDLL(None)
_mincore, _madvise = _libc.mincore, _libc.madvise
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def populate(address: int, nbytes: int) -> None:
    """Have all pages inside of a block that is about to be written, if it lacks the last of them.

    Asked for together they take two thirds of the time that they take one by one, as each is
    touched.

    Parameters
    ----------
    address, nbytes : int
        Of the block.

    Notes
    -----
    Cost: 2 us where they are there.
    """
    size = mmap.PAGESIZE
    first, end = -(-address // size) * size, (address + nbytes) // size * size
    if first < end and not is_there(end - size):
        _madvise(first, end - first, _POPULATE_WRITE)


def is_there(page: int) -> bool:
    """Return whether the page that begins at an address is in memory, or not one of ours."""
    found = ctypes.create_string_buffer(1)
    return bool(_mincore(page, mmap.PAGESIZE, found)) or found.raw != b"\0"


class Mapped:
    """Fresh memory, which goes back to the system with the last view of it.

    Parameters
    ----------
    nbytes : int

    Raises
    ------
    OSError
        If the system has none.

    Attributes
    ----------
    bytes : memoryview
        Begins where a large page would.
    large_pages : bool
        Whether the next ones shall have large pages.
    """

    large_pages: ClassVar[bool] = hasattr(mmap, "MADV_HUGEPAGE")

    def __init__(self, nbytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, nbytes + LARGE_PAGE_NBYTES, flags)
        address: int = np.frombuffer(self._mapping, np.uint8).ctypes.data
        start = -address % LARGE_PAGE_NBYTES
        self._address = address + start
        self.bytes = memoryview(self._mapping)[start : start + nbytes]
        if self.large_pages:
            self._advise("MADV_HUGEPAGE")

    def populate(self, start: int, nbytes: int) -> None:
        """Have the pages of a block that is about to be written, as `populate` does.

        Notes
        -----
        Cost: 2 us for each large page where they are there.
        """
        at, end = self._address + start, self._address + start + nbytes
        while self.large_pages and at < end:
            following = min(end, (at // LARGE_PAGE_NBYTES + 1) * LARGE_PAGE_NBYTES)
            begun_s = thread_time()  # without others that run meanwhile
            populate(at, following - at)
            if thread_time() - begun_s > LARGE_PAGE_S:
                Mapped.large_pages = False
                self._advise("MADV_NOHUGEPAGE")
            at = following
        populate(at, end - at)

    def _advise(self, how: str) -> None:
        with suppress(AttributeError, OSError):  # a system without
            self._mapping.madvise(getattr(mmap, how))
