"""The records of a row: what a descriptor, an outcome, a piece and a batch are as bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from ..errors import LayoutError
from ..extents import Extent
from .words import WORD_NBYTES

INLINE = -1  # an offset: the bytes stand in the record itself
STREAMED = -2  # an offset: the bytes come in pieces, on request
NOTHING = Extent(INLINE, 0)


class Blob(NamedTuple):
    """Bytes that many rows share, fetched once by each worker: a function, a pool's context."""

    blob_id: int  # 0 stands for no blob
    offset: int
    nbytes: int

    @property
    def extent(self) -> Extent:
        """Where they are."""
        return Extent(self.offset, self.nbytes)


NO_BLOB = Blob(0, *NOTHING)


class Items(NamedTuple):
    """What many workers share out by a counter.

    The counter is at ``base`` when the first item is handed out, at ``base + total`` or beyond when
    none is left.
    """

    counter: int  # index of the counter
    base: int
    total: int


NO_ITEMS = Items(0, 0, 0)


class Descriptor(NamedTuple):
    """What a worker must know to run one task, or several: the numbers of the record as they are.

    Flat, because a worker needs only a few of them for most tasks.
    """

    task_id: int
    kind: int
    code_id: int  # a ``Blob``
    code_offset: int
    code_nbytes: int
    context_id: int  # another
    context_offset: int
    context_nbytes: int
    offset: int  # of the payload, an ``Extent``
    nbytes: int
    tasks: int = 1  # more than one: a batch, whose payload is all of theirs joined
    counter: int = 0  # ``Items`` of a range
    base: int = 0
    total: int = 0

    @property
    def code(self) -> Blob:
        """Where the function's code is."""
        return Blob(self.code_id, self.code_offset, self.code_nbytes)

    @property
    def context(self) -> Blob:
        """Where the pool's context is."""
        return Blob(self.context_id, self.context_offset, self.context_nbytes)

    @property
    def payload(self) -> Extent:
        """Where the arguments are."""
        return Extent(self.offset, self.nbytes)

    @property
    def items(self) -> Items:
        """What is shared out of a range."""
        return Items(self.counter, self.base, self.total)


class Terms(NamedTuple):
    """How a range is shared out; stands in the record of a row whose payload is the items."""

    schedule: int
    workers: int  # that share it
    last: int  # whether nothing comes after it: the chunks get smaller towards its end
    first: int  # which of the items are shared out: the first one,
    total: int  # and how many


class Piece(NamedTuple):
    """One piece of a stream, asked for or offered; it stands in the row's outcome record."""

    stream: int  # which one: a ``repository.Stream``
    position: int  # of its first byte in the stream
    total_nbytes: int  # of the whole stream
    extent: Extent  # where the piece lies; nothing yet in a request


#: What became of one task of a batch: kind, nanoseconds, encoding.
TaskOutcome: TypeAlias = tuple[int, int, memoryview | bytes]

#: Sizes of records.  A small payload or outcome stands in the rest of its record: elsewhere in the
#: arena it would cost its task 10 us, and records of twice the size would cost every task 2 us.
DESCRIPTOR_NBYTES = 512
OUTCOME_NBYTES = 512
_DESCRIPTOR = struct.Struct("<QQQqQQqQqQQQqQ")
_TERMS = struct.Struct("<QQQQQ")
_OUTCOME = struct.Struct("<QQqQ")
_PIECE = struct.Struct("<QQQqQ")
_PLACE = struct.Struct("<qQ")  # at the end of an outcome record
_LENGTH = struct.Struct("<Q")
_TASK_OUTCOME = struct.Struct("<QQQ")  # of an outcome: kind, nbytes, elapsed_ns
INLINE_PAYLOAD_NBYTES = DESCRIPTOR_NBYTES - _DESCRIPTOR.size
PLACE_AT = OUTCOME_NBYTES - _PLACE.size
INLINE_OUTCOME_NBYTES = PLACE_AT - _OUTCOME.size


def write_descriptor(descriptor: tuple[int, ...], inline: bytes = b"") -> bytes:
    """Return the record of a ``Descriptor``'s numbers, and of the payload that stands in it."""
    return (_DESCRIPTOR.pack(*descriptor) + inline).ljust(DESCRIPTOR_NBYTES, b"\0")


