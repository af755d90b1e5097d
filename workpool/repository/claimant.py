"""The worker's half: take tickets, claim rows, exchange pieces, commit outcomes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import layout, protocol
from ..extents import Extent
from ..layout import DESCRIPTOR_NBYTES, Piece
from ..protocol import State, Step
from .awaiter import Awaiter
from .claim import CONTENDED, EMPTY, Claim, Miss, Offer
from .table import Row, runs
from .tickets import EarlyTickets

_READY = layout.States([State.READY])
_RESERVED = layout.States([State.RESERVED])

#: Later than every ticket.
_LAST = 1 << 63

# What every task needs: an attribute of an enumeration costs as much as a call.
_COMPLETE = Step.COMPLETE


class Claimant(Awaiter):
    """Claims rows and commits what became of them.

    The parameters are those of ``Awaiter``.
    """

    def take(self, limit: int) -> list[Offer] | Miss:
        """Take the tickets of up to `limit` descriptors and read them.

        Returns
        -------
        list of Offer or Miss
            The offers may be fewer than the tickets: rows that others emptied are left out, and
            what is not READY yet comes later, with all behind it.

        Notes
        -----
        RMA cost: the taker's; for several tickets 1 get of the words and 1 of the descriptors, 2
        flushes.
        """
        tickets = self._taker.take(limit)
        if isinstance(tickets, Miss):
            return tickets
        if len(tickets) == 1:
            return [Offer(self._expected(tickets[0]), None)]
        numbers = [self.geometry.row(ticket) for ticket in tickets]
        for run in runs(numbers):
            first, last = numbers[run.start], numbers[run.stop - 1]
            self.window.get(self.geometry.word(first), memoryview(self.words)[first : last + 1])
        self.window.flush()  # READY must be seen before the descriptor is read, see _offers
        rows = []
        for ticket, number in zip(tickets, numbers, strict=True):
            word = self.words[number]
            state = layout.state_of(word)
            if state == State.READY and self.geometry.ticket(number, word) == ticket:
                rows.append(Row(number, word))
            elif state == State.RESERVED and self.geometry.ticket(number, word) == ticket:
                self._keep(range(ticket, tickets.stop), word)  # no later ones before it
                break
        return self._offers(rows)

    def _keep(self, tickets: range, word: int) -> None:
        """Keep tickets of which the first came too early: its row has this word, RESERVED."""
        disp = self.geometry.word(self.geometry.row(tickets.start))
        resume = partial(setattr, self, "_taker", self._taker)
        self._taker = EarlyTickets(self.window, tickets, disp, word, resume)

    def sweep(self, limit: int, before: int | None = None) -> list[Offer] | Miss:
        """Find READY rows wherever they are: behind the head lie those whose ticket was lost.

        The oldest first, so that one worker starts tasks in the order in which they came.

        Parameters
        ----------
        limit : int
            Most offers.
        before : int, optional
            Only rows of earlier tickets than this.  By default all rows, also those at or beyond
            the tail, whose publisher has died before it could push the tail: for a worker that
            finds nothing to take.

        Notes
        -----
        RMA cost: 1 look, 1 more without `before`; 1 get of the descriptors, 1 flush.
        """
        rows = self._ready(before)
        if rows and before is None:
            # A look reads one word after the other.  If rows were published meanwhile, it may have
            # seen a later one READY and missed an earlier one, which is READY by now.
            rows = self._in_turn(self._ready(self.geometry.ticket(*rows[-1]) + 1))
        return self._offers(rows[:limit]) if rows else Miss.EMPTY

    def _in_turn(self, rows: list[Row]) -> list[Row]:
        """Leave out rows whose publisher is about to publish an earlier one, by the last look.

        What it publishes together becomes READY in any order.
        """
        ticket, words = self.geometry.ticket, self.words
        first: dict[int, int] = {}  # by publisher, the earliest ticket that it has reserved
        for number in _RESERVED.rows(words):
            owner, reserved = layout.owner_of(words[number]), ticket(number, words[number])
            first[owner] = min(reserved, first.get(owner, reserved))
        return [row for row in rows if ticket(*row) < first.get(layout.owner_of(row.word), _LAST)]

    def _ready(self, before: int | None) -> list[Row]:
        """Return the rows that are READY in the order of their tickets: all, or those `before` one.

        Notes
        -----
        RMA cost: 1 look.
        """
        words = self.look()
        if before is None:
            numbers = _READY.rows(words)
        else:  # nearly all READY rows are later ones: leave them out before Python sees each
            geometry = self.geometry
            turn, generation = geometry.row(before), geometry.generation(before)
            numbers = _READY.rows_behind(words, turn, generation)
            numbers = [n for n in numbers if geometry.ticket(n, words[n]) < before]
        rows = [Row(number, words[number]) for number in numbers]
        return sorted(rows, key=lambda row: layout.generation_of(row.word))

    def _offers(self, rows: list[Row]) -> list[Offer]:
        # The descriptor is read after the flush that showed READY.  Should the row be withdrawn
        # and used anew meanwhile, the claim's compare-and-swap fails, and the copy is not used.
        records = self._read(
            [row.number for row in rows], self.geometry.descriptor, DESCRIPTOR_NBYTES
        )
        return [Offer(row, record) for row, record in zip(rows, records, strict=True)]

    def claim(self, offer: Offer) -> Claim | Miss:
        """Make a row ours.

        Returns
        -------
        Claim or Miss
            ``Miss.CONTENDED`` if somebody was quicker, or the row is not READY yet: then `take`
            gives its ticket again.

        Notes
        -----
        RMA cost: 1 compare_and_swap; 1 get and 1 flush if the descriptor was not read, 1
        compare_and_swap more if it is not a first attempt.
        """
        (number, word), record = offer
        mine = protocol.claim(word, self.member)
        # The one atomic that decides who runs the task.
        found = self.window.compare_and_swap(self.geometry.word(number), word, mine)
        if found != word and record is None:  # by its ticket alone
            if protocol.is_like(found, word, State.READY):
                word, mine = found, protocol.claim(found, self.member)
                found = self.window.compare_and_swap(self.geometry.word(number), word, mine)
            elif protocol.is_like(found, word, State.RESERVED):
                ticket = self.geometry.ticket(number, word)
                self._keep(range(ticket, ticket + 1), found)
        if found != word:
            return Miss.CONTENDED
        if record is None:  # it was READY, so the descriptor is there; now nobody changes it
            record = self.window.copy(self.geometry.descriptor(number), DESCRIPTOR_NBYTES)
        return Claim(number, mine, record)

    def complete(
        self, claim: Claim, record: bytes, then: Offer | None = None
    ) -> tuple[bool, Claim | Miss]:
        """Put the outcome into the window and commit it; claim the next row by the same flush.

        Returns
        -------
        committed : bool
            False if the attempt had been taken back: the outcome is dropped.
        next : Claim or Miss
            The claim on `then`; ``Miss.EMPTY`` where there is none.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap (1 more with `then`, 1 more after `seize`), 1
        flush; 1 compare_and_swap more if the attempt was taken back or tasks recalled.
        """
        geometry = self.geometry
        done = protocol.advance(claim.word, _COMPLETE)
        # Against the word that we hold: if the attempt was taken back, it differs.
        steps = [(geometry.word(claim.number), claim.word, done)]
        if then is not None:
            number, word = then.row
            mine = protocol.claim(word, self.member)
            steps.append((geometry.word(number), word, mine))
        owed = self._taker.owed
        if owed is not None:  # whether the commit succeeds or not: a ticket says where to look
            steps.append(owed)
        # Whoever sees DONE must see the outcome, and the extent that it names.
        found, *others = self.window.put_and_swap(geometry.outcome(claim.number), record, steps)
        if owed is not None:
            self._taker.pay(others.pop())
        following: Claim | Miss = EMPTY
        if then is not None:
            following = CONTENDED
            if others == [word]:
                assert then.record is not None  # one of several
                following = Claim(number, mine, then.record)
        if found == claim.word:
            claim.word = done
            return True, following
        # Once more if tasks were only recalled.
        return self._keeps(claim, found) and self.advance(claim, _COMPLETE), following

    def commit(self, claim: Claim, record: bytes) -> bool:
        """Put the outcome into the window and decide it, before contributions are made.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap, 1 more if tasks were recalled.
        """
        self.window.put(self.geometry.outcome(claim.number), record)
        self.window.flush()  # as in complete
        return self.advance(claim, Step.COMMIT)

    def request(self, claim: Claim, step: Step, piece: Piece) -> bool:
        """WANT a piece of the payload, or OFFER one of the outcome.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap, 1 more if tasks were recalled.
        """
        record = layout.write_piece(piece)  # belongs to MPI until the flush
        self.window.put(self.geometry.outcome(claim.number), record)
        self.window.flush()  # the submitter reads the piece as soon as the word has changed
        return self.advance(claim, step)

    def answered(self, claim: Claim, step: Step) -> Piece | Miss | None:
        """Return the submitter's answer to a request: None while there is none yet.

        Returns
        -------
        Piece, None or Miss
            ``Miss.CONTENDED`` if the attempt was taken back meanwhile.

        Notes
        -----
        RMA cost: 1 get, 1 flush; with an answer, 1 load, 1 get and 1 flush more.
        """
        # By a Get: we look often, and so many atomics would hold up those of others.
        if self.window.peek(self.geometry.word(claim.number)) == [claim.word]:
            return None
        word = self.load(claim.number)
        if word == claim.word:  # unchanged after all: the Get has met a store half way
            return None
        claim.word = protocol.advance(claim.word, step)
        if word != claim.word and not self._keeps(claim, word):
            return Miss.CONTENDED
        return layout.read_piece(self.read_record(claim.number))

    def holds(self, claim: Claim) -> bool:
        """Return whether the row is still ours, and with it the extents that it names.

        Notes
        -----
        RMA cost: 1 load.
        """
        word = self.load(claim.number)
        return word == claim.word or self._keeps(claim, word)

    def announce(self, claim: Claim, place: Extent) -> None:
        """Put where the outcomes of a batch's tasks will stand, before the first ``next``.

        The flush of ``next`` completes the put.  Nobody else puts to this place of the record.

        Notes
        -----
        RMA cost: 1 put.
        """
        at = self.geometry.outcome(claim.number) + layout.PLACE_AT
        self.window.put(at, layout.write_extent(place))

    def next(
        self, claim: Claim, disp: int, outcomes: bytes, ended: int, stride: bool
    ) -> bool | Miss:
        """Put the outcomes of tasks that have ended, and start the next task, or a stride.

        Returns
        -------
        bool or Miss
            False if there is no next task, because the rest was recalled; ``Miss.CONTENDED`` if
            the attempt was taken back.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap.
        """
        if layout.is_recalled(claim.word):
            self.window.put_and_swap(disp, outcomes, ())
            return False
        word = protocol.next_tasks(claim.word, ended, stride)
        # Whoever sees the next task started may read the outcomes of those before it.
        (found,) = self.window.put_and_swap(
            disp, outcomes, [(self.geometry.word(claim.number), claim.word, word)]
        )
        if found == claim.word:
            claim.word = word
            return True
        return False if self._keeps(claim, found) else Miss.CONTENDED

    def give_back(self, claim: Claim, disp: int, outcomes: bytes, ended: int) -> bool:
        """Put the outcomes of tasks that have ended, and give back all of a stride but the next.

        Returns
        -------
        bool
            False if the attempt was taken back: the worker will notice, and let go of the row.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap, 1 more if tasks were recalled.
        """
        self.window.put(disp, outcomes)
        self.window.flush()  # as in next
        return self._change(claim, lambda word: protocol.give_back(word, ended), self._recalled)

    def advance(self, claim: Claim, step: Step) -> bool:
        """Take one step from the word that the claim holds; False if it was taken back.

        Notes
        -----
        RMA cost: 1 compare_and_swap, 1 more if the attempt was taken back or tasks recalled.
        """
        return self._change(claim, lambda word: protocol.advance(word, step), self._keeps)

    def _change(
        self, claim: Claim, step: Callable[[int], int], keeps: Callable[[Claim, int], bool]
    ) -> bool:
        """Take a step from the word that the claim holds, as long as it `keeps` the row."""
        while True:
            word = step(claim.word)
            # Against the word that we hold, never against a fresh load.
            found = self.window.compare_and_swap(self.geometry.word(claim.number), claim.word, word)
            if found == claim.word:
                claim.word = word
                return True
            if not keeps(claim, found):
                return False

    def _keeps(self, claim: Claim, found: int) -> bool:
        """Take in the word that was `found` instead of ours; return whether the row is still ours.

        It is if its submitter has only recalled tasks; whatever else has happened was an eviction.
        """
        if self._recalled(claim, found):
            return True
        if layout.state_of(found) == State.EVICTED and layout.owner_of(found) == self.member:
            # Everything that we have put into this row is flushed: nothing can land there any more.
            self.step(Row(claim.number, found), Step.LET_GO)
        return False

    def _recalled(self, claim: Claim, found: int) -> bool:
        """Take in that tasks of our row were recalled, if nothing else has happened to it."""
        recalled = found == layout.recall_tasks(claim.word)
        if recalled:
            claim.word = found
        return recalled
