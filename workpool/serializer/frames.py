"""An encoding: a pickle and, out of band, the large buffers it refers to.

The first byte of an encoding tells which of two forms it has. A pickle of protocol 5 begins
with 0x80, so a pickle alone is already the plain form::

    plain    0x80 ... a pickle

    framed   0x01 | frames u32 | pickle nbytes u64 | frame nbytes u64 x frames
             pickle
             padding to 64, frame 0
             padding to 64, frame 1 ...

All numbers are little-endian. Offsets count from the start of the encoding, so an array restored
from memory that begins at a multiple of 64 is aligned to 64. The last frame ends the encoding.

References: PEP 574.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pickle import PickleBuffer, dumps, loads
from typing import Any, Final, TypeAlias

from ..errors import SerializationError
from ..interrupts import failures, interrupts
from ..lazy import np
from ..system.copies import copies
from .byname import PROTOCOL
from .wording import unrestored

ALIGNMENT: Final = 64
"""Each out-of-band frame begins at a multiple of this, counted from the encoding's start."""

OUT_OF_BAND_NBYTES: Final = 4096
"""A buffer smaller than this is copied into the pickle: cheaper than a frame of its own."""

SHARED_NBYTES: Final = 1 << 16
"""A frame of this size may be one for several encodings that are kept."""

ALIKE_NBYTES: Final = 1 << 18
"""A pickle of this size may share most of its memory with others."""

_PLAIN: Final = 0x80
_FRAMED: Final = 0x01
_HEAD: Final = struct.Struct("<BxxxIQ")
_NBYTES: Final = struct.Struct("<Q")

Buffer: TypeAlias = Any
"""Any contiguous buffer: bytes, bytearray, memoryview, an array (typing has no name for it yet)."""


class Packed:
    """An encoding with out-of-band frames, not joined.

    Its frames are the caller's own arrays: write it before they change, or `keep` it; unless they
    are `lent`.

    Parameters
    ----------
    segments : list of bytes or memoryview
        The encoding in pieces, in order: what stands before a frame, and the frame, in turn.
    lent : bool
        Whether the frames may be read until they are written, as they are then.

    Attributes
    ----------
    held : object
        What may take memory of the frames along when it ends.
    nbytes : int
        Length of the encoding; ``len`` gives the same.
    """

    __slots__ = ("held", "lent", "nbytes", "segments")

    def __init__(self, segments: list[bytes | memoryview], lent: bool = False) -> None:
        self.segments = segments
        self.held: object = None
        self.nbytes = sum(map(len, segments))
        self.lent = lent

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"<Packed nbytes={self.nbytes} segments={len(self.segments)}>"

    def keep(self) -> Encoded:
        """Return the encoding as it is now, independent of the caller's arrays.

        Notes
        -----
        Cost: one copy of everything that is not lent; of large frames that others keep which are
        equal, and were in the same place, a comparison, and of large pickles.
        """
        if self.lent:
            return self
        if self.nbytes < SHARED_NBYTES:
            return self.tobytes()
        kept: list[bytes | memoryview] = []
        for segment in self.segments:
            if isinstance(segment, memoryview) and len(segment) >= SHARED_NBYTES:
                kept.append(copies.copy(segment))
            else:
                kept += segments(compact(bytes(segment)))
        return Packed(kept, lent=True)

    def tobytes(self) -> bytes:
        """Return the encoding as one bytes.  Cost: one copy of everything."""
        return b"".join(self.segments)


Encoded: TypeAlias = bytes | Packed
"""What `encode` returns; `len` gives the bytes of either."""


def framed(pickled: bytes, frames: Sequence[memoryview | Encoded]) -> Packed:
    """Return the encoding of a pickle that refers to frames.

    These are contiguous memory of itemsize 1, or encodings, in the pickle's order.
    """
    head = _HEAD.pack(_FRAMED, len(frames), len(pickled))
    parts = [head, *(_NBYTES.pack(len(frame)) for frame in frames), pickled]
    end = sum(map(len, parts))
    joined: list[bytes | memoryview] = []
    if len(pickled) >= OUT_OF_BAND_NBYTES:  # else it is copied together with its neighbours
        joined += b"".join(parts[:-1]), pickled
        parts.clear()
    for content in frames:
        padding = -end % ALIGNMENT
        if padding or parts:
            joined.append(b"".join((*parts, bytes(padding))))
            parts.clear()
        joined += content.segments if isinstance(content, Packed) else [content]
        end += padding + len(content)
    return Packed(joined)


def segments(encoded: Encoded) -> list[bytes | memoryview]:
    """Return an encoding in pieces, in order."""
    return encoded.segments if isinstance(encoded, Packed) else [encoded]


def compact(pickled: bytes) -> Encoded:
    """Return an encoding that shares what it can with others that are kept."""
    if len(pickled) < ALIKE_NBYTES:
        return pickled
    return Packed([*copies.pieces(pickled)], lent=True)


