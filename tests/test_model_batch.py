"""Rows of several tasks, in every interleaving: recalled, reclaimed, or cut off by a death.

A worker runs the tasks of a row one after another, or starts a stride of several and may give back
what it has not come to; what became of them it leaves in one place, or offers as a piece.  The
submitter may recall at any time what has not been started, or take the row back.  Each task's
outcome arrives exactly once, each outcome says which attempt made it, and no task runs twice but
those that were started when their row was taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from struct import unpack_from
from typing import Any

import pytest
from model import GREEDY, Port, find_one, geometry, obituary, payload_of

from workpool import layout, protocol
from workpool.arena import Region
from workpool.errors import WindowError
from workpool.layout import NO_BLOB, STREAMED, Descriptor, Extent, Piece
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Publisher, Row, Stream
from workpool.testing import Explorer, Found, Memory, MemoryWindow

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

ENTRY_NBYTES = len(layout.write_task_outcome(0, 0, bytes(3)))
BATCH = 7  # the kind of an outcome
OTHERS = b"others' "  # what comes to where a payload was


@dataclass
class Submitter:
    """Publishes one row of several tasks; recalls, reclaims, publishes again, collects."""

    rows: int
    todo: list[list[int]]
    recalls: int = 0
    suspicions: int = 0
    watches: tuple[int, ...] = ()
    blind: bool = False  # takes back without having read what is there
    apart: bool = False  # payloads lie in the arena, each by itself

    held: dict[int, list[int]] = field(default_factory=dict)  # tasks by row number
    pieces: dict[int, bytes] = field(default_factory=dict)  # outcomes that were offered, likewise
    got: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)  # may run twice
    slots: dict[int, int] = field(default_factory=dict)  # where payloads lie, by task
    free: list[int] = field(default_factory=lambda: list(range(8)))
    open: bool = True

    def __post_init__(self) -> None:
        self.shape = geometry(self.rows)
        self.port = Port(range(0))
        self.publisher = Publisher(self.port, self.shape, 0)  # type: ignore[arg-type]

    def step(self, window: MemoryWindow, choose: Callable[[int], int]) -> bool:
        self.port.window = window
        if self.todo and self._publish(self.todo[0]):
            self.todo.pop(0)
        elif self.held:
            words = self.publisher.look().tolist()
            for number in sorted(self.held):
                self._serve(window, choose, Row(number, words[number]))
        elif not self.todo:
            self.publisher.close()
            return False
        return True

    def _publish(self, tasks: list[int]) -> bool:
        for task in tasks if self.apart else ():
            if task not in self.slots:
                self.slots[task] = self.free.pop(0)
                self.port.put(slot(self.shape, self.slots[task]), payload_of(task))
        payload = bytes(tasks) + bytes(self.slots[task] for task in tasks if self.apart)
        inline = Extent(layout.INLINE, len(payload))
        descriptor = Descriptor(0, 0, *NO_BLOB, *NO_BLOB, *inline, len(tasks))
        (row,) = self.publisher.publish([layout.write_descriptor(descriptor, payload)])
        if row is not None:
            self.held[row.number] = tasks
        return row is not None

    def _serve(self, window: MemoryWindow, choose: Callable[[int], int], row: Row) -> None:
        state, owner = layout.state_of(row.word), layout.owner_of(row.word)
        if state == State.DONE:
            ran = self._read(window, row, None)
            self.pieces.pop(row.number, None)
            self.publisher.retire([row])
            self._end(row.number, ran, range(0))
        elif state == State.OFFERED:
            piece = layout.read_piece(self.publisher.read_record(row.number))
            self.pieces[row.number] = self._get(window, piece.extent)
            self.publisher.answer(row, Step.TAKE)
        elif state == State.CLAIMED and owner in self.watches and self._gone(window, owner):
            self._reclaim(window, row)
        elif state == State.CLAIMED and self.suspicions and choose(2):
            self.suspicions -= 1
            self._reclaim(window, row)
        elif state == State.CLAIMED and self.recalls and choose(2):
            self.recalls -= 1
            word = self.publisher.recall(row)
            if word is not None:
                self._take_in(window, Row(row.number, word))
        elif state == State.CLAIMED and layout.is_recalled(row.word):
            self._take_in(window, row)  # by us, or by its owner, who may give back more later

    def _take_in(self, window: MemoryWindow, row: Row) -> None:
        """Keep what has ended of a recalled row, and publish again what will not be started."""
        tasks, started = self.held[row.number], layout.started_of(row.word)
        if len(tasks) > started:
            self._read(window, row, layout.ended_of(row.word))
            self._publish_again(tasks[started:])
            self.held[row.number] = tasks[:started]

    def _reclaim(self, window: MemoryWindow, row: Row) -> None:
        """Keep what has ended, and have the others run again, the running one included."""
        ended = layout.ended_of(row.word)
        started = range(ended, layout.started_of(row.word))
        if self.blind:
            if self.publisher.reclaim(row):
                self._read(window, row, ended)
                self._end(row.number, ended, started)
            return
        # Read before the compare-and-swap: it tells that the place was the row's until then.
        before = list(self.got)
        self._read(window, row, ended)
        if self.publisher.reclaim(row):
            self._end(row.number, ended, started)
        else:
            self.got = before

    def _gone(self, window: MemoryWindow, owner: int) -> bool:
        return bool(window.load(obituary(self.shape, owner)))

    def _read(self, window: MemoryWindow, row: Row, count: int | None) -> int:
        """Take the first outcomes of a row, or all."""
        if count == 0:
            return 0
        record = self.publisher.read_record(row.number)
        place = layout.read_place(record)
        if count is None:
            _, _, *extent = layout.read_outcome(record)
            place = Extent(*extent)
        streamed = place.offset == STREAMED
        content = self.pieces[row.number] if streamed else self._get(window, place)
        entries = layout.read_task_outcomes(memoryview(content), count)
        ticket, owner = self.shape.ticket(*row), layout.owner_of(row.word)
        tasks = self.held[row.number]
        for task, (_, _, encoded) in zip(tasks, entries, strict=False):
            made = bytes([task, ticket, owner])
            assert bytes(encoded) == made, f"{bytes(encoded)!r} instead of {made!r}"
            if task not in self.got:
                self.got.append(task)
        return len(entries)

    def _get(self, window: MemoryWindow, extent: Extent) -> bytes:
        content = bytearray(extent.nbytes)
        window.get(extent.offset, content)
        window.flush()
        return bytes(content)

    def _end(self, number: int, ended: int, started: range) -> None:
        tasks = self.held.pop(number)
        self.again += tasks[started.start : started.stop]
        self._use_again(tasks[:ended])
        self._publish_again(tasks[ended:])

    def _use_again(self, tasks: list[int]) -> None:
        """Put something else where the payloads of tasks were that no row of ours names."""
        for task in tasks if self.apart else ():
            free = self.slots.pop(task)
            self.port.put(slot(self.shape, free), OTHERS)
            self.port.flush()
            self.free.append(free)

    def _publish_again(self, tasks: list[int]) -> None:
        self._use_again(tasks)
        if tasks:
            self.todo.append(tasks)


@dataclass
class Worker:
    """Runs the tasks of rows."""

    rows: int
    member: int
    stops: int | None = None  # leaves the row after so many of its tasks
    strides: bool = False  # starts several at once
    offers: bool = False  # what became of them, as a piece

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
            self.place = self.region.reserve(3 * ENTRY_NBYTES)
            assert self.place is not None
        return found is not Miss.CLOSED or bool(self.named)

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
                self.pending = min(layout.STRIDE, left) - 1 if self.strides else 0
                return
            if following is Miss.CONTENDED:
                self._drop()
                return
        else:
            window.put(disp, entries)
        self._leave()
        self._beat(claim, choose)
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
        content = bytearray(used.nbytes)
        window.get(used.offset, content)
        window.flush()
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
        committed, _ = self.claimant.complete(claim, self._record(extent))
        if committed:
            self.named.append((claim.number, claim.word, self.place))
            self.claim, self.place = None, None
        else:
            self._drop()

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


def slot(shape: layout.Geometry, number: int) -> int:
    """Return where a payload lies."""
    return shape.region(0).offset + number * layout.WORD_NBYTES


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
    crashes: int = 0,
    **options: Any,
) -> Any:
    """Explore one row for each of `batches`, with so many tasks."""
    given = list(range(1, 1 + sum(batches)))
    numbers = iter(given)
    todo = [list(islice(numbers, tasks)) for tasks in batches]
    members = range(1, 1 + workers)  # alike: those that may die are the first
    submitter = Submitter(rows, todo, watches=tuple(members) if crashes else (), **options)
    ours = [Worker(rows, member, stops, strides, offers) for member in members]
    others = {f"worker {worker.member}": worker for worker in ours}

    def end(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        ended, *rest = processes.values()
        assert sorted(ended.got) == given, f"of {given} only {ended.got}"
        counts = [task for worker in rest for task in worker.ran]
        for task in given:
            most = 1 + ended.again.count(task)
            assert crashes or 1 <= counts.count(task) <= most, f"task {task} ran too often"

    return Explorer(
        {"submitter": submitter, **others},
        submitter.shape.nbytes + 3 * 8,
        check,
        end,
        crashes=crashes,
        mortal=frozenset(list(others)[:crashes]),
        obituary={
            name: obituary(submitter.shape, worker.member) for name, worker in others.items()
        },
        eager=True,
        late=bool(crashes),
    ).run()


@pytest.mark.parametrize(
    "options",
    [
        {"recalls": 1},
        {"recalls": 2, "rows": 1},
        {"stops": 2},
        {"batches": (2,), "suspicions": 1},
        {"suspicions": 1, "recalls": 1, "workers": 1},
        {"batches": (2, 1), "suspicions": 1, "workers": 1},
        {"batches": (2,), "rows": 3, "crashes": 1, "recalls": 1},
        {"strides": True, "recalls": 1},
        {"strides": True, "stops": 2},
        {"strides": True, "suspicions": 1, "recalls": 1, "workers": 1},
        {"strides": True, "rows": 3, "crashes": 1},
        {"offers": True, "recalls": 1, "workers": 1},
        {"offers": True, "recalls": 1, "strides": True, "stops": 2, "workers": 1},
        {"offers": True, "suspicions": 1, "recalls": 1, "workers": 1},
        {"apart": True, "recalls": 1},
        {"apart": True, "batches": (2,), "suspicions": 1},
        {"apart": True, "suspicions": 1, "recalls": 1, "strides": True, "workers": 1},
        {"apart": True, "batches": (2,), "rows": 3, "crashes": 1, "recalls": 1},
    ],
    ids=str,
)
def test_every_task_of_a_row_ends_once(options: dict[str, Any]) -> None:
    report = explore(**options)
    assert report.states > 300, report


def test_an_outcome_that_is_not_flushed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(
        self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int, stride: bool
    ) -> bool | Miss:
        self.window.put(disp, outcomes)
        return Miss.CONTENDED if not self.advance(claim, Step.NEXT) else True

    monkeypatch.setattr(Claimant, "next", hasty)
    with pytest.raises(Found, match=r"instead of|are cut|too far"):
        explore((2,), suspicions=1)


def test_a_recall_that_is_overlooked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(
        self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int, stride: bool
    ) -> bool | Miss:
        self.window.put(disp, outcomes)
        self.window.flush()
        word = self.load(claim.number)  # a fresh load, where we hold a word
        after = layout.next_tasks(word, ended, stride)
        if layout.owner_of(word) != self.member or layout.state_of(word) != State.CLAIMED:
            return Miss.CONTENDED
        self.window.compare_and_swap(self.geometry.word(claim.number), word, after)
        claim.word = after
        return True

    monkeypatch.setattr(Claimant, "next", stubborn)
    with pytest.raises(Found, match="run twice"):
        explore(recalls=1)


def test_outcomes_that_are_given_back_unflushed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int) -> bool:
        self.window.put(disp, outcomes)
        word = protocol.give_back(claim.word, ended)
        found = self.window.compare_and_swap(self.geometry.word(claim.number), claim.word, word)
        given = found == claim.word
        claim.word = word if given else claim.word
        return given

    monkeypatch.setattr(Claimant, "give_back", hasty)
    with pytest.raises(Found, match=r"instead of|are cut|too far"):
        explore((4,), strides=True, workers=1)


def test_giving_back_what_is_run_all_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Worker._give_back

    def greedy(self: Worker, claim: Claim) -> None:
        pending = self.pending
        genuine(self, claim)
        self.pending = pending

    monkeypatch.setattr(Worker, "_give_back", greedy)
    with pytest.raises(Found, match="run twice"):
        explore(strides=True)


def shorten_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks behind a stride although they are few."""
    monkeypatch.setattr(layout, "STRIDE", 2)
    monkeypatch.setattr(layout.words, "STRIDE", 2)


