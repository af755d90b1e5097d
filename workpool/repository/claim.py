"""What a worker may have of a row: an offer, and then a claim; or nothing, and why."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .. import layout
from ..layout import Descriptor
from .table import Row


class Offer(NamedTuple):
    """A row to try to claim: it was seen READY, or should be READY by its ticket."""

    row: Row
    record: memoryview | None  # a copy of its descriptor; None: not read before the claim


class Claim:
    """A worker's hold on a row; `word` is what the worker last wrote there."""

    __slots__ = ("number", "record", "word")

    def __init__(self, number: int, word: int, record: memoryview) -> None:
        self.number = number
        self.word = word
        self.record = record

    @property
    def descriptor(self) -> tuple[Descriptor, memoryview]:
        """The descriptor, and the memory in which an inline payload stands."""
        return layout.read_descriptor(self.record)


class Miss(Enum):
    """Why nothing could be taken."""

    EMPTY = "nothing is published that nobody has taken"
    CONTENDED = "another member was quicker: back off and try again"


# What every task needs, by its own name: an attribute of an enumeration costs as much as a call.
EMPTY, CONTENDED = Miss