def as_bytes(encoded: Encoded) -> bytes:
    """Return an encoding as one bytes."""
    return encoded.tobytes() if isinstance(encoded, Packed) else encoded


def unpack(buffer: Buffer, what: str = "a value") -> Any:
    """Restore an object from its whole encoding.

    Parameters
    ----------
    buffer : contiguous buffer
        Exactly the bytes of the encoding. Large arrays become views of it, writable and aligned
        to 64 bytes if it is; they keep it alive. It is copied first if it is read-only.
    what : str
        For the message.

    Raises
    ------
    SerializationError
        The encoding is cut or damaged, or the pickle fails; ``__cause__`` says why.
    MemoryError
        There is too little for what it holds.

    Notes
    -----
    Cost: 0.2 us for atoms, 3 us for a large array; no frame is copied.
    """
    try:
        return decode(buffer)
    except (interrupts(), MemoryError, SerializationError):
        raise
    except BaseException as error:  # __setstate__ may raise anything, SystemExit included
        raise unrestored(what, error) from error


def decode(buffer: Buffer) -> Any:
    """Restore like `unpack`, but let whatever pickle raises pass."""
    if len(buffer) and buffer[0] == _PLAIN:
        return loads(buffer)
    view = memoryview(buffer).cast("B")
    tag = view[0] if len(view) else None
    if tag == _PLAIN:  # in items wider than a byte
        return loads(view)
    if tag != _FRAMED:
        raise SerializationError(
            f"cannot decode {len(view)} bytes: they begin with {tag!r}, "
            f"not with {_PLAIN:#x} (plain) or {_FRAMED:#x} (framed)"
        )
    if view.readonly:
        view = memoryview(bytearray(view))
    pickled, *frames = _cut(view)
    # Whoever asks to what a buffer belongs, as in the example of PEP 574, shall see it alone.
    return loads(pickled, buffers=[np.frombuffer(frame, np.uint8) for frame in frames])


def _cut(view: memoryview) -> list[memoryview]:
    """Cut a framed encoding into its pickle and its frames, after checking every length."""
    have = len(view)
    if have < _HEAD.size:
        raise SerializationError(f"a framed encoding of {have} bytes is cut inside its head")
    _, n_frames, pickled_nbytes = _HEAD.unpack_from(view)
    head_nbytes = _HEAD.size + n_frames * _NBYTES.size
    if head_nbytes > have:
        raise SerializationError(
            f"a framed encoding of {have} bytes is cut inside its table of {n_frames} frames"
        )
    end = head_nbytes + pickled_nbytes
    parts = [view[head_nbytes:end]]
    for at in range(_HEAD.size, head_nbytes, _NBYTES.size):
        start = end + -end % ALIGNMENT
        end = start + _NBYTES.unpack_from(view, at)[0]
        parts.append(view[start:end])
    if end != have:
        raise SerializationError(
            f"a framed encoding of {end} bytes arrived as {have} bytes: it is cut or damaged"
        )
    return parts


def join(parts: Sequence[Any]) -> bytes:
    """Return several encodings, and numbers that belong to them, as one.

    Notes
    -----
    Cost: 0.02 us for each.
    """
    return dumps(parts, PROTOCOL)


def join_apart(parts: Sequence[Any]) -> Encoded:
    """Return the same as `join`, but with large ``PickleBuffer`` among the parts not copied."""
    frames: list[memoryview] = []

    def keep(buffer: PickleBuffer) -> bool:
        small = len(buffer.raw()) < OUT_OF_BAND_NBYTES
        if not small:
            frames.append(buffer.raw())
        return small

    pickled = dumps(parts, PROTOCOL, buffer_callback=keep)
    return framed(pickled, frames) if frames else pickled


def join_all(parts: Sequence[Any], encodings: Sequence[Encoded]) -> Encoded:
    """Return the same as `join` of parts and, in a list after them, encodings.

    Where these have frames, and are large, they are not copied, and `split` gives writable views.
    """
    have = any(isinstance(each, Packed) or each[0] == _FRAMED for each in encodings)
    if not have or sum(map(len, encodings)) < SHARED_NBYTES:
        return join((*parts, [*map(as_bytes, encodings)]))
    places = [PickleBuffer(bytearray(1)) for _ in encodings]  # where they belong in the pickle
    pickled = dumps((*parts, places), PROTOCOL, buffer_callback=lambda place: False)
    joined = framed(pickled, encodings)
    joined.held = encodings
    return joined


def split(buffer: Buffer) -> Any:
    """Return what was joined; the large parts are views.

    Raises
    ------
    SerializationError
        These bytes were not, or not all of them.
    """
    try:
        # Mostly by one call into C, which needs less of the stack.
        return loads(buffer) if len(buffer) and buffer[0] == _PLAIN else decode(buffer)
    except failures() as error:  # pickle raises almost anything for damaged bytes
        raise SerializationError(f"cannot take joined bytes apart: {error!r}") from error