@pytest.mark.parametrize(
    "options",
    [
        {"batches": (4,), "recalls": 1, "rows": 1},
        {"batches": (4,), "recalls": 1, "offers": True, "workers": 1},
        {"batches": (4,), "recalls": 1, "suspicions": 1, "workers": 1},
        {"batches": (5,), "recalls": 1, "workers": 1},
    ],
    ids=str,
)
def test_tasks_behind_a_stride_end_once(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_strides(monkeypatch)
    report = explore(strides=True, **options)
    assert report.states > 300, report


def test_giving_back_what_has_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_strides(monkeypatch)
    monkeypatch.setattr(Worker, "_leave", lambda self: None)
    with pytest.raises(Found, match="run twice"):
        explore((4,), strides=True, recalls=1, workers=1)


def test_a_stride_that_is_taken_for_one_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "started_of", lambda word: layout.ended_of(word) + 1)
    with pytest.raises(Found, match="run twice"):
        explore(strides=True, recalls=1)


def test_a_recall_that_forgets_what_was_started_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Publisher.recall

    def forgetful(self: Publisher, row: Row) -> int | None:
        return None if genuine(self, row) is None else row.word  # as it was seen

    monkeypatch.setattr(Publisher, "recall", forgetful)
    with pytest.raises(Found, match="twice"):
        explore(recalls=1)


