"""A member that takes tickets, claims, reads the payload, delivers the outcome."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from workpool import layout
from workpool.extents import Extent, Region
from workpool.layout import NOTHING, OUTCOME_NBYTES, Geometry, Piece
from workpool.protocol import Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Offer, PointerTaker, Row, Stream
from workpool.testing import MemoryWindow

from .places import (
    CHUNK,
    GREEDY,
    Choose,
    Port,
    cell,
    half,
    in_pieces,
    outcome_of,
    payload_of,
    piece_of,
)


def forget(claimant: Claimant) -> None:
    """Drop what a claimant has seen of the queue: it looks again."""
    taker = claimant._taker
    if isinstance(taker, PointerTaker):
        taker.head = taker.first = 0
    taker._tail, taker._news = 0, False


def forget_words(claimant: Claimant) -> None:
    """Drop the words that a claimant has seen: they decide nothing in a later step."""
    claimant.words = array("q", bytes(8 * len(claimant.words)))
    claimant._published = False
    claimant._await(-1)


def find_one(claimant: Claimant) -> Claim | Miss:
    """Take or sweep one row and claim it; what it says has no part in the state that comes."""
    found = claimant.take(1)
    if found is Miss.EMPTY and not claimant.window.over:  # type: ignore[attr-defined]
        found = claimant.sweep(1)
    for offer in found if isinstance(found, list) else ():
        found = claimant.claim(offer)
        if isinstance(found, Claim):
            found.record = bytes(found.record)  # type: ignore[assignment]
    forget_words(claimant)  # so that more states are equal
    forget(claimant)
    return Miss.EMPTY if isinstance(found, list) else found


@dataclass
class Worker:
    """Claims tasks, reads their payload, delivers an outcome that names the attempt."""

    shape: Geometry
    member: int
    method: str
    limit: int = 2
    how: str = "inline"  # "inline", "extent", "commit" or "pieces": how payload and outcome travel
    count: int = 1  # pieces of each

    sweeps: int | None = 0  # behind the head, while there is work; None: not even without
    stays: int | None = None  # leaves after so many attempts
    torn: range = range(0)  # see Port
    remembers: bool = False  # uses what it has seen of the queue before
    alone: bool = False  # the only worker: starts tasks in the order in which they came

    ran: list[tuple[int, int]] = field(default_factory=list)  # ticket, task
    offers: list[tuple[Row, bytes | None]] = field(default_factory=list)
    empty: bool = False  # nothing was left to take
    claim: Claim | None = None
    asked: Step | None = None  # the answer that we wait for
    payload: bytes = b""  # as it has come in pieces
    result: Extent | None = None  # of the claim, or room for two pieces of it
    named: list[tuple[Claim, Extent]] = field(default_factory=list)  # results that rows speak of

    def __post_init__(self) -> None:
        self.port = Port(self.torn)
        taker = TAKERS[self.method](self.port, GREEDY)  # type: ignore[arg-type]
        self.claimant = Claimant(self.port, self.shape, self.member, taker)  # type: ignore[arg-type]
        self.region = Region(self.shape.region(self.member))

    @property
    def extents(self) -> list[Extent]:
        return [extent for _, extent in self.named] + ([self.result] if self.result else [])

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        self.port.window = window
        for claim, extent in list(self.named):
            if not self.claimant.holds(claim):  # collected, and not before
                self.named.remove((claim, extent))
                self.region.release(extent)
        goes_on = True
        if self.claim is not None:
            self._go_on(window, self.claim)
        elif self.offers:
            self._hold(self.claimant.claim(self._offer()))
        elif self.empty:
            self.empty = False
            if self.sweeps is not None:
                self._keep(self.claimant.sweep(1))
        else:
            goes_on = self._seize(choose) or self._take(choose)
        self._forget()
        if self.stays is not None and len(self.ran) >= self.stays and not self.claim:
            return bool(self.named)
        return goes_on

    def _seize(self, choose: Choose) -> bool:
        if not self.remembers or not (how := choose(3)) or self.claimant.quiet() or how == 1:
            return False
        self._hold(self.claimant.seize(self.limit))
        return self.claim is not None

    def _take(self, choose: Choose) -> bool:
        found = self.claimant.take(self.limit)
        self.empty = found is Miss.EMPTY and not self.port.over
        self._keep(found)
        if self.offers and self.sweeps and choose(2):
            self.sweeps -= 1
            first = self.shape.ticket(*self.offers[0][0])
            self._keep(self.claimant.sweep(1, before=first))
        return found is not Miss.EMPTY or self.empty or bool(self.named)

    def _forget(self) -> None:
        """Drop what decides nothing in a later step, so that more states are equal."""
        forget_words(self.claimant)
        if not self.remembers:
            forget(self.claimant)

    def _keep(self, found: list[Offer] | Miss) -> None:
        if not isinstance(found, Miss):
            offers = [(row, record if record is None else bytes(record)) for row, record in found]
            self.offers = [*offers, *self.offers]

    def _offer(self) -> Offer:
        row, record = self.offers.pop(0)
        return Offer(row, record if record is None else memoryview(record))

    def _hold(self, claim: Claim | Miss) -> None:
        self.claim = None
        if isinstance(claim, Claim):
            task, ticket = claim.descriptor[0].task_id, self.shape.ticket(claim.number, claim.word)
            later = [other for other, _ in self.ran if self.alone and other > ticket]
            assert not later, f"ticket {ticket} is started after {later}"
            self.ran = sorted([*self.ran, (ticket, task)])
            claim.record = bytes(claim.record)  # type: ignore[assignment]  # which can be pickled
            self.claim = claim

    def _go_on(self, window: MemoryWindow, claim: Claim) -> None:
        """Take an attempt one stage further."""
        descriptor, _ = claim.descriptor
        task, extent = descriptor.task_id, descriptor.payload
        if self.how != "pieces":
            self._deliver(window, claim, task, bytes(window.copy(*extent)))
            return
        if self.asked is None:
            self._want(claim, 0)
            return
        answer = self.claimant.answered(claim, self.asked)
        if answer is None:
            return
        if isinstance(answer, Miss):
            self._drop()
        elif answer.stream == Stream.OUTCOME:
            if answer.position + CHUNK < answer.total_nbytes:
                self._offer_piece(window, claim, task, answer.position // CHUNK + 1)
            else:
                self._commit(window, claim, task, Extent(layout.STREAMED, answer.total_nbytes))
        elif answer.position < answer.total_nbytes:
            self._take_piece(window, claim, answer)
        else:
            self._deliver(window, claim, task, self.payload)

    def _take_piece(self, window: MemoryWindow, claim: Claim, piece: Piece) -> None:
        """Read a piece of the payload while the next one is wanted; after the last one, say so."""
        end = piece.position + CHUNK
        last = end == piece.total_nbytes
        if last or self._want(claim, end):
            self.payload += window.copy(*piece.extent)
            if last:
                self._want(claim, end)

    def _want(self, claim: Claim, position: int) -> bool:
        wanted = Piece(Stream.PAYLOAD, position, self.count * CHUNK, NOTHING)
        return self._ask(claim, Step.WANT, Step.SUPPLY, wanted)

    def _offer_piece(self, window: MemoryWindow, claim: Claim, task: int, number: int) -> None:
        """Offer a piece of the outcome, and write the next one beside it."""
        assert self.result is not None
        place = half(self.result, number)
        piece = Piece(Stream.OUTCOME, number * CHUNK, self.count * CHUNK, place)
        if self._ask(claim, Step.OFFER, Step.TAKE, piece) and number + 1 < self.count:
            self._write_piece(window, claim, task, number + 1)

    def _write_piece(self, window: MemoryWindow, claim: Claim, task: int, number: int) -> None:
        """Write a piece, complete at the flush with which it is offered."""
        assert self.result is not None
        content = piece_of(self._content(claim, task), number)
        window.put(half(self.result, number).offset, content)

    def _ask(self, claim: Claim, step: Step, answer: Step, piece: Piece) -> bool:
        if self.claimant.request(claim, step, piece):
            self.asked = answer
            return True
        self._drop()
        return False

    def _deliver(self, window: MemoryWindow, claim: Claim, task: int, payload: bytes) -> None:
        if self.how != "pieces" and not self.claimant.holds(claim):
            # What we read may serve another task by now.  A step that fails lets go of the row.
            assert not self.claimant.advance(claim, Step.COMPLETE)
            self._drop()
            return
        expected = payload_of(task)
        if self.how == "pieces":
            expected = in_pieces(expected, self.count)
        assert payload == expected, f"task {task} reads the payload {payload!r}"
        if self.how == "pieces":
            self.result = self.region.reserve(2 * CHUNK)
            self._write_piece(window, claim, task, 0)
            self._offer_piece(window, claim, task, 0)
            return
        extent = Extent(layout.INLINE, CHUNK)
        if self.how == "extent":
            self.result = extent = self.region.reserve(CHUNK)
            window.put(extent.offset, self._content(claim, task))
        self._commit(window, claim, task, extent)

    def _content(self, claim: Claim, task: int) -> bytes:
        return outcome_of(task, self.shape.ticket(claim.number, claim.word), self.member)

    def _commit(self, window: MemoryWindow, claim: Claim, task: int, extent: Extent) -> None:
        inline = self._content(claim, task) if extent.offset == layout.INLINE else b""
        record = layout.write_outcome(0, 0, *extent, inline)
        record = record.ljust(OUTCOME_NBYTES, b"\0")
        following: Claim | Miss = Miss.EMPTY
        if self.how == "commit":
            # Only who has won the commit contributes, and what it contributes is there
            # before the row is DONE.
            if self.claimant.commit(claim, record):
                window.accumulate(cell(self.shape, task), np.ones(1, np.int64), "sum")
                window.flush()
                self.claimant.advance(claim, Step.COMPLETE)
        else:
            then = self._offer() if self.offers and self.offers[0][1] is not None else None
            committed, following = self.claimant.complete(claim, record, then)
            if committed and self.how == "extent":
                claim.record = b""  # type: ignore[assignment]
                self.named.append((claim, extent))
                self.result = None
        self._drop()
        self._hold(following)

    def _drop(self) -> None:
        """Forget the claim, and what it alone needed."""
        if self.result is not None:
            self.region.release(self.result)
        self.claim, self.result, self.asked, self.payload = None, None, None, b""
