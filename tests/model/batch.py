"""Workers that run rows of several tasks, and what must hold between them and their submitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from workpool import layout
from workpool.extents import Extent, Region
from workpool.layout import STREAMED, Piece
from workpool.protocol import Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Stream
from workpool.testing import Explorer, Memory, MemoryWindow

from .batch_submitter import Submitter, slot
from .places import GREEDY, Port, cell, death_word, geometry, payload_of
from .worker import find_one

ENTRY_NBYTES = len(layout.write_task_outcome(0, 0, bytes(3)))
BATCH = 7  # the kind of an outcome


@dataclass
class Worker:
    """Runs the tasks of rows."""

    rows: int
    member: int
    stops: int | None = None  # leaves the row after so many of its tasks
    strides: bool = False  # starts several at once
    offers: bool = False  # what became of them, as a piece
    counts: bool = False  # adds one for each to an accumulator of its own

    ran: list[int] = field(default_factory=list)
    claim: Claim | None = None
    done: int = 0  # tasks of the claim
    payloads: list[bytes] = field(default_factory=list)  # of its tasks, if they lie apart
    pending: int = 0  # started, as far as the word says
    over: bool = False  # with the tasks of the claim: its heart leaves them alone
    unsaid: list[bytes] = field(default_factory=list)  # outcomes that are not in the window
    named: list[tuple[int, int, Extent]] = field(default_factory=list)
    place: Extent | None = None
    piece: Extent | None = None  # is offered

    def __post_init__(self) -> None:
        self.shape = geometry(self.rows)
        self.port = Port(range(0))
        taker = TAKERS["pointer"](self.port, GREEDY)  # type: ignore[arg-type]
        self.claimant = Claimant(self.port, self.shape, self.member, taker)  # type: ignore[arg-type]
        self.region = Region(self.shape.region(self.member))

    def step(self, window: MemoryWindow, choose: Callable[[int], int]) -> bool:
        self.port.window = window
        for entry in list(self.named):
            number, word, extent = entry
            if window.load(self.shape.word(number)) != word:
                self.named.remove(entry)
                self.region.release(extent)
        if self.claim is not None:
            self._go_on(window, self.claim, choose)
            return True
        found = find_one(self.claimant)
        if isinstance(found, Claim):
            self.claim, self.done, self.pending, self.unsaid = found, 0, 0, []
            self.over = False
            self.place = self.region.reserve(5 * ENTRY_NBYTES)
            assert self.place is not None
        return not (found is Miss.EMPTY and self.port.over) or bool(self.named)

    def _record(self, extent: Extent) -> bytes:
        return layout.write_outcome(BATCH, 0, *extent)

    def _go_on(self, window: MemoryWindow, claim: Claim, choose: Callable[[int], int]) -> None:
        """Run one task, and take the step after it."""
        assert self.place is not None
        if self.piece is not None:
            self._await(window, claim)
            return
        descriptor, payload = layout.read_descriptor(memoryview(claim.record))
        tasks = list(payload[: descriptor.tasks])
        if not self.done:
            self._fetch(window, payload[descriptor.tasks : descriptor.nbytes])
            if not self.claimant.holds(claim):
                self._drop()
                return
        task = tasks[self.done]
        if self.payloads:
            read = self.payloads[self.done]
            assert read == payload_of(task), f"task {task} reads the payload {read!r}"
        self.ran = sorted([*self.ran, task])
        self._beat(claim, choose)
        made = bytes([task, self.shape.ticket(claim.number, claim.word), self.member])
        self.unsaid.append(layout.write_task_outcome(0, 0, made))
        self.done += 1
        if self.pending and self.done != self.stops:
            self.pending -= 1
            return
        said, entries = self.done - len(self.unsaid), b"".join(self.unsaid)
        disp = self.place.offset + said * ENTRY_NBYTES
        if self.done < len(tasks) and self.done != self.stops:
            if not said:
                self.claimant.announce(claim, self.place)
            ended = len(self.unsaid)
            following = self.claimant.next(claim, disp, entries, ended, self.strides)
            if following is not Miss.CONTENDED:
                self.unsaid = []
            if following is True:
                left = len(tasks) - self.done
                self.pending = min(layout.stride_after(self.done), left) - 1 if self.strides else 0
                return
            if following is Miss.CONTENDED:
                self._drop()
                return
            self._leave()
            self._beat(claim, choose)
        else:
            window.put(disp, entries)
        used = Extent(self.place.offset, self.done * ENTRY_NBYTES)
        if self.offers:
            self._offer(window, claim, used)
        else:
            self._complete(claim, used)

    def _fetch(self, window: MemoryWindow, slots: memoryview) -> None:
        """Read the payloads of all tasks, those that are not started included."""
        found = [bytearray(layout.WORD_NBYTES) for _ in slots]
        for number, content in zip(slots, found, strict=True):
            window.get(slot(self.shape, number), content)
        window.flush()
        self.payloads = [bytes(content) for content in found]

    def _offer(self, window: MemoryWindow, claim: Claim, used: Extent) -> None:
        window.flush()
        content = window.copy(*used)
        self.piece = self.region.reserve(used.nbytes)
        assert self.piece is not None
        window.put(self.piece.offset, content)
        piece = Piece(Stream.OUTCOME, 0, used.nbytes, self.piece)
        if not self.claimant.request(claim, Step.OFFER, piece):
            self._drop()

    def _await(self, window: MemoryWindow, claim: Claim) -> None:
        """Look for the answer to an offer."""
        assert self.piece is not None
        answer = self.claimant.answered(claim, Step.TAKE)
        if answer is Miss.CONTENDED:
            self._drop()
        elif answer is not None:
            nbytes = self.piece.nbytes
            self.region.release(self.piece)
            self.piece = None
            self._complete(claim, Extent(STREAMED, nbytes))

    def _complete(self, claim: Claim, extent: Extent) -> None:
        assert self.place is not None
        if self.counts:
            committed = self.claimant.commit(claim, self._record(extent))
            if committed:
                self._contribute(claim)
                self.claimant.advance(claim, Step.COMPLETE)
        else:
            committed, _ = self.claimant.complete(claim, self._record(extent))
        if committed:
            self.named.append((claim.number, claim.word, self.place))
            self.claim, self.place = None, None
        else:
            self._drop()

    def _contribute(self, claim: Claim) -> None:
        _, payload = layout.read_descriptor(memoryview(claim.record))
        for task in payload[: self.done]:
            self.port.accumulate(cell(self.shape, task), np.ones(1, np.int64), "sum")
        self.port.flush()  # before the row is DONE

    def _leave(self) -> None:
        self.over = True

    def _beat(self, claim: Claim, choose: Callable[[int], int]) -> None:
        """Do as the heart may, which comes at any time."""
        if not self.over and layout.is_stride(claim.word) and choose(2):
            self._give_back(claim)

    def _give_back(self, claim: Claim) -> None:
        assert self.place is not None
        self.pending = 0
        said = self.done - len(self.unsaid)
        disp = self.place.offset + said * ENTRY_NBYTES
        if self.claimant.give_back(claim, disp, b"".join(self.unsaid), len(self.unsaid)):
            self.unsaid = []

    def _drop(self) -> None:
        for extent in filter(None, (self.place, self.piece)):
            self.region.release(extent)
        self.claim, self.place, self.piece = None, None, None


def check(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
    submitter, *workers = processes.values()
    assert len(submitter.got) == len(set(submitter.got)), f"twice: {submitter.got}"
    if not submitter.suspicions and not submitter.watches and not submitter.again:
        ran = sorted(task for worker in workers for task in worker.ran)
        assert len(ran) == len(set(ran)), f"run twice: {ran}"


def explore(
    batches: tuple[int, ...] = (3,),
    *,
    rows: int = 2,
    workers: int = 2,
    stops: int | None = None,
    strides: bool = False,
    offers: bool = False,
    counts: bool = False,
    crashes: int = 0,
    ordered: bool = True,
    **options: Any,
) -> Any:
    """Explore one row for each of `batches`, with so many tasks.

    Mostly the atomics of one flush are `ordered`: what becomes of a row takes one at a time.
    """
    given = list(range(1, 1 + sum(batches)))
    numbers = iter(given)
    todo = [list(islice(numbers, tasks)) for tasks in batches]
    members = range(1, 1 + workers)  # alike: those that may die are the first
    watches = tuple(members) if crashes else ()
    submitter = Submitter(rows, todo, watches=watches, counts=counts, **options)
    ours = [Worker(rows, member, stops, strides, offers, counts) for member in members]
    others = {f"worker {worker.member}": worker for worker in ours}

    def end(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        ended, *rest = processes.values()
        assert sorted(ended.got) == given, f"of {given} only {ended.got}"
        ran = [task for worker in rest for task in worker.ran]
        for task in given:
            number = memory.word(cell(submitter.shape, task)) if counts else 1
            assert number == 1, f"task {task} counts {number} times"
            most = 1 + ended.again.count(task)
            assert crashes or 1 <= ran.count(task) <= most, f"task {task} ran too often"

    return Explorer(
        {"submitter": submitter, **others},
        submitter.shape.nbytes + 16 * layout.WORD_NBYTES,
        check,
        end,
        crashes=crashes,
        mortal=frozenset(list(others)[:crashes]),
        death_words={
            name: death_word(submitter.shape, worker.member) for name, worker in others.items()
        },
        eager=True,
        late=bool(crashes),
        ordered=ordered,
    ).run()