def test_reading_after_the_row_was_taken_back_is_found() -> None:
    with pytest.raises(Found, match="instead of"):
        explore((2, 1), suspicions=1, workers=1, blind=True)


def test_payloads_that_were_read_after_the_row_was_taken_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Claimant, "holds", lambda self, claim: True)
    with pytest.raises(Found, match='reads the payload b"others\' "'):
        explore((2,), apart=True, suspicions=1, workers=1)


def test_a_payload_that_is_gone_though_its_task_is_started_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = Submitter._take_in

    def greedy(self: Submitter, window: MemoryWindow, row: Row) -> None:
        for task in self.held[row.number]:
            window.put(slot(self.shape, self.slots[task]), OTHERS)
        window.flush()
        genuine(self, window, row)

    monkeypatch.setattr(Submitter, "_take_in", greedy)
    with pytest.raises(Found, match='reads the payload b"others\' "'):
        explore(apart=True, recalls=1, workers=1)


def test_a_piece_where_the_place_of_outcomes_is_named_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "PLACE_AT", 0)
    monkeypatch.setattr(layout, "read_place", lambda record: Extent(*unpack_from("<qQ", record)))
    with pytest.raises((Found, WindowError), match=r"outside|instead of|are cut|too far"):
        explore(offers=True, recalls=1, workers=1)


