"""What a worker reports of its turn in a range of items, and how it is encoded."""

from __future__ import annotations

from typing import Any, NamedTuple

from .serializer import Encoded, join_all, split

#: Items that mostly are one turn: the worker ends it there, and where there are no more for each
#: worker, the driver publishes one turn for each.
TURN_ITEMS = 20


class Part(NamedTuple):
    """The results of some items, one after another."""

    start: int
    total: int
    encoded: Encoded  # of the list of results; on the driver a view, if it is large


class Turn(NamedTuple):
    """The report of one turn."""

    parts: list[Part]
    failed: bytes | None  # what the item after the last part raised
    exhausted: bool  # no items are left to be taken
    #: First items and numbers of what is folded into the one part of a ``reduce``; if it failed, of
    #: those before the item that did, unless it was none; else empty.
    covered: list[tuple[int, int]]

    def encoded(self) -> Encoded:
        """Return the report as a worker sends it; arrays among the results are not copied."""
        parts = [part[:2] for part in self.parts]
        results = [part.encoded for part in self.parts]
        return join_all((parts, self.failed, self.exhausted, self.covered), results)

    @classmethod
    def decode(cls, content: Any) -> Turn:
        """Return what was encoded."""
        parts, failed, exhausted, covered, results = split(content)
        both = zip(parts, results, strict=True)
        found = [Part(start, total, encoded) for (start, total), encoded in both]
        return cls(found, failed, exhausted, covered)
