"""What a worker may have of a row: an offer, and then a claim."""

from __future__ import annotations

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
