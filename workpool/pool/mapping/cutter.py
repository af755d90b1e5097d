"""How the items of a map become segments, which workers share out among themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import SerializationError
from ...journal.ledger import Ledger
from ...layout import Terms
from ...reduction import Binary, Reduction
from ...schedule import Schedule, tickets
from ...serializer import (
    BLOCK,
    Code,
    CodeCache,
    Encoded,
    Refer,
    Torn,
    UnknownDefinition,
    encode_blocks,
    pack_call,
)
from ...tasks import Segment
from .stretch import Stretch

#: Items of one segment at the most, and of those that are shared out at the same time.
SEGMENT_ITEMS = 1 << 16

#: How many times fewer items are in a block, and in a segment, if a block is too large; and the
#: fewest in a block: larger items are better sent one by one.
SHRINK = 4
LEAST_BLOCK = 4

#: The same of a range: the counters that items are taken from only grow, as long as their table is
#: open.
RANGE_ITEMS = 1 << 40


class Cutter:
    """Makes segments of the items of one map.

    Parameters
    ----------
    number : callable
        Returns a number that nothing else in the job has.
    workers : int
        That share the items.
    fn : callable
    code : Code or None
        Of `fn`; without, it is sent with the items.
    codes : CodeCache
    schedule : Schedule
    several : bool
        Whether each item is a tuple of arguments.
    operation : callable, optional
        That folds the results.
    ledger : Ledger, optional
        Says which items are done.
    """

    def __init__(
        self,
        number: Callable[[], int],
        workers: int,
        fn: Callable[..., Any],
        code: Code | None,
        codes: CodeCache,
        schedule: Schedule,
        several: bool,
        operation: Binary | None,
        ledger: Ledger | None,
    ) -> None:
        self._number = number
        self.workers = workers
        self.fn = fn
        self.code = code
        self._codes = codes
        self._schedule = schedule
        self._several = several
        self.operation = operation
        self._ledger = ledger

    def cut(self, items: Sequence[Any], last: bool, large: bool) -> list[Stretch] | None:
        """Cut items into segments; None if they are better sent one by one.

        Parameters
        ----------
        items : sequence
        last : bool
            Whether none come after them.
        large : bool
            Whether they are taken even if they are large.

        Raises
        ------
        Exception
            Whatever pickle raises.
        """
        if self._ledger is None:
            return self._segments(items, last, large)
        found = None
        with self._ledger.keys.planning() as forget:
            try:
                found = self._segments(items, last, large)
            finally:
                if found is None:
                    forget()
        return found

    def _segments(self, items: Sequence[Any], last: bool, large: bool) -> list[Stretch] | None:
        """Cut items into segments; None if they are better sent one by one."""
        fn = None if self.code else self.fn
        function: object = fn if self.operation is None else Reduction(fn, self.operation)
        without = None if self.operation is None else Reduction(None, self.operation)
        size = len(items) if self._schedule is not Schedule.ADAPTIVE else SEGMENT_ITEMS
        if isinstance(items, range) and self._ledger is None:
            size = min(len(items), RANGE_ITEMS)
        found: list[Stretch] = []
        at, block, heavier = 0, BLOCK, 1
        while at < len(items):
            part = items[at : at + size]
            plan = None
            if self._ledger is not None:
                plan = self._ledger.plan(self.fn, self.code, part, self._several)
                part = plan.missing(part)
            content = self._encoded(part, function, without, large, block)
            while content is None and large:
                block //= SHRINK
                content = self._encoded(part, function, without, large, block)
            if content is None:
                block, heavier = block // SHRINK, heavier * SHRINK
                if block < LEAST_BLOCK or self._ledger is not None:
                    return None
                if self._schedule is Schedule.ADAPTIVE:
                    size //= SHRINK
                elif heavier * len(items) > SEGMENT_ITEMS:
                    return None
                continue
            at += size
            ends = last and at >= len(items)
            segment = self.segment(content, range(len(part)), ends)
            found.append(Stretch(segment, len(part), plan, self.code, heavier * len(part)))
        return found

    def _encoded(
        self, items: Sequence[Any], function: object, without: object, large: bool, block: int
    ) -> Encoded | None:
        """Encode items, and have the function's code bring the definitions in them."""
        refer: Refer | None = None if self.code is None else self._codes.refer(self.fn, self.code)
        while True:
            reach = None if self.code is None else self.code.reach
            try:
                return encode_blocks(
                    items, self._several, function, large, reach, refer, size=block
                )
            except Torn:
                return encode_blocks(items, self._several, without, large, each=self.fn, size=block)
            except UnknownDefinition as unknown:
                assert self.code is not None
                self.code, refer = self._codes.extended(self.fn, self.code, unknown.definition)

    def segment(self, content: Encoded, items: range, ends: bool) -> Segment:
        """Return some of the encoded items, to be shared out."""
        terms = Terms(self._schedule, self.workers, ends, items.start, len(items))
        most = tickets(self._schedule, len(items), self.workers)
        return Segment(self._number(), content, most, terms)

    def blame(self, items: Sequence[Any], error: BaseException) -> tuple[int, BaseException]:
        """Return how many items can be sent before one that cannot, and the error that names it."""
        for at, item in enumerate(items):
            try:
                pack_call(self.fn, item if self._several else (item,), {}, self.code)
            except SerializationError as named:
                return at, named
        return 0, error
