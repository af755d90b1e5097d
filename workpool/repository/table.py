"""What publishers and workers share: a view of the table's control words."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from .. import protocol, verbs
from ..layout import OUTCOME_NBYTES, WORD_NBYTES, Geometry
from ..protocol import Step


class Stream(IntEnum):
    """What can travel in pieces.

    The numbers differ from all kinds of outcomes, for a row's outcome record holds either an
    outcome or a piece.
    """

    PAYLOAD = 64
    CODE = 65
    CONTEXT = 66
    OUTCOME = 67


class Row(NamedTuple):
    """A row as somebody saw it: what the next compare-and-swap compares with."""

    number: int
    word: int


class Table:
    """One member's view of the table.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    member : int
        Who we are: the owner that we write into words.

    Attributes
    ----------
    words : array of int64
        Of the rows, each as last seen: hints of where to try.
    """

    def __init__(self, window: verbs.Window, geometry: Geometry, member: int) -> None:
        self.window = window
        self.geometry = geometry
        self.member = member
        self.words = array("q", bytes(geometry.rows * WORD_NBYTES))

    def look(self, rows: range | None = None) -> array[int]:
        """Return the words of all rows: hints of where to try.

        Parameters
        ----------
        rows : range, optional
            See only these anew.

        Notes
        -----
        RMA cost: 1 get of 8 bytes for each row, 1 flush.
        """
        if rows is None:
            rows = range(self.geometry.rows)
        part = memoryview(self.words)[rows.start : rows.stop]
        self.window.get(self.geometry.word(rows.start), part)
        self.window.flush()  # the words are here only after it
        return self.words

    def load(self, number: int) -> int:
        """Return the word of one row.  RMA cost: 1 load."""
        return self.window.load(self.geometry.word(number))

    def read_record(self, number: int) -> memoryview:
        """Return a copy of the outcome record of a row.  RMA cost: 1 get, 1 flush."""
        return self.window.copy(self.geometry.outcome(number), OUTCOME_NBYTES)

    def read_records(self, numbers: Sequence[int]) -> list[memoryview]:
        """Return copies of the outcome records of rows, in order.

        Notes
        -----
        RMA cost: 1 get for each run of rows, 1 flush.
        """
        return self._read(numbers, self.geometry.outcome, OUTCOME_NBYTES)

    def step(self, row: Row, step: Step) -> bool:
        """Take a step from the word of a row; return whether that still stood there.

        It is the word on which the caller has decided that: after a fresh load, the step might be
        taken by another attempt, about which nobody has decided.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        word = protocol.advance(row.word, step)
        found = self.window.compare_and_swap(self.geometry.word(row.number), row.word, word)
        self.words[row.number] = word if found == row.word else found
        return found == row.word

    def _read(
        self, numbers: Sequence[int], place: Callable[[int], int], nbytes: int
    ) -> list[memoryview]:
        if len(numbers) == 1:
            return [self.window.copy(place(numbers[0]), nbytes)]
        copy = memoryview(bytearray(len(numbers) * nbytes))
        for run in runs(numbers):
            part = copy[run.start * nbytes : run.stop * nbytes]
            self.window.get(place(numbers[run.start]), part)
        self.window.flush()  # the copies are here only after it
        return [copy[i * nbytes : (i + 1) * nbytes] for i in range(len(numbers))]


def runs(numbers: Sequence[int]) -> list[range]:
    """Split positions into the longest ranges over which the values grow by one."""
    found: list[range] = []
    start = 0
    for i, number in enumerate(numbers):
        if number - numbers[start] != i - start:
            found.append(range(start, i))
            start = i
    if numbers:
        found.append(range(start, len(numbers)))
    return found
