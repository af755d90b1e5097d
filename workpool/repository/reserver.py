"""Which rows a publisher publishes next: reserved before they are written, each for one ticket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

from .. import layout, protocol, verbs
from ..layout import Geometry
from ..protocol import State
from .table import Row, Table

_FREE = layout.States([State.FREE])

#: Most rows that are reserved by the same flush as those that are needed, and the rows that a table
#: has for each of them.
AHEAD = 32
ROWS_FOR_AHEAD = 16

#: Rows that are reserved together while there is nothing else to do.
GROUP = 16


class _Lap(NamedTuple):
    """The words that we write in one generation: they are the same for every row."""

    generation: int
    first: int  # the smallest word of this generation; all words of earlier ones are smaller
    word: int  # of a row that we have reserved
    ready: int  # of one that we have published, as a first attempt

    @classmethod
    def of(cls, generation: int, member: int) -> _Lap:
        word = protocol.reserve(0, member, generation)
        first = layout.pack_word(0, 0, 0, generation)
        return cls(generation, first, word, protocol.publish(word, 0))


class Reservation(NamedTuple):
    """A row that we reserve, or have reserved, and all that it takes to publish it."""

    ticket: int
    number: int  # of the row
    place: int  # displacement of its word
    descriptor: int  # displacement of its descriptor
    free: int  # its word as we saw it, FREE
    word: int  # its word when we have reserved it
    ready: Row  # with its word when we have published it, as a first attempt


class Reserver(Table):
    """Reserves rows at and after the tail.  Safe from every rank, several at once.

    The parameters are those of ``Table``.
    """

    def __init__(self, window: verbs.Window, geometry: Geometry, member: int) -> None:
        super().__init__(window, geometry, member)
        self._tail = 0  # as last seen
        self._front = 0  # first ticket that nobody has taken, as last seen
        self._ahead = min(AHEAD, geometry.rows // ROWS_FOR_AHEAD)
        self._lap = _Lap.of(1, member)
        self._held: list[Reservation] = []  # reserved, not published: the tickets that are next

    def room(self, count: int) -> int:
        """Return how many of `count` descriptors find rows.

        Notes
        -----
        RMA cost: none for rows that are reserved already; then as ``Publisher.publish`` says.
        """
        self._hold(count)
        return min(count, len(self._held))

    def prepare(self) -> None:
        """Reserve a few rows for what comes next, while there is nothing else to do.

        Together they cost little more than one, and not much longer than a short task takes: a
        result that is waited for may come meanwhile.

        Notes
        -----
        RMA cost: none if enough are reserved, else 1 compare_and_swap for each, 1 flush; now and
        then as ``Publisher.publish`` says.
        """
        count = len(self._held) + min(GROUP, self._ahead)
        if count <= self._ahead:
            self._hold(count)

    def reserve_ahead(self, count: int) -> bool:
        """Reserve `count` rows, and some more; return whether we hold any.

        Notes
        -----
        RMA cost: as ``Publisher.publish`` says of reservations.
        """
        if len(self._held) < count:
            self._hold(count + self._ahead)
        return bool(self._held)

    def _hold(self, count: int) -> None:
        """Reserve rows until we hold `count`, or there are no more."""
        looked = False
        while len(self._held) < count:
            wanted = self._free_rows(count - len(self._held))
            if wanted:
                # The row is ours before the first byte is put: a slow publisher whose ticket has
                # been lapped fails here instead of writing into its successor's record.
                steps = [(row.place, row.free, row.word) for row in wanted]
                self._take_in(wanted, self.window.compare_and_swap_all(steps))
            elif looked:
                break
            else:
                self._refresh()
                looked = True

    def _take_in(self, wanted: Sequence[Reservation], found: Sequence[int]) -> None:
        """Hold what was reserved of some rows, given what was found there."""
        for row, word in zip(wanted, found, strict=True):
            if word == row.free:
                self._held.append(row)
                word = row.word
            self.words[row.number] = word

    def _hold_again(self, row: Row) -> bool:
        """Hold a row again that is reserved by us and was lost; False if it is too late for that.

        It is when the tail has passed the row's ticket: what is published there is found by a
        sweep only.  Nobody misses a ticket, which says only where to look.
        """
        geometry, (number, word) = self.geometry, row
        ticket = geometry.ticket(number, word)
        if ticket < self._tail:
            return False
        place, descriptor = geometry.word(number), geometry.descriptor(number)
        ready = Row(number, protocol.publish(word, 0))
        self._held.append(Reservation(ticket, number, place, descriptor, word, word, ready))
        self._held.sort()
        return True

    def _refresh(self) -> None:
        """See tail, front and words anew."""
        self._tail = max(self._tail, self.window.load(layout.TAIL))
        # The way of taking tickets that is not in use stays at 0.
        self._front = max(self.window.load(layout.HEAD), self.window.fetch_add(layout.TICKET, 0))
        self.look()

    def _free_rows(self, count: int) -> list[Reservation]:
        """Return up to `count` rows that seem free, of the next tickets.

        Never a lap ahead of the front: rows become free in any order, and a tail that leapt to
        each of them would leave the workers to walk through all the tickets between.
        """
        geometry, words, held = self.geometry, self.words, self._held
        start = max(self._tail, held[-1].ticket + 1) if held else self._tail
        end = min(self._tail, self._front) + geometry.rows
        found: list[Reservation] = []
        for ticket in range(start, min(start + count, end)):  # mostly the next ones are free
            number = geometry.row(ticket)
            row = self._reservation(ticket, number, words[number])
            if row is None:
                break
            found.append(row)
        if len(found) == count:
            return found
        found.clear()
        first = geometry.row(start)
        free = _FREE.rows(words)
        turn = bisect_left(free, first)
        for number in chain(islice(free, turn, None), islice(free, turn)):
            ticket = start + (number - first) % geometry.rows
            if ticket >= end or len(found) == count:
                break
            row = self._reservation(ticket, number, words[number])
            if row is not None:
                found.append(row)
        return found

    def _reservation(self, ticket: int, number: int, word: int) -> Reservation | None:
        """Return what reserves a row for a ticket; None if it is not free, or has served it.

        The latter shows that our tail is stale.
        """
        geometry = self.geometry
        generation, first, mine, ready = self._lap
        if geometry.generation(ticket) != generation:
            self._lap = _Lap.of(geometry.generation(ticket), self.member)
            generation, first, mine, ready = self._lap
        if layout.state_of(word) or word >= first:
            return None
        place, descriptor = geometry.word(number), geometry.descriptor(number)
        # Not by the constructors of the two tuples, which take as long as all the rest.
        published = tuple.__new__(Row, (number, ready))
        numbers = ticket, number, place, descriptor, word, mine, published
        return tuple.__new__(Reservation, numbers)
