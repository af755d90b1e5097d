"""The submitter's half: publish descriptors, answer their owners, collect, take back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Sequence
from itertools import chain, islice
from typing import NamedTuple

from .. import layout, protocol, verbs
from ..errors import ProtocolError
from ..layout import Geometry, Piece
from ..protocol import State, Step
from .table import Row, Swap, Table, runs

_FREE = layout.States([State.FREE])
_LEFT = layout.States([State.RESERVED, State.DONE])
_RETIRE = Step.RETIRE

#: Rows that are reserved by one flush with those that are needed, at most one of so many.
AHEAD = 16
ROWS_FOR_AHEAD = 16

#: Rows that are reserved together while there is nothing else to do.
GROUP = 8


class _Lap(NamedTuple):
    """What the words of all rows are in one generation, as we reserve and publish them."""

    generation: int
    first: int  # no word of an earlier one is as large
    word: int  # reserved
    ready: int  # published, as a first attempt

    @classmethod
    def of(cls, generation: int, member: int) -> _Lap:
        word = protocol.reserve(0, member, generation)
        return cls(generation, layout.first_word(generation), word, protocol.publish(word, 0))


class _Reservation(NamedTuple):
    """A row that is to be ours, or is by now, and all that it takes to publish it."""

    ticket: int
    number: int
    place: int  # of its word in the window
    descriptor: int  # and of its descriptor
    free: int  # its words: as seen,
    word: int  # once it is reserved,
    ready: Row  # and as a first attempt is published

    @property
    def step(self) -> Swap:
        """What reserves it."""
        return self.place, self.free, self.word


class Publisher(Table):
    """Publishes tasks and collects their outcomes.  Safe from every rank, several at once.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    member : int
        Who we are: the owner that we write into words.
    """

    def __init__(self, window: verbs.Window, geometry: Geometry, member: int) -> None:
        super().__init__(window, geometry, member)
        self._tail = 0  # as last seen
        self._front = 0  # first ticket that nobody has taken, as last seen
        self._ahead = min(AHEAD, geometry.rows // ROWS_FOR_AHEAD)
        self._lap = _Lap.of(1, member)
        self._held: list[_Reservation] = []  # reserved, not published: the tickets that are next

    def publish(self, records: Sequence[bytes], attempt: int = 0) -> list[Row | None]:
        """Publish as many descriptors as there are free rows.

        Parameters
        ----------
        records : sequence of bytes
            Written by ``layout.write_descriptor``, ``DESCRIPTOR_NBYTES`` each.
        attempt : int
            How many earlier attempts of these tasks were taken back.

        Returns
        -------
        list of Row or None
            For each record its row, or None where it found no room: publish that one again later.

        Notes
        -----
        RMA cost: 2 compare_and_swap for each record, 1 put for each run of rows, 2 flushes, and 1
        for every ``AHEAD`` records; 2 loads, 1 fetch_add and 1 look more when too few rows are
        known to be free.
        """
        self._reserve_ahead(len(records))
        held = self._held[: len(records)]
        del self._held[: len(records)]
        if not held:
            return [None] * len(records)
        buffers = []  # belong to MPI until the flush
        for run in runs([row.number for row in held]):
            buffers.append(b"".join(records[run.start : run.stop]))
            self.window.put(held[run.start].descriptor, buffers[-1])
        # A worker that sees READY must also see the descriptor and what it points to.
        self.window.flush()
        steps = [(row.place, row.word, protocol.publish(row.word, attempt)) for row in held]
        # Never back: rows reserved before the tail was seen anew may lie behind it.
        end = max(held[-1].ticket + 1, self._tail)
        steps.append((layout.TAIL, self._tail, end))
        *found, tail = self.window.compare_and_swap_all(steps)
        self._push_tail(tail, end)
        published: list[Row | None] = []
        for row, word, (_, _, ready) in zip(held, found, steps, strict=False):
            if word == row.word:
                published.append(Row(row.number, ready))
                self.words[row.number] = ready
            else:
                published.append(None)
                self._lost(Row(row.number, word))
        published += [None] * (len(records) - len(held))
        return published

    def publish_one(self, record: bytes, attempt: int) -> Row | None:
        """Publish one descriptor, for who waits for that: the same steps, some us faster.

        Notes
        -----
        RMA cost: 3 compare_and_swap, 1 put, 2 flushes; now and then as ``publish`` says.
        """
        if not (self._held or self._reserve_ahead(1)):
            return None
        ticket, number, place, descriptor, _, reserved, ready = self._held.pop(0)
        if attempt:
            ready = Row(number, protocol.publish(reserved, attempt))
        seen = self._tail
        end = ticket + 1 if ticket >= seen else seen  # as above, and so is the order of the steps
        word, tail = self.window.put_and_swap(
            descriptor, record, [(place, reserved, ready.word), (layout.TAIL, seen, end)]
        )
        if tail == seen:
            self._tail = end
        else:
            self._push_tail(tail, end)
        if word == reserved:
            self.words[number] = ready.word
            return ready
        self._lost(Row(number, word))
        return None

    def _lost(self, row: Row) -> None:
        """Take in that a row of ours was taken back before it was published."""
        self.words[row.number] = row.word
        if layout.state_of(row.word) == State.EVICTED and layout.owner_of(row.word) == self.member:
            # Taken for dead: our put has landed, so nothing of ours can come any more.
            self._step(row, Step.LET_GO)

    def room(self, count: int) -> int:
        """Return for how many of so many descriptors there are rows.

        Notes
        -----
        RMA cost: none for rows that are reserved already; then as ``publish`` says.
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
        then as ``publish`` says.
        """
        count = len(self._held) + min(GROUP, self._ahead)
        if count <= self._ahead:
            self._hold(count)

    def _reserve_ahead(self, count: int) -> bool:
        """Reserve so many rows, and some more; return whether we hold any."""
        if len(self._held) < count:
            self._hold(count + self._ahead)
        return bool(self._held)

    def _hold(self, count: int) -> None:
        """Reserve rows until we hold so many, or there are no more."""
        looked = False
        while len(self._held) < count:
            wanted = self._free_rows(count - len(self._held))
            if wanted:
                # The row is ours before the first byte is put: a slow publisher whose ticket has
                # been lapped fails here instead of writing into its successor's record.
                steps = [row.step for row in wanted]
                self._take_in(wanted, self.window.compare_and_swap_all(steps))
            elif looked:
                break
            else:
                self._refresh()
                looked = True

    def _take_in(self, wanted: Sequence[_Reservation], found: Sequence[int]) -> None:
        """Hold what was reserved of some rows, given what was found there."""
        for row, word in zip(wanted, found, strict=True):
            if word == row.free:
                self._held.append(row)
                word = row.word
            self.words[row.number] = word

    def _refresh(self) -> None:
        """See tail, front and words anew."""
        self._tail = max(self._tail, self.window.load(layout.TAIL))
        # The way of taking tickets that is not in use stays at 0.
        self._front = max(self.window.load(layout.HEAD), self.window.fetch_add(layout.TICKET, 0))
        self.look()

    def _free_rows(self, count: int) -> list[_Reservation]:
        """Return up to `count` rows that seem free, of the next tickets.

        Never a lap ahead of the front: rows become free in any order, and a tail that leapt to
        each of them would leave the workers to walk through all the tickets between.
        """
        geometry, words, held = self.geometry, self.words, self._held
        start = max(self._tail, held[-1].ticket + 1) if held else self._tail
        end = min(self._tail, self._front) + geometry.rows
        found: list[_Reservation] = []
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

    def _reservation(self, ticket: int, number: int, word: int) -> _Reservation | None:
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
        return _Reservation(ticket, number, place, descriptor, word, mine, Row(number, ready))

    def _push_tail(self, tail: int, end: int) -> None:
        """Make TAIL at least `end`; `tail` is what the first attempt found there."""
        seen = self._tail
        while tail != seen and tail < end:
            # Another publisher moved it, but not past us: compare with what we saw now.
            seen = tail
            tail = self.window.compare_and_swap(layout.TAIL, seen, end)
        self._tail = max(end, tail)

    def cancel(self, row: Row) -> bool:
        """Withdraw a published descriptor; False if a worker has it.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        return self._step(row, Step.CANCEL)

    def reclaim(self, row: Row) -> bool:
        """Void the attempt of an owner that is gone; False if it was quicker.

        `row` holds the word that stood still while the owner was watched.  On True the caller
        publishes the task again, under a new ticket and with one attempt more.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        # Against the watched word: a fresh load would void an attempt that nobody has watched.
        return self._step(row, Step.RECLAIM)

    def bury(self, row: Row) -> bool:
        """Free an EVICTED row whose former owner's process is gone: no put of it can land.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        return self._step(row, Step.LET_GO)

    def recall(self, row: Row) -> int | None:
        """Take back the tasks of a running row that its owner has not started.

        Returns
        -------
        int or None
            The word as it is then, recalled now or before: ``layout.started_of`` says how many
            tasks have been started, ``layout.ended_of`` of how many the outcomes are in the
            window.  None if the row does not run.

        Notes
        -----
        RMA cost: 1 compare_and_swap, 1 more for each step that the owner takes meanwhile.
        """
        number, word = row
        while layout.state_of(word) == State.CLAIMED:
            if layout.is_recalled(word):
                return word
            recalled = protocol.recall(word)
            found = self.window.compare_and_swap(self.geometry.word(number), word, recalled)
            # Nobody but us can end this generation of the row: it is still about the same tasks.
            word = recalled if found == word else found
        return None

    def settle(self, row: Row) -> bool:
        """Finish the row of an owner that died after its commit: its contributions are uncertain.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        return self._step(row, Step.SETTLE)

    def abandon(self, row: Row) -> bool:
        """Take a row back from a publisher that is gone, or has lost it, and has not published it.

        The row is left alone until its owner lets go of it: should it live, its put may still land.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        return self._step(row, Step.ABANDON)

    def recover(self, known: Container[int]) -> None:
        """Take in rows that are lost: what a signal's handler raised has cut off a step about them.

        For the only submitter of a table, outside of every step.

        Parameters
        ----------
        known : container of int
            Rows that are published, or collected and not retired.

        Notes
        -----
        RMA cost: 1 look, up to 2 compare_and_swap for each.
        """
        geometry, held = self.geometry, {row.number for row in self._held}
        for number in _LEFT.rows(self.look()):
            row = Row(number, self.words[number])
            ticket = geometry.ticket(*row)
            if number in known or number in held:
                continue
            if layout.state_of(row.word) == State.DONE:
                self.retire([row])
            elif layout.owner_of(row.word) != self.member:
                continue
            elif ticket >= self._tail:  # no other row will ever serve that ticket
                place, descriptor = geometry.word(number), geometry.descriptor(number)
                ready = Row(number, protocol.publish(row.word, 0))
                self._held.append(
                    _Reservation(ticket, number, place, descriptor, row.word, row.word, ready)
                )
            elif self.abandon(row):
                self._step(Row(number, self.words[number]), Step.LET_GO)
        self._held.sort()

    def retire(self, rows: Sequence[Row]) -> None:
        """Free rows whose outcome has been collected.

        Notes
        -----
        RMA cost: 1 compare_and_swap for each, 1 flush.

        Raises
        ------
        ProtocolError
            If a row changed since it was seen DONE: nobody else may do that.
        """
        place = self.geometry.word
        steps = [(place(number), word, protocol.advance(word, _RETIRE)) for number, word in rows]
        found = self.window.compare_and_swap_all(steps)
        for (number, word), (_, _, free), seen in zip(rows, steps, found, strict=True):
            if seen != word:
                raise ProtocolError(
                    f"row {number} was {protocol.describe(word)} and is now "
                    f"{protocol.describe(seen)}: only its submitter may retire it"
                )
            self.words[number] = free

    def answer(self, row: Row, step: Step, piece: Piece | None = None) -> bool:
        """SUPPLY a piece that was wanted, or say that an offered one is ours now (TAKE).

        Notes
        -----
        RMA cost: 1 put and 1 flush if there is a piece, 1 compare_and_swap.
        """
        if piece is not None:
            record = layout.write_piece(piece)  # belongs to MPI until the flush
            self.window.put(self.geometry.outcome(row.number), record)
            self.window.flush()  # the piece and its bytes, before the owner is told
        return self._step(row, step)

    def close(self) -> None:
        """Say that nothing more will be published.  RMA cost: 1 compare_and_swap."""
        self.window.compare_and_swap(layout.CLOSED, 0, 1)
