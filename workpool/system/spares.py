"""Memory that is used again: fresh pages take longer than what is written to them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import defaultdict, deque
from itertools import chain
from typing import Any, NamedTuple

from ..extents import Extent, Region
from ..lazy import np
from ..whole import uncut
from .pages import LARGE_PAGE_NBYTES, Mapped

#: What up to half as large blocks are cut from; larger ones have slabs of their own.
SLAB_NBYTES = 1 << 24

#: What the encoding of an array has besides its elements, and some more.  A copy of the array gets
#: a block of the same size: blocks of one size do not serve another, and where all room is in use,
#: each would be cut anew from those of the other.
HEAD_NBYTES = 512

#: How long it may take until another thread has its block: then all are given back.
CLEAR_S = 0.1

#: What is free, and was not in use for so long, or up to twice as long, is given back.
EASE_S = 5.0


class _Slab:
    """Memory that blocks are cut from."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.mapped = Mapped(nbytes)
        self.region = Region(Extent(0, nbytes))
        self.used = True  # since the last look

    def cut(self, nbytes: int) -> _Block | None:
        """Return a block; None if there is no room, or much more than it should keep."""
        if self.nbytes > max(SLAB_NBYTES, 2 * nbytes):
            return None
        extent = self.region.reserve(nbytes)
        if extent is None:
            return None
        self.mapped.populate(*extent)
        return _Block(self, extent, self.mapped.bytes[extent.offset : extent.end])


class _Block(NamedTuple):
    """A part of a slab, on cache lines of its own."""

    slab: _Slab
    extent: Extent
    memory: memoryview


class _Use(weakref.ref[Any]):
    """The use of a block: a weak reference to the array that gives out its memory.

    All views are of that array, so it ends with the last of them.  It is an array because the
    garbage collector does not look into those.  Of an object that it knows it would tell us before
    it calls the finalizers of objects that still have views, and may go on living with them.
    """

    __slots__ = ("block",)
    block: _Block


class Spares:
    """Blocks of memory, of which those that nobody has any more are used again.

    What the slabs take of the system is bounded: where so much is in use, what comes then is left
    to others.  Thread-safe: who finds another thread here, or has come from the midst of these very
    methods, does without.

    Attributes
    ----------
    most_nbytes : int
        Of all slabs.
    """

    def __init__(self) -> None:
        self.most_nbytes = 0
        self._slabs: list[_Slab] = []
        self._free: defaultdict[int, list[_Block]] = defaultdict(list)  # by size
        self._used: dict[int, _Use] = {}
        self._refused = sys.maxsize  # the least size that was, with none come back since
        self._eased_s = 0.0
        # Views end anywhere.  This is filled by no function of Python's, in which the handler of a
        # signal might raise where nobody hears it.
        self._ended: deque[_Use] = deque()
        self._lock = threading.Lock()

    @uncut
    def take(self, nbytes: int) -> memoryview | None:
        """Return memory to write so many bytes in, on a cache line, and with any content.

        Returns
        -------
        memoryview or None
            None where there would be too many.

        Raises
        ------
        OSError
            If the system has no more memory.

        Notes
        -----
        Cost: 2 us where it was used before.
        """
        with_head = nbytes + HEAD_NBYTES
        step = 1 << with_head.bit_length() - 6  # sizes that hardly differ are one
        size = min(-(-with_head // step) * step, self.most_nbytes)
        if size < nbytes or not self._lock.acquire(blocking=False):
            return None
        try:
            if self._ended:
                self._take_back()
            free = self._free.get(size)
            block = free.pop() if free else None
            if block is None and size < self._refused:
                block = self._cut(size)
            if block is None:
                self._refused = size
                return None
            giver = np.frombuffer(block.memory, np.uint8)  # its views tell us when they end
            use = _Use(giver, self._ended.append)
            use.block = block
            self._used[id(use)] = use
            return giver.data[:nbytes]
        finally:
            self._lock.release()

    @uncut
    def ease(self, now_s: float) -> None:
        """Give back what was not in use for a while; to be called now and then.

        Parameters
        ----------
        now_s : float
            The time, of a clock that goes on.

        Notes
        -----
        Cost: 0.1 us; each `EASE_S` 0.1 us for each free block, and what the system takes.
        """
        if now_s - self._eased_s < EASE_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._eased_s = now_s
            self._take_back()
            for blocks in self._free.values():
                for block in blocks:
                    if not block.slab.used:
                        block.slab.region.release(block.extent)
                blocks[:] = [block for block in blocks if block.slab.used]
            self._slabs = [slab for slab in self._slabs if slab.used or slab.region.used_nbytes]
            for slab in self._slabs:
                slab.used = False
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Give back what is free now, and what is in use as soon as its slab is not."""
        if self._lock.acquire(timeout=CLEAR_S):  # in vain for a finalizer, in the midst of `take`
            self._slabs.clear()
            self._free.clear()
            self._used.clear()
            self._ended.clear()
            self._refused = sys.maxsize
            self._lock.release()

    def _take_back(self) -> None:
        """Have the blocks of which the last view has ended."""
        while self._ended:
            use = self._ended.popleft()
            if self._used.pop(id(use), None) is not None:  # else there was no memory to note it
                self._free[use.block.extent.nbytes].append(use.block)
                use.block.slab.used = True
                self._refused = sys.maxsize

    def _cut(self, size: int) -> _Block | None:
        """Return one more block, if there may be one."""
        block = self._cut_slabs(size)
        if block is None and self._free:
            for free in chain.from_iterable(self._free.values()):
                free.slab.region.release(free.extent)
            self._free.clear()
            block = self._cut_slabs(size)
        if block is None and self._have_slab(size):
            block = self._slabs[-1].cut(size)
        return block

    def _cut_slabs(self, size: int) -> _Block | None:
        # The last slab has room as long as nothing comes back.
        return next(filter(None, (slab.cut(size) for slab in reversed(self._slabs))), None)

    def _have_slab(self, size: int) -> bool:
        """Have one more slab, in place of empty ones if need be; return whether there may be."""
        nbytes = SLAB_NBYTES
        if size > SLAB_NBYTES // 2:
            nbytes = -(-size // LARGE_PAGE_NBYTES) * LARGE_PAGE_NBYTES
        left = self.most_nbytes - nbytes - sum(slab.nbytes for slab in self._slabs)
        for slab in tuple(self._slabs):
            if left < 0 and not slab.region.used_nbytes:
                self._slabs.remove(slab)
                left += slab.nbytes
        if left >= 0:
            self._slabs.append(_Slab(nbytes))
        return left >= 0


spares = Spares()
