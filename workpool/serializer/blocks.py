"""Many items as blocks that can be fetched and restored a few at a time.

    head       items, items in a block, blocks, rests, whether an item is a tuple of arguments,
               whether each block is in one pickle with the function, and whether the function
               holds items
    offsets    where the function, each block and each rest begin, and where the last one ends
    function   its pickle, or nothing when it travels as code; with the items that it holds
    blocks     the pickle of a slice of the items each, or of the function and them
    rests      what items repeat, see `repeats`; there is a number of one with each item then

A ``range`` is one block, whatever its length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

from ..clock import monotonic
from ..errors import SerializationError
from .common import in_common, with_places, without_places
from .frames import Buffer, Packed, as_bytes, unpack
from .reach import Reach, Torn
from .references import Refer
from .repeats import Original
from .values import encode

BLOCK: Final = 256
"""Items in a block, if they are small."""

BLOCK_NBYTES: Final = 1 << 16
"""No block of several items takes more: whoever wants one of them fetches and restores them all."""

WITHIN_NBYTES: Final = 1 << 14
"""Smaller buffers are in the pickle of a block, with those of other items."""

LONG_S: Final = 50e-6
"""A block that takes longer to restore is not restored again for each chunk of its items.

The last chunks of a map are as short as that.
"""

_HEAD: Final = struct.Struct("<QQQQQ")
_SEVERAL: Final = 1
_EACH: Final = 2
_IN_COMMON: Final = 4


def encode_blocks(
    items: Sequence[Any],
    several: bool,
    function: object = None,
    *,
    beside: Reach | None = None,
    refer: Refer | None = None,
    of_class: bool = False,
    each: Callable[..., Any] | None = None,
    rests: Sequence[bytes] = (),
    size: int = BLOCK,
    large: bool = False,
) -> bytes | None:
    """Encode items, and what is called with them unless it travels as code.

    Parameters
    ----------
    items : range or list
    several : bool
        Whether each item is a tuple of arguments, not the only argument.
    function : object, optional
        What comes once for all of them.
    beside : Reach, optional
        Of the code that travels beside the items: that of what is called with them, or of its
        class.
    refer : Refer, optional
        How items refer to that code, as for `encode`.
    of_class : bool
        Whether `function` is what is called, and refers to that code as they do.
    each : callable, optional
        What is called with them, to be in one pickle with each block; without `beside`.
    rests : sequence of bytes
        Of `encode_rests`, if items are what `repeated` has made of them.
    size : int
        Items in a block.
    large : bool
        Whether single items may be large, and hold large buffers.

    Returns
    -------
    bytes or None
        None for blocks that are too large, and for items that hold large buffers, unless they may.

    Raises
    ------
    UnknownDefinition
        As for `encode`.
    Torn
        The items have something in common with the function that must be one: see `each`.
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 0.02 us for a number.
    """
    if isinstance(items, range):
        size = max(1, len(items))
    elif beside is not None and beside.copied:
        # Not by `check`: it takes twice as long as all the rest.
        arguments: Iterable[object] = chain.from_iterable(items) if several else items
        if not beside.copied.isdisjoint(map(id, arguments)):
            raise Torn
    parts, shared = [b""], list[Any]()
    if function is not None:
        if not isinstance(items, range) and (shared := in_common(function, items)):
            function, items = (function, shared), with_places(items, shared)
        own = Reach()
        known = (refer, beside) if of_class else (None, None)
        parts = [as_bytes(encode(function, refer=known[0], reach=own, beside=known[1]))]
        beside = own if beside is None else beside.joined(own)
    for at in range(0, len(items), size):
        block: object = items[at : at + size]
        content = block if each is None else (each, block)
        encoded = encode(content, refer=refer, beside=beside, within_nbytes=WITHIN_NBYTES)
        if len(encoded) > BLOCK_NBYTES and not (large and size == 1):
            return None
        if isinstance(encoded, Packed) and not large:
            return None
        parts.append(as_bytes(encoded))
    blocks = len(parts) - 1
    parts += rests
    offsets = [*accumulate(map(len, parts), initial=_HEAD.size + 8 * (len(parts) + 1))]
    flags = several * _SEVERAL + (each is not None) * _EACH + bool(shared) * _IN_COMMON
    head = _HEAD.pack(len(items), size, blocks, len(rests), flags)
    return b"".join([head, struct.pack(f"<{len(offsets)}Q", *offsets), *parts])


class Blocks:
    """Items as a worker sees them: the beginning of the encoding, and what it fetches of the rest.

    Parameters
    ----------
    beginning : buffer
        The first `LEAST` bytes of the encoding, or all if there are fewer.
    fetch : callable
        ``fetch(start, stop)`` returns these bytes of the encoding; may be replaced by another.

    Attributes
    ----------
    total : int
        Items.
    several : bool
        Whether each item is a tuple of arguments.
    has_function : bool
        Whether something that is called, or folds, comes with the items.
    repeats : bool
        Whether items repeat something, so that each is a piece.
    """

    LEAST = 4096

    def __init__(self, beginning: Buffer, fetch: Callable[[int, int], Buffer]) -> None:
        self.fetch = fetch
        self._have = memoryview(beginning)
        try:
            head = _HEAD.unpack(self._part(0, _HEAD.size))
            self.total, self._size, self._blocks, self._rests, flags = head
            offsets = self._blocks + self._rests + 2
            stop = _HEAD.size + 8 * offsets
            self._offsets = struct.unpack(f"<{offsets}Q", self._part(_HEAD.size, stop))
        except (struct.error, OverflowError, MemoryError) as error:
            raise SerializationError(f"the head of encoded items is damaged: {error}") from error
        blocks, size = self._blocks, self._size
        if not size or blocks != -(-self.total // size):
            raise SerializationError(f"{blocks} blocks of {size} items are not {self.total}")
        self.several = bool(flags & _SEVERAL)
        self.repeats = self._rests > 0
        self.has_function = self._offsets[1] > self._offsets[0]
        self._each = bool(flags & _EACH)
        self._holds_items = bool(flags & _IN_COMMON)
        self._function: Any = None
        self._shared: list[Any] = []  # the items that it holds
        self._kept: tuple[int, list[Any], int] | None = None  # from where on, and with what
        self._original: tuple[int, Original] | None = None  # of the rest with that number

    def function(self) -> Any:
        """Return the function, None if it travels as code; the same one until it is forgotten."""
        if self._function is None and self.has_function:
            found = unpack(self._part(*self._offsets[:2]), "the function of a map")
            self._function, self._shared = found if self._holds_items else (found, [])
        return self._function

    def forget(self) -> None:
        """Restore the function anew when it is wanted again, and items that were restored early."""
        self._function = self._kept = None

    def end(self) -> None:
        """Say that no more items will be wanted."""
        self._original = None

    def pieces(self, wanted: range, code: int = 0) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield some of the items, with what is called with them if it came along with them.

        Each piece is restored when it is its turn: a class that came along is then what it is in
        the same pickle as the function.  Of items that repeat something each is a piece.

        Parameters
        ----------
        wanted : range
            None of them was wanted before.
        code : int
            Another number when the code that items refer to was restored anew.
        """
        for function, part in self._stretches(wanted, code):
            if self.repeats:
                for it in part:
                    yield function, [self._given(it)]
            else:
                yield function, part

    def _stretches(self, wanted: range, code: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        first, last = wanted.start // self._size, (wanted.stop - 1) // self._size
        start = self._offsets[first + 1]
        content = self._part(start, self._offsets[last + 2])
        found: list[Any] = []
        for block in range(first, last + 1):
            ends = self._offsets[block + 1] - start, self._offsets[block + 2] - start
            skip = block * self._size
            function, part, keeps = None, self._take_kept(wanted.start, code), True
            if part is not None:
                skip = wanted.start
            else:
                upto = min(skip + self._size, self.total) - 1
                began = monotonic()
                part = unpack(content[slice(*ends)], f"items {skip} to {upto} of a map")
                keeps = not self._each and monotonic() - began > LONG_S
            if self._each and isinstance(part, tuple) and len(part) == 2:
                function, part = part
            if not isinstance(part, (list, range)):
                raise SerializationError(f"block {block} is of type {type(part).__qualname__}")
            if self._holds_items:
                self.function()
                part = without_places(part, self._shared)
            if keeps and (left := part[wanted.stop - skip :]):
                self._kept = wanted.stop, left, code
            part = part[max(0, wanted.start - skip) : wanted.stop - skip]
            if self._each or first == last:
                yield function, part
            else:
                found += part
                del part  # nobody else holds them
        if found:
            yield None, found

    def _given(self, it: Any) -> Any:
        """Return an item with its rest."""
        if type(it) is not tuple or len(it) != 2 or it[0] not in range(self._rests):
            raise SerializationError("an item has no rest")
        number, item = it
        if self._original is None or self._original[0] != number:
            self._original = None  # first: what it has is no longer needed
            at = 1 + self._blocks + number
            self._original = number, Original(self._part(*self._offsets[at : at + 2]))
        return self._original[1].given(item)

    def _take_kept(self, start: int, code: int) -> list[Any] | None:
        """Return the items from one on that were restored with others before it, if there are."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        first, items, code_then = kept
        there = code_then == code and 0 <= start - first < len(items)
        return items[start - first :] if there else None

    def _part(self, start: int, stop: int) -> memoryview:
        if stop <= len(self._have):
            return self._have[start:stop]
        return memoryview(self.fetch(start, stop))
