"""Memory of this process, whose pages the system gives when they are first touched."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from mmap import PAGESIZE
from typing import Any

from ..lazy import np
from ..whole import uncut

#: Memory of at least this size is not zeroed before something is received in it: up to there, that
#: takes a few microseconds.
LONG_NBYTES = 1 << 16

#: The same as long as NumPy is not imported, which takes 60,000, and many programs do without: more
#: than a turn in a map of numbers brings.
LONG_WITHOUT_NBYTES = 3 << 18

#: How long it may take until another thread has its block: then all are given back.
CLEAR_S = 0.1

#: Blocks up to this size come from the heap, of whose end twice as much may stay free.
KEPT_NBYTES = (1 << 24) - (1 << 16)

_LINE_NBYTES = 64

_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14: others refuse it, and nothing is lost

_libc = ctypes.CDLL(None)
_mincore, _madvise = _libc.mincore, _libc.madvise
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


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
        return spares.take(nbytes)
    except (ImportError, OSError):  # no open files, or no memory, left to import NumPy
        return memoryview(bytearray(nbytes))


class _Use(weakref.ref[Any]):
    """Of a block, by the array that gives its memory to views: it ends with the last of them.

    The garbage collector does not look into arrays.  Of what it knows it would call us before the
    finalizers of objects that still have views, and may keep them.
    """

    __slots__ = ("block",)
    block: memoryview


class Spares:
    """Blocks of memory that are used again: fresh pages take longer than what is written to them.

    All of them, in use or free, are bounded: where many are in use, what comes then is left to
    malloc, which has it back when its last view ends.  Thread-safe: who finds another thread here,
    or has come from the midst of these very methods, does without.

    Attributes
    ----------
    most_nbytes : int
        Of all blocks.
    """

    def __init__(self) -> None:
        self.most_nbytes = 0
        self._nbytes = 0  # of all blocks
        self._free: dict[int, list[memoryview]] = {}  # by size; what is freed last comes last
        self._used: dict[int, _Use] = {}
        # Views end anywhere.  This is filled by no function of Python's, in which the handler of a
        # signal might raise where nobody hears it.
        self._ended: deque[_Use] = deque()
        self._lock = threading.Lock()

    @uncut
    def take(self, nbytes: int) -> memoryview:
        """Return memory to write so many bytes in, on a cache line, and with any content.

        Notes
        -----
        Cost: 2 us where it was used before.
        """
        step = 1 << nbytes.bit_length() - 6  # sizes that hardly differ are one
        size = -(-nbytes // step) * step
        if size > self.most_nbytes or not self._lock.acquire(blocking=False):
            return _fresh(nbytes)
        try:
            block = self._spare(size)
            if block is None:
                return _fresh(nbytes)
            giver = np.frombuffer(block, np.uint8)  # views of the block itself would keep that
            use = _Use(giver, self._ended.append)
            use.block = block
            self._used[id(use)] = use
            return giver.data[:nbytes]
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Give back what is free, and leave to malloc what is in use."""
        if self._lock.acquire(timeout=CLEAR_S):  # in vain for a finalizer, in the midst of `take`
            had, self._nbytes = self._nbytes, 0
            self._used.clear()
            self._ended.clear()
            self._free.clear()
            self._lock.release()
            if had and hasattr(_libc, "malloc_trim"):  # glibc's
                _libc.malloc_trim(0)  # else malloc keeps what lies amidst of others

    def _spare(self, size: int) -> memoryview | None:
        """Return a block of this size, one more if we may have it."""
        free = self._free
        while self._ended:
            use = self._ended.popleft()
            if self._used.pop(id(use), None) is not None:
                block = use.block
                blocks = free.pop(len(block), [])
                blocks.append(block)
                free[len(block)] = blocks
        if found := free.get(size):
            return found.pop()
        while self._nbytes + size > self.most_nbytes and free:
            oldest, blocks = next(iter(free.items()))
            if blocks:
                blocks.pop()
                self._nbytes -= oldest
            else:
                del free[oldest]
        if self._nbytes + size > self.most_nbytes:
            return None
        block = _fresh(size)
        self._nbytes += size
        return block


spares = Spares()


def _fresh(nbytes: int) -> memoryview:
    """Return a block that begins on a cache line."""
    memory = np.empty(nbytes + _LINE_NBYTES, np.uint8)
    address = memory.ctypes.data
    if nbytes < KEPT_NBYTES:  # larger ones have large pages, and would leave the caches meanwhile
        populate(address, nbytes)
    start = -address % _LINE_NBYTES
    return memory.data[start : start + nbytes]


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