def read_descriptor(record: memoryview) -> tuple[Descriptor, memoryview]:
    """Return the descriptor in a record, and the part of the record that may hold its payload."""
    # Not by its constructor, which takes as long as all the rest.
    numbers = tuple.__new__(Descriptor, _DESCRIPTOR.unpack_from(record, 0))
    return numbers, record[_DESCRIPTOR.size :]


def write_terms(terms: Terms) -> bytes:
    """Return the terms of a range as they stand in a row's record."""
    return _TERMS.pack(*terms)


def read_terms(inline: memoryview) -> Terms:
    """Return the terms of a range."""
    return Terms(*_TERMS.unpack_from(inline, 0))


def write_outcome(
    kind: int, elapsed_ns: int, offset: int, nbytes: int, inline: bytes = b""
) -> bytes:
    """Return what a worker says of an attempt, and the outcome if it stands in the record."""
    return _OUTCOME.pack(kind, elapsed_ns, offset, nbytes) + inline


def read_outcome(record: memoryview) -> tuple[int, int, int, int]:
    """Return what a worker says of an attempt: kind, nanoseconds, and the extent of its outcome."""
    return _OUTCOME.unpack_from(record, 0)


def inline_outcome(record: memoryview, nbytes: int) -> memoryview:
    """Return the outcome that stands in the record itself."""
    return record[_OUTCOME.size : _OUTCOME.size + nbytes]


def read_place(record: memoryview) -> Extent:
    """Return where the outcomes of a batch's tasks stand, from the record of its row."""
    return Extent(*_PLACE.unpack_from(record, PLACE_AT))


def write_extent(extent: Extent) -> bytes:
    """Return an extent as it stands at ``PLACE_AT``, or in the place of what lies in it."""
    return _PLACE.pack(*extent)


def read_extent(content: memoryview | bytes) -> Extent:
    """Return the extent that stands in the place of the bytes that lie in it."""
    return Extent(*_PLACE.unpack(content))


def write_task_outcome(kind: int, elapsed_ns: int, encoded: bytes) -> bytes:
    """Return the outcome of one task of a batch, as it stands among those of the others."""
    nbytes = len(encoded)
    return _TASK_OUTCOME.pack(kind, nbytes, elapsed_ns) + encoded + bytes(-nbytes % WORD_NBYTES)


def read_task_outcomes(content: memoryview | bytes, count: int | None = None) -> list[TaskOutcome]:
    """Return the outcomes of a batch's tasks, in order: the first `count` of them, or all.

    Their encodings are slices of `content`.

    Raises
    ------
    LayoutError
        If they reach beyond `content`.
    """
    found: list[TaskOutcome] = []
    unpack, size, stop = _TASK_OUTCOME.unpack_from, _TASK_OUTCOME.size, len(content)
    at = 0
    while at <= stop - size and len(found) != count:
        kind, nbytes, elapsed_ns = unpack(content, at)
        start = at + size
        end = start + nbytes
        found.append((kind, elapsed_ns, content[start:end]))
        at = end + -nbytes % WORD_NBYTES
    if at > stop:
        raise LayoutError(f"the last outcome of a batch reaches {at - stop} bytes too far")
    cut = at < stop if count is None else len(found) < count
    if cut:
        raise LayoutError(f"the outcomes of a batch are cut after {len(found)} of them")
    return found


def write_carried(outcome: bytes, contributions: bytes) -> bytes:
    """Return an outcome with the contributions to accumulators that it carries."""
    return outcome + contributions + _LENGTH.pack(len(contributions))


def read_carried(content: memoryview) -> tuple[memoryview, memoryview]:
    """Return the outcome and the contributions that it carries."""
    at = len(content) - _LENGTH.size
    start = at - _LENGTH.unpack_from(content, at)[0]
    return content[:start], content[start:at]


def write_piece(piece: Piece) -> bytes:
    """Return a piece as it stands in an outcome record."""
    stream, position, total_nbytes, extent = piece
    return _PIECE.pack(stream, position, total_nbytes, *extent)


def read_piece(record: memoryview) -> Piece:
    """Return the piece in an outcome record."""
    stream, position, total_nbytes, offset, nbytes = _PIECE.unpack_from(record, 0)
    return Piece(stream, position, total_nbytes, Extent(offset, nbytes))
