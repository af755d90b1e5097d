"""The submitter of rows of several tasks, which recalls, takes back, and reads early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workpool import layout
from workpool.extents import Extent
from workpool.layout import NO_BLOB, STREAMED, Descriptor
from workpool.protocol import State, Step
from workpool.repository import Publisher, Row
from workpool.testing import MemoryWindow

from .places import OVER, Port, death_word, geometry, payload_of

OTHERS = b"others' "  # what comes to where a payload was


def slot(shape: layout.Geometry, number: int) -> int:
    """Return where a payload lies."""
    return shape.region(0).offset + number * layout.WORD_NBYTES


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
    counts: bool = False  # tasks contribute: what became of them counts when the row is DONE

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
            window.compare_and_swap(OVER, 0, 1)
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
        elif state == State.OFFERED and self.suspicions and choose(2):
            self.suspicions -= 1
            self._reclaim(window, row)
        elif state == State.OFFERED:
            piece = layout.read_piece(self.publisher.read_record(row.number))
            self.pieces[row.number] = bytes(window.copy(*piece.extent))
            self.publisher.step(row, Step.TAKE)
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
            if self.publisher.step(row, Step.RECLAIM):
                self._read(window, row, ended)
                self._end(row.number, ended, started)
            return
        # Read before the compare-and-swap: it tells that the place was the row's until then.
        before = list(self.got)
        self._read(window, row, ended)
        if self.publisher.step(row, Step.RECLAIM):
            self.pieces.pop(row.number, None)
            if self.counts:  # nothing of it does
                ended, started = 0, range(layout.started_of(row.word))
            self._end(row.number, ended, started)
        else:
            self.got = before

    def _gone(self, window: MemoryWindow, owner: int) -> bool:
        return bool(window.load(death_word(self.shape, owner)))

    def _read(self, window: MemoryWindow, row: Row, count: int | None) -> int:
        """Take the first outcomes of a row, or all."""
        if count == 0 or (self.counts and count is not None):
            return 0
        record = self.publisher.read_record(row.number)
        place = layout.read_place(record)
        if count is None:
            _, _, *extent = layout.read_outcome(record)
            place = Extent(*extent)
        streamed = place.offset == STREAMED
        content = self.pieces[row.number] if streamed else window.copy(*place)
        entries = layout.read_task_outcomes(memoryview(content), count)
        ticket, owner = self.shape.ticket(*row), layout.owner_of(row.word)
        tasks = self.held[row.number]
        for task, (_, _, encoded) in zip(tasks, entries, strict=False):
            made = bytes([task, ticket, owner])
            assert bytes(encoded) == made, f"{bytes(encoded)!r} instead of {made!r}"
            if task not in self.got:
                self.got.append(task)
        return len(entries)

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
