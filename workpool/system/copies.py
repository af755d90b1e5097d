"""Copies of what a program passes on again and again: one for all, as long as it stays the same."""

from __future__ import annotations

import ctypes
from collections import deque
from itertools import groupby
from typing import Any
from weakref import ref

from ..lazy import np
from .memory import empty

#: Places of which it is remembered that there is a copy.
PLACES = 4096

#: Bytes that are compared at once, and with how many of the last contents a new one is compared.
CHUNK_NBYTES = 1 << 16
WHOLES = 4

#: After so many chunks, contents of which most chunks differ are taken for different ones.
DIFFERENT = 16

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Copies:
    """Copies that nobody writes to, as long as somebody has them.  Thread-safe.

    Tasks that wait, and that all got the same array, share one copy of it.  Copies are found by the
    address of what was copied.  That is only a hint, for the array may have changed since, or there
    may be another at its place: what counts is that the bytes are equal.
    """

    def __init__(self) -> None:
        self._known: dict[int, ref[memoryview]] = {}  # by the address of what was copied
        self._wholes: deque[ref[_Whole]] = deque(maxlen=WHOLES)

    def copy(self, content: memoryview) -> memoryview:
        """Return a copy of some bytes, read-only; one that was made before, if they are equal.

        Notes
        -----
        Cost: 2 us, and a comparison up to the first difference; then the copy.
        """
        address, nbytes = _address(content), len(content)
        known = self._known.get(address)
        found = None if known is None else known()
        if found is not None and len(found) == nbytes:
            if not _memcmp(address, _address(found), nbytes):
                return found
            del found  # first: if nobody else has it, its memory can be used for the new copy
        memory = empty(nbytes)
        memory[:] = content
        made = memory.toreadonly()
        if len(self._known) >= PLACES:
            self._known.clear()
        self._known[address] = ref(made)
        return made

    def pieces(self, content: bytes) -> list[memoryview]:
        """Return bytes in pieces; those that equal what others have in the same place are theirs.

        So the pickles of calls that have a large argument in common, of whatever type, share most
        of their memory.

        Notes
        -----
        Cost: 20 us and a comparison; a copy of what differs, in chunks.
        """
        for known in tuple(self._wholes):
            other = known()
            if other is not None:
                alike = _alike(content, other.content)
                if 2 * sum(alike) > len(alike):
                    return _cut(content, _view(other), alike)
        whole = _whole(content)
        self._wholes.append(ref(whole))
        return [_view(whole)]


copies = Copies()


def _address(content: memoryview) -> int:
    return int(np.frombuffer(content, np.uint8).ctypes.data)


#: An array of ctypes: unlike bytes it can be referred to weakly, and is there as long as a view is.
_Whole = Any


def _whole(content: bytes) -> _Whole:
    whole = (ctypes.c_char * len(content)).from_address(_address_of(content))
    whole.content = content  # type: ignore[attr-defined]  # whose memory it is
    return whole


def _view(whole: _Whole) -> memoryview:
    return memoryview(whole).cast("B").toreadonly()


def _address_of(content: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def _alike(one: bytes, other: bytes) -> list[bool]:
    """Return for each chunk that both have whether it is the same, as far as that is worth it."""
    alike: list[bool] = []
    first, second = _address_of(one), _address_of(other)
    for at in range(0, min(len(one), len(other)) - CHUNK_NBYTES + 1, CHUNK_NBYTES):
        if len(alike) == DIFFERENT and 2 * sum(alike) < DIFFERENT:
            break
        alike.append(not _memcmp(first + at, second + at, CHUNK_NBYTES))
    return alike


def _cut(content: bytes, other: memoryview, alike: list[bool]) -> list[memoryview]:
    """Return a content in pieces: parts of the other one where they are alike, else copies."""
    pieces, start = [], 0
    for same, chunks in groupby(alike):
        end = start + CHUNK_NBYTES * len([*chunks])
        pieces.append(other[start:end] if same else memoryview(content[start:end]))
        start = end
    rest = memoryview(content[start:])
    return [*pieces, rest] if len(rest) else pieces
