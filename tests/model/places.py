"""What the processes agree upon: where things lie, and what names what."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from workpool import layout
from workpool.extents import Extent
from workpool.layout import Geometry
from workpool.testing import MemoryWindow

Choose = Callable[[int], int]

CHUNK = 8  # bytes of a payload, of an outcome, and of a piece of either
GREEDY = Fraction(1, 2)  # workers: whoever takes tickets takes all there are, up to its limit
MOST_TASKS = 32  # of one submitter
OVER = layout.TAIL + layout.WORD_NBYTES  # 1 when the submitter is at its end; no word of the table


def geometry(rows: int, members: int = 3) -> Geometry:
    return Geometry(rows, members, 2 * members * layout.PAGE_NBYTES)


def death_word(shape: Geometry, member: int) -> int:
    """The word behind the window that is 1 when a member is gone: dead, or at its end."""
    return shape.nbytes + member * 8


def cell(shape: Geometry, task: int) -> int:
    """The number behind the window to which a task contributes 1."""
    return shape.nbytes + (shape.members + task) * 8


def submitter_of(task: int) -> int:
    return task // MOST_TASKS


def payload_of(task: int) -> bytes:
    return b"payload" + bytes([task])


def outcome_of(task: int, ticket: int, owner: int) -> bytes:
    return b"outco" + bytes([task, ticket, owner])


def piece_of(content: bytes, number: int) -> bytes:
    """Return one of the pieces in which a content travels, all of which differ."""
    return bytes([number]) + content[1:]


def in_pieces(content: bytes, count: int) -> bytes:
    """Return all of them."""
    return b"".join(piece_of(content, number) for number in range(count))


def half(buffer: Extent, number: int) -> Extent:
    """Return where in a buffer for two of them a piece comes."""
    return Extent(buffer.offset + number % 2 * CHUNK, CHUNK)


class Port:
    """The window that a process has been given for one step; no part of its state.

    A get of several words in the stretch `torn` reads each of them at a time of its own.  Who looks
    at the queue sees by that whether it is `over`.
    """

    def __init__(self, torn: range) -> None:
        self.torn = torn
        self.over = False
        self.window: MemoryWindow | None = None

    def peek(self, *disps: int) -> list[int]:
        queue, start = disps == (layout.HEAD, layout.TAIL), disps[0]
        assert queue or len(disps) == 1
        if start in self.torn:
            if queue:
                self.over |= bool(self.window.peek(OVER)[0])
            return self.window.peek(*disps)
        # The queue is read at one moment: word by word there are twice as many states.
        content = bytearray((OVER if queue else start) + 8 - start)
        self.get(start, content)
        self.flush()
        words = memoryview(content).cast("q")
        self.over |= queue and bool(words[-1])
        return [words[(disp - start) // 8] for disp in disps]

    def get(self, disp: int, buffer: Any) -> None:
        view = memoryview(buffer).cast("B")
        step = layout.WORD_NBYTES if disp in self.torn else view.nbytes
        for at in range(0, view.nbytes, step):
            self.window.get(disp + at, view[at : at + step])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["window"], name)

    def __reduce__(self) -> Any:
        return Port, (self.torn,)