def test_steps_of_batches() -> None:
    word = layout.pack_word(State.CLAIMED, 3, 1, 5)
    second = protocol.advance(word, Step.NEXT)
    assert (layout.ended_of(word), layout.ended_of(second)) == (0, 1)
    assert (layout.started_of(word), layout.started_of(second)) == (1, 2)
    recalled = protocol.recall(second)
    assert layout.is_recalled(recalled)
    assert layout.ended_of(recalled) == 1
    assert layout.state_of(protocol.advance(recalled, Step.COMPLETE)) == State.DONE
    for step in (Step.NEXT, Step.RECALL):
        with pytest.raises(protocol.ProtocolError, match="the last"):
            protocol.advance(recalled, step)


def test_steps_of_strides() -> None:
    word = layout.pack_word(State.CLAIMED, 3, 1, 5)
    stride = protocol.next_tasks(word, 1, stride=True)
    assert (layout.ended_of(stride), layout.started_of(stride)) == (1, 1 + layout.STRIDE)
    assert "tasks 1 to 8," in protocol.describe(stride)
    for before in (stride, protocol.recall(stride)):
        after = protocol.give_back(before, 2)
        assert (layout.ended_of(after), layout.started_of(after)) == (3, 4)
        assert layout.is_recalled(after)
        with pytest.raises(protocol.ProtocolError, match="give back"):
            protocol.give_back(after, 0)
    beyond = protocol.next_tasks(stride, layout.STRIDE, stride=False)
    assert (layout.ended_of(beyond), layout.started_of(beyond)) == (9, 10)
    assert (layout.owner_of(beyond), layout.generation_of(beyond)) == (3, 5)
