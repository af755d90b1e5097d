"""The submitter's half: publish descriptors, answer their owners, collect, take back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .. import layout, protocol
from ..errors import ProtocolError
from ..layout import Piece
from ..protocol import State, Step
from .reserver import Reserver
from .table import Row, runs

_RESERVED = layout.States([State.RESERVED])
_LEFT = layout.States([State.READY, State.WANTED, State.OFFERED, State.DONE])


class Publisher(Reserver):
    """Publishes tasks and collects their outcomes.  Safe from every rank, several at once.

    The parameters are those of ``Table``.
    """

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
        RMA cost: 2 compare_and_swap for each record and 1 for the tail, 1 put for each run of rows,
        2 flushes; 1 flush for each reservation, of up to ``AHEAD`` rows more than are needed; 2
        loads, 1 fetch_add and 1 look more when too few rows are known to be free.
        """
        self.reserve_ahead(len(records))
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
        ready = [row.ready for row in held]
        if attempt:
            ready = [Row(row.number, protocol.publish(row.word, attempt)) for row in held]
        steps = [(row.place, row.word, after.word) for row, after in zip(held, ready, strict=True)]
        # Never back: rows reserved before the tail was seen anew may lie behind it.  That it may be
        # seen before a row is READY is left to `EarlyTickets`: a flush in between takes long.
        end = max(held[-1].ticket + 1, self._tail)
        steps.append((layout.TAIL, self._tail, end))
        *found, tail = self.window.compare_and_swap_all(steps)
        self._push_tail(tail, end)
        published: list[Row | None] = []
        for row, word, after in zip(held, found, ready, strict=True):
            if word == row.word:
                published.append(after)
                self.words[row.number] = after.word
            else:
                published.append(None)
                self._lost(Row(row.number, word))
        published += [None] * (len(records) - len(held))
        return published

    def publish_one(self, record: bytes, attempt: int) -> Row | None:
        """Publish one descriptor for which somebody waits: the same steps, some us faster.

        Notes
        -----
        RMA cost: 3 compare_and_swap, 1 put, 2 flushes; now and then as ``publish`` says.
        """
        if not (self._held or self.reserve_ahead(1)):
            return None
        ticket, number, place, descriptor, _, reserved, ready = self._held.pop(0)
        if attempt:
            ready = Row(number, protocol.publish(reserved, attempt))
        seen = self._tail
        end = ticket + 1 if ticket >= seen else seen  # never back; order of steps: as in `publish`
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
        """Note that we did not get to publish a row that we had reserved: its word has changed."""
        self.words[row.number] = row.word
        if layout.state_of(row.word) == State.EVICTED and layout.owner_of(row.word) == self.member:
            # We were taken for dead.  Our put is flushed: nothing of ours can land there any more.
            self.step(row, Step.LET_GO)

    def _push_tail(self, tail: int, end: int) -> None:
        """Make TAIL at least `end`; `tail` is what the first attempt found there."""
        seen = self._tail
        while tail != seen and tail < end:
            # Another publisher moved it, but not past us: compare with what we saw now.
            seen = tail
            tail = self.window.compare_and_swap(layout.TAIL, seen, end)
        self._tail = max(end, tail)

    def _push_tail_past_served(self) -> None:
        """Move TAIL past tickets that were published: it may be left behind, for it comes last.

        Rows serve no ticket twice, so nothing could be published at a tail that all have passed.
        """
        end, geometry = self._tail, self.geometry
        while True:
            word = self.words[geometry.row(end)]
            served = layout.generation_of(word) >= geometry.generation(end)
            if not served or layout.state_of(word) == State.RESERVED:
                break
            end += 1
        if end > self._tail:
            self._push_tail(self.window.compare_and_swap(layout.TAIL, self._tail, end), end)

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

    def recover(self, known: Collection[int]) -> None:
        """Mend the tail and lost rows after a signal's handler has raised in the middle of a step.

        Right only for the one submitter of a table, and while no other step is under way.

        Parameters
        ----------
        known : collection of int
            Rows that are not lost: published, or collected and not retired.

        Notes
        -----
        RMA cost: 2 loads, 1 fetch_add, 1 look; 1 compare_and_swap or more if TAIL was left behind,
        and up to 2 for each lost row.
        """
        self._refresh()
        self._push_tail_past_served()
        words = self.words
        held = {row.number for row in self._held}
        for number in set(_RESERVED.rows(words)).difference(held):
            row = Row(number, words[number])
            if layout.owner_of(row.word) == self.member and not self._hold_again(row):
                self.step(row, Step.ABANDON)
                self._lost(Row(number, words[number]))
        lost = set(_LEFT.rows(words)).difference(known)  # of perhaps thousands, mostly none
        for number in sorted(lost):
            row = Row(number, words[number])
            state = layout.state_of(row.word)
            if state == State.DONE:
                self.retire([row])
            elif state == State.READY:
                self.step(row, Step.CANCEL)
            else:  # whoever runs it would wait for our answer for ever
                self.step(row, Step.RECLAIM)

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
        place, words = self.geometry.word, self.words
        advance, step = protocol.advance, Step.RETIRE
        steps = [(place(number), word, advance(word, step)) for number, word in rows]
        found = self.window.compare_and_swap_all(steps)
        for (number, word), (_, _, free), seen in zip(rows, steps, found, strict=True):
            if seen != word:
                raise ProtocolError(
                    f"row {number} was {protocol.describe(word)} and is now "
                    f"{protocol.describe(seen)}: only its submitter may retire it"
                )
            words[number] = free

    def supply(self, row: Row, piece: Piece) -> bool:
        """SUPPLY a piece that was wanted.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap.
        """
        record = layout.write_piece(piece)  # belongs to MPI until the flush
        self.window.put(self.geometry.outcome(row.number), record)
        self.window.flush()  # the piece and its bytes, before the owner is told
        return self.step(row, Step.SUPPLY)
