"""Where everything lies in the window of a table, computed from the sizes of the table."""

from __future__ import annotations

import struct
from typing import Any

from ..errors import LayoutError, UsageError
from ..extents import LINE_NBYTES, Extent, in_lines
from .records import DESCRIPTOR_NBYTES, OUTCOME_NBYTES
from .words import MAX_MEMBERS, WORD_NBYTES, generation_of

MAGIC = int.from_bytes(b"workpool", "little")
VERSION = 1

PAGE_NBYTES = 4096

HEAD = 1 * LINE_NBYTES
TAIL = 2 * LINE_NBYTES
TICKET = 3 * LINE_NBYTES
_WORDS = 4 * LINE_NBYTES

MAX_ROWS = 1 << 20
MAX_ARENA_NBYTES = 1 << 48  # more than a process can address

_IDENTITY = struct.Struct("<5Q")  # magic, version, rows, members, arena nbytes
IDENTITY_NBYTES = _IDENTITY.size


class Geometry:
    """The sizes of one table, and every displacement that follows from them.

    Parameters
    ----------
    rows : int
        Work descriptors in the table, 1 to ``MAX_ROWS``.
    members : int
        The driver and its workers, 2 to ``MAX_MEMBERS``.
    arena_nbytes : int
        Bytes for payloads and results that do not fit into a record, up to ``MAX_ARENA_NBYTES``.

    Raises
    ------
    UsageError
        If a size is outside its limits.
    """

    def __init__(self, rows: int, members: int, arena_nbytes: int) -> None:
        if not 1 <= rows <= MAX_ROWS:
            raise UsageError(f"rows={rows}: a table has 1 to {MAX_ROWS:,} rows")
        if not 2 <= members <= MAX_MEMBERS:
            raise UsageError(f"{members} members: a pool has 2 to {MAX_MEMBERS:,}")
        least = 2 * members * PAGE_NBYTES
        if arena_nbytes < least:
            raise UsageError(
                f"arena_nbytes={arena_nbytes}: with {members - 1} workers the arena "
                f"needs at least {least:,} bytes (two pages for each member)"
            )
        if arena_nbytes > MAX_ARENA_NBYTES:
            raise UsageError(
                f"arena_nbytes={arena_nbytes}: an arena has at most {MAX_ARENA_NBYTES:,} bytes"
            )
        self.rows = rows
        self.members = members
        self.arena_nbytes = arena_nbytes
        self._counters = in_lines(_WORDS + rows * WORD_NBYTES)
        self._beats = in_lines(self._counters + rows * WORD_NBYTES)
        self._descriptors = in_lines(self._beats + members * WORD_NBYTES)
        self._outcomes = self._descriptors + rows * DESCRIPTOR_NBYTES
        end = self._outcomes + rows * OUTCOME_NBYTES
        self._arena = -(-end // PAGE_NBYTES) * PAGE_NBYTES

    @property
    def table_nbytes(self) -> int:
        """Bytes before the arena; in a new table they are zero but for the identity."""
        return self._arena

    @property
    def nbytes(self) -> int:
        """Size of the window in bytes."""
        return self._arena + self.arena_nbytes

    @property
    def watched_nbytes(self) -> int:
        """Bytes before the hearts: whatever happens but a heartbeat changes some of them."""
        return self._beats

    def word(self, row: int) -> int:
        """Return the displacement of a row's control word."""
        return _WORDS + row * WORD_NBYTES

    def counter(self, index: int) -> int:
        """Return the displacement of a counter."""
        return self._counters + index * WORD_NBYTES

    def beat(self, member: int) -> int:
        """Return the displacement of a member's heart."""
        return self._beats + member * WORD_NBYTES

    def descriptor(self, row: int) -> int:
        """Return the displacement of a row's descriptor."""
        return self._descriptors + row * DESCRIPTOR_NBYTES

    def outcome(self, row: int) -> int:
        """Return the displacement of a row's outcome record."""
        return self._outcomes + row * OUTCOME_NBYTES

    def region(self, member: int) -> Extent:
        """Return the part of the arena that one member alone hands out.

        The driver has half of it, the workers share the rest equally.
        """
        half = self.arena_nbytes // 2 // PAGE_NBYTES * PAGE_NBYTES
        if member == 0:
            return Extent(self._arena, half)
        share = half // (self.members - 1) // PAGE_NBYTES * PAGE_NBYTES
        return Extent(self._arena + half + (member - 1) * share, share)

    def row(self, ticket: int) -> int:
        """Return the row that a ticket belongs to."""
        return ticket % self.rows

    def generation(self, ticket: int) -> int:
        """Return the generation in which its row serves a ticket."""
        return ticket // self.rows + 1

    def ticket(self, row: int, word: int) -> int:
        """Return the ticket that a row's control word speaks of."""
        return (generation_of(word) - 1) * self.rows + row

    def identity(self) -> bytes:
        """Return the record that opens the window."""
        return _IDENTITY.pack(MAGIC, VERSION, self.rows, self.members, self.arena_nbytes)

    def check_identity(self, record: Any) -> None:
        """Raise LayoutError unless `record` is the identity of exactly this geometry."""
        found = _IDENTITY.unpack_from(record, 0)
        wanted = _IDENTITY.unpack(self.identity())
        if found != wanted:
            raise LayoutError(
                f"the window opens with (magic, version, rows, members, arena bytes) = {found}, "
                f"expected {wanted}: do all ranks run the same version of workpool?"
            )
