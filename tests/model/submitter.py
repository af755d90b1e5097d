"""A member that publishes tasks, answers their owners, collects, cancels, takes back."""

from __future__ import annotations

from dataclasses import dataclass, field

from workpool import layout
from workpool.extents import Extent, Region
from workpool.layout import NO_BLOB, Descriptor, Geometry
from workpool.protocol import State, Step
from workpool.repository import Publisher, Row, Stream
from workpool.testing import MemoryWindow

from .places import (
    CHUNK,
    MOST_TASKS,
    OVER,
    Choose,
    Port,
    cell,
    death_word,
    half,
    in_pieces,
    outcome_of,
    payload_of,
    piece_of,
)


@dataclass
class Prepared:
    """A task whose payload lies in the arena."""

    task: int
    extent: Extent
    attempt: int = 0


@dataclass
class Submitter:
    """Publishes tasks, collects or cancels them, takes back what a dead (or slow) owner holds."""

    shape: Geometry
    tasks: list[int]
    member: int = 0
    batch: int = 2
    room: int = MOST_TASKS  # payloads that the arena holds at a time
    how: str = "inline"
    count: int = 1  # pieces of each payload and outcome that travels so
    cancels: int = 0  # may withdraw so many tasks
    suspicions: int = 0  # may take so many claims from living owners
    hasty: int = 0  # may abandon so many rows of living publishers
    watches: tuple[int, ...] = ()  # members whose death it notices
    awaits: tuple[int, ...] = ()  # submitters that must be gone before it closes the table
    closes: bool = True
    torn: range = range(0)  # see Port
    ahead: int = 0  # rows that it reserves besides

    prepared: list[Prepared] = field(default_factory=list)  # to be published
    held: dict[int, tuple[Prepared, Row]] = field(default_factory=dict)  # by row number
    collected: list[tuple[int, int, int]] = field(default_factory=list)  # task, ticket, owner
    cancelled: list[tuple[int, int]] = field(default_factory=list)  # task, ticket
    settled: list[int] = field(default_factory=list)  # they fail: they may have contributed
    pieces: dict[int, bytes] = field(default_factory=dict)  # of outcomes, by ticket
    buffer_of: int | None = None  # the ticket whose payload lies in the buffer for pieces
    seen: list[Row] = field(default_factory=list)  # to be served

    def __post_init__(self) -> None:
        self.port = Port(self.torn)
        self.publisher = Publisher(self.port, self.shape, self.member)  # type: ignore[arg-type]
        self.publisher._ahead = self.ahead
        self.region = Region(self.shape.region(self.member))
        self.buffer = self.region.reserve(2 * CHUNK)
        self.given = tuple(self.tasks)

    @property
    def extents(self) -> list[Extent]:
        held = [prepared for prepared, _ in self.held.values()]
        return [self.buffer, *(prepared.extent for prepared in (*self.prepared, *held))]

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        self.port.window = window
        if self.seen:
            self._serve(window, choose, self.seen.pop(0))
            return True
        while self.tasks and len(self.prepared) < self.batch and len(self.extents) <= self.room:
            extent = self.region.reserve(CHUNK)
            assert extent is not None
            self.prepared.append(Prepared(self.tasks.pop(0), extent))
            if self.how != "pieces":
                window.put(extent.offset, payload_of(self.prepared[-1].task))
        if self.prepared and self._publish():
            return True
        if self.held:
            self._look()
            return True
        if self.prepared or not all(self._gone(window, member) for member in self.awaits):
            self._attend(window, choose)
            return True
        if self.closes:
            self._attend(window, choose)
            window.compare_and_swap(OVER, 0, 1)
        elif self.member:
            window.compare_and_swap(death_word(self.shape, self.member), 0, 1)
        return False

    def _gone(self, window: MemoryWindow, member: int) -> bool:
        return bool(window.load(death_word(self.shape, member)))

    def _publish(self) -> bool:
        """Publish what is prepared, as far as there is room; return whether there was any."""
        attempt = self.prepared[0].attempt
        batch = [prepared for prepared in self.prepared if prepared.attempt == attempt]
        records = []
        for prepared in batch:
            payload = prepared.extent
            if self.how == "pieces":
                payload = Extent(layout.STREAMED, self.count * CHUNK)
            descriptor = Descriptor(prepared.task, 0, *NO_BLOB, *NO_BLOB, *payload)
            records.append(layout.write_descriptor(descriptor))
        if len(records) == 1:
            rows = [self.publisher.publish_one(records[0], attempt)]
        else:
            rows = self.publisher.publish(records, attempt)
        for prepared, row in zip(batch, rows, strict=True):
            if row is not None:
                assert row.number not in self.held, "a row was given twice"
                self.held[row.number] = prepared, row
                self.prepared.remove(prepared)
        published = [row is not None for row in rows]
        # Only a submitter that was taken for dead may lose a row in the middle.
        assert self.member or published == sorted(published, reverse=True), "a task was passed over"
        return any(published)

    def _look(self) -> None:
        """Note which of our rows ask for something."""
        idle = {State.READY} if not self.cancels else set()
        if not self.suspicions and not self.watches:
            idle |= {State.CLAIMED, State.COMMITTED}
        words = self.publisher.look().tolist()
        rows = [Row(number, words[number]) for number in sorted(self.held)]
        self.seen = [row for row in rows if layout.state_of(row.word) not in idle]

    def _serve(self, window: MemoryWindow, choose: Choose, seen: Row) -> None:
        """Do what the state of a row asks for."""
        number, word = seen
        prepared, row = self.held[number]
        state, owner = layout.state_of(word), layout.owner_of(word)
        if state == State.READY:
            if choose(2):
                self.cancels -= 1
                if self.publisher.step(row, Step.CANCEL):
                    self.cancelled.append((prepared.task, self.shape.ticket(*row)))
                    self._drop(number)
        elif state == State.DONE:
            self._take_outcome(window, prepared.task, seen)
            self.publisher.retire([seen])
            self._drop(number)
        elif owner in self.watches and self._gone(window, owner):
            if state != State.COMMITTED:
                self._reclaim(seen)
            elif self.publisher.step(seen, Step.SETTLE):
                self.settled.append(prepared.task)
        elif state != State.COMMITTED and self.suspicions and choose(2):
            self.suspicions -= 1
            self._reclaim(seen)
        elif state == State.WANTED:
            self._supply(window, prepared, seen)
        elif state == State.OFFERED:
            self._take_piece(window, seen)

    def _supply(self, window: MemoryWindow, prepared: Prepared, seen: Row) -> None:
        """Answer a wish for the payload; one buffer serves all streams, one after another.

        The next piece is wanted while the last one is read: it comes to the other half.
        """
        ticket = self.shape.ticket(*seen)
        wanted = layout.read_piece(self.publisher.read_record(seen.number))
        number, total_nbytes = wanted.position // CHUNK, self.count * CHUNK
        assert wanted.stream == Stream.PAYLOAD, f"{wanted} is wanted"
        assert wanted.total_nbytes == total_nbytes, f"{wanted} is wanted"
        if wanted.position == total_nbytes:  # it has been read
            assert self.buffer_of == ticket
            self.buffer_of = None
            self.publisher.supply(seen, wanted)
        elif self.buffer_of in (None, ticket):
            self.buffer_of = ticket
            place = half(self.buffer, number)
            window.put(place.offset, piece_of(payload_of(prepared.task), number))
            self.publisher.supply(seen, wanted._replace(extent=place))

    def _take_piece(self, window: MemoryWindow, seen: Row) -> None:
        ticket = self.shape.ticket(*seen)
        piece = layout.read_piece(self.publisher.read_record(seen.number))
        before = b"" if piece.position == 0 else self.pieces[ticket]
        expected = (Stream.OUTCOME, len(before), self.count * CHUNK)
        assert piece[:3] == expected, f"{piece} is offered"
        content = bytes(window.copy(*piece.extent))
        if self.publisher.step(seen, Step.TAKE):
            self.pieces[ticket] = before + content

    def _take_outcome(self, window: MemoryWindow, task: int, seen: Row) -> None:
        record = self.publisher.read_record(seen.number)
        _, _, *extent = layout.read_outcome(record)
        ticket, owner = self.shape.ticket(*seen), layout.owner_of(seen.word)
        if extent[0] == layout.STREAMED:
            content = self.pieces.pop(ticket, b"")
        elif extent[0] == layout.INLINE:
            content = bytes(layout.inline_outcome(record, CHUNK))
        else:
            content = bytes(window.copy(*extent))
        expected = outcome_of(task, ticket, owner)
        if self.how == "pieces":
            expected = in_pieces(expected, self.count)
        assert content == expected, (
            f"the outcome of task {task}, ticket {ticket}, owner {owner} reads {content!r}"
        )
        if self.how == "commit" and task not in self.settled:
            number = window.copy(cell(self.shape, task), 8)
            assert number == (1).to_bytes(8, "little"), f"task {task} is DONE before it is counted"
        self.collected.append((task, ticket, owner))

    def _reclaim(self, seen: Row) -> None:
        # A reclaimed attempt keeps its extent: its successor reads the same bytes.
        if self.publisher.step(seen, Step.RECLAIM):
            prepared, _ = self.held.pop(seen.number)
            if self.buffer_of == self.shape.ticket(*seen):
                self.buffer_of = None
            self.prepared.append(Prepared(prepared.task, prepared.extent, prepared.attempt + 1))

    def _drop(self, number: int) -> None:
        prepared, _ = self.held.pop(number)
        self.region.release(prepared.extent)

    def _attend(self, window: MemoryWindow, choose: Choose) -> None:
        """Free the rows of publishers that died before they published."""
        if not self.awaits:
            return
        for number, word in enumerate(self.publisher.look().tolist()):
            owner = layout.owner_of(word)
            if layout.state_of(word) != State.RESERVED or owner == self.member:
                continue
            if owner in self.watches and self._gone(window, owner):
                self.publisher.step(Row(number, word), Step.ABANDON)
            elif self.hasty and choose(2):
                self.hasty -= 1
                self.publisher.step(Row(number, word), Step.ABANDON)
