"""How the items of a map become segments, which workers share out among themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from ...clock import monotonic
from ...errors import SerializationError
from ...journal.ledger import Ledger
from ...layout import Terms
from ...reduction import Binary, Reduction
from ...schedule import Schedule, tickets
from ...serializer import (
    BLOCK,
    BLOCK_NBYTES,
    Code,
    Encoded,
    Refer,
    Torn,
    UnknownDefinition,
    encode_blocks,
    encode_rests,
    pack_call,
    repeated,
)
from ...serializer.code_cache import CodeCache
from ...tasks import Segment
from .stretch import Stretch

#: Items of one segment at the most, and of those that are shared out at the same time.
SEGMENT_ITEMS = 1 << 16

#: The same of a ``range``.  Not more: the counters that items are taken from only grow, as long as
#: their table is open, and have 63 bits.
RANGE_ITEMS = 1 << 40

#: Items of the first segment, which workers wait for; and how long it may take to encode another,
#: while they work on the one before.
FIRST_ITEMS = 1 << 12
CUT_S = 10e-3

#: The fewest for each worker, however large they are, or long they take: no more than one segment
#: is shared out at a time, and a worker that finds nothing in it waits for the call of another.
WORKER_ITEMS = 4

#: If a block is too large, blocks and segments get so many times fewer items from then on.  Items
#: of which a block would have fewer than the least are better sent one by one.
SHRINK = 4
LEAST_BLOCK = 4

#: What items repeat crosses once if it is no more than this: workers keep it beside their copies.
RESTS_NBYTES = 1 << 27

T = TypeVar("T")


class Uncut:
    """Items of a map that are not cut yet.

    They are cut as workers come near them.  Cut all at once they would take twice the memory, and
    nobody would work until the last one is encoded.

    Parameters
    ----------
    items : sequence
    size : int
        Of the part that is cut off next.
    least : int
        Of a part of large items.
    paced : bool
        Whether a part is as large as can be encoded in a short time.

    Attributes
    ----------
    at : int
        Where the part begins that is cut off next.
    block : int
        Items in one of its blocks.
    heavier : int
        How many small items take as much room as one of these.
    large : bool
        Whether an item may be larger than a block.
    rests : list of bytes
        What items repeat, if they are what `repeated` has made of them.
    """

    def __init__(self, items: Sequence[Any], size: int, least: int, paced: bool) -> None:
        self.items = items
        self.size = size
        self.least = least
        self.paced = paced
        self.at = 0
        self.block = BLOCK
        self.heavier = 1
        self.large = False
        self.rests: list[bytes] = []

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.items)

    @property
    def part(self) -> Sequence[Any]:
        """What is cut off next."""
        return self.items[self.at : self.at + self.size]

    def shrink(self, cut: bool) -> bool:
        """Have fewer items in a block, for they are large; False if they are too large for that.

        And fewer in a part if they may be cut, else all must have room at the same time.
        """
        block, heavier = self.block // SHRINK, self.heavier * SHRINK
        if block < LEAST_BLOCK or not (cut or heavier * len(self.items) <= SEGMENT_ITEMS):
            return False
        self.block, self.heavier = block, heavier
        if cut:
            self.size = max(self.least, self.size // SHRINK)
        return True

    def pace(self, elapsed_s: float) -> None:
        """Have the next part be encoded in a short time; a whole one has taken so long."""
        fitting = int(CUT_S / max(elapsed_s, 1e-6) * self.heavier * self.size)
        small = max(BLOCK, min(fitting, SEGMENT_ITEMS))
        self.size = max(self.least, small // self.heavier)


class Cutter:
    """Makes segments of the items of one map.

    Parameters
    ----------
    number : callable
        Returns a number that nothing else in the job has.
    workers : int
        That share the items.
    fn : callable
    codes : CodeCache
    schedule : Schedule
    several : bool
        Whether each item is a tuple of arguments.
    operation : callable, optional
        That folds the results.
    ledger : Ledger, optional
        Says which items are done.
    weigh : callable, optional
        ``weigh(nbytes)``: told of items with which the function goes.

    Attributes
    ----------
    code : Code or None
        Of the function.  Or of its class, or of that of the object whose method it is: then the
        function goes with the items, and refers to the class.  Without, it goes with them whole.
    at_once : bool
        Whether items have to be cut as soon as they come: a function that goes with them does so
        as it is now, and a journal has to know which of two equal calls is the first.
    """

    def __init__(
        self,
        number: Callable[[], int],
        workers: int,
        fn: Callable[..., Any],
        codes: CodeCache,
        schedule: Schedule,
        *,
        several: bool = False,
        operation: Binary | None = None,
        ledger: Ledger | None = None,
        weigh: Callable[[int], object] = int,
    ) -> None:
        self._number = number
        self.workers = workers
        self.fn = fn
        self._owner, self.code = fn, codes.at_once(fn)  # whose code it is, and the code
        if self.code is None and operation is None:
            self._owner, self.code = codes.of_class(fn)
        self._codes = codes
        self._schedule = schedule
        self._several = several
        self.operation = operation
        self._ledger = ledger
        self._weigh = weigh
        self.at_once = self._own_code is None or ledger is not None

    @property
    def _own_code(self) -> Code | None:
        """The code of the function itself."""
        return self.code if self._owner is self.fn else None

    def begin(self, items: Sequence[Any], first: bool = True) -> Uncut:
        """Return items that are to be cut; workers wait for the `first` ones."""
        least, paced = WORKER_ITEMS * self.workers, False
        if isinstance(items, range) and self._ledger is None:
            size = min(len(items), RANGE_ITEMS)
        elif self._schedule is not Schedule.ADAPTIVE:
            size = len(items)
        else:
            paced = first and not self.at_once
            size = max(FIRST_ITEMS if paced else SEGMENT_ITEMS, least)
        return Uncut(items, size, least, paced)

    def begin_repeated(self, items: Sequence[Any]) -> Uncut | None:
        """Return large items that are to be cut; None unless most is what they repeat.

        Raises
        ------
        Exception
            Whatever pickle raises.
        """
        if self._own_code is None or self._ledger is not None:
            return None
        found, rests = repeated(items), None
        if found is not None:
            with suppress(Torn):
                rests = self._referring(partial(encode_rests, found, RESTS_NBYTES))
        if found is None or rests is None:
            return None
        self.at_once = True  # what is pickled now, as the rests are
        uncut = self.begin(found.items)
        uncut.rests = rests
        return uncut

    def cut(self, uncut: Uncut, large: bool) -> list[Stretch] | None:
        """Return what is cut off next; None if the items are better sent one by one.

        One stretch, or all that are left if they have to be cut at once.

        Parameters
        ----------
        uncut : Uncut
        large : bool
            Whether items are taken even if they are large.

        Raises
        ------
        Exception
            Whatever pickle raises; then nothing is cut off.
        """
        found, at = None, uncut.at
        # Without a journal there is nothing to forget: `int` stands in, and does nothing.
        with nullcontext(int) if self._ledger is None else self._ledger.keys.planning() as forget:
            try:
                found = self._cut(uncut, large)
            finally:
                if found is None:
                    uncut.at = at
                    forget()
        return found

    def _cut(self, uncut: Uncut, large: bool) -> list[Stretch] | None:
        found: list[Stretch] = []
        while not uncut.ended and (self.at_once or not found):
            stretch = self._next(uncut, large)
            if stretch is None:
                return None
            found.append(stretch)
        return found

    def _next(self, uncut: Uncut, large: bool) -> Stretch | None:
        if uncut.at == 0 and self._ledger is None and not self._sized(uncut, large):
            return None
        part, plan = uncut.part, None
        if self._ledger is not None:
            plan = self._ledger.plan(self.fn, self._own_code, part, self._several)
            part = plan.missing(part)
        began = monotonic()
        content = self._encoded(part, uncut)
        while content is None:
            if uncut.large:
                uncut.block //= SHRINK
            elif self._ledger is None and uncut.shrink(self._schedule is Schedule.ADAPTIVE):
                part = uncut.part
            elif large:
                uncut.large = True
            else:
                return None
            began = monotonic()
            content = self._encoded(part, uncut)
        if not self._own_code:
            self._weigh(len(content))
        uncut.at += uncut.size
        segment = self.segment(content, range(len(part)), uncut.ended)
        weight = uncut.heavier * len(part)
        if uncut.paced and not uncut.ended:
            uncut.pace(monotonic() - began)
            weight = SEGMENT_ITEMS  # the next one waits until this one is taken
        return Stretch(segment, len(part), plan, self.code, weight, uncut.ended)

    def _sized(self, uncut: Uncut, large: bool) -> bool:
        """Make blocks as small as the first items say; False if these are better sent one by one.

        To encode a whole block first, and find it too large, may take longer than all the rest.
        """
        found = self._encoded(uncut.items[:LEAST_BLOCK], uncut, alone=True)
        nbytes = BLOCK_NBYTES if found is None else len(found)
        while uncut.block * nbytes > LEAST_BLOCK * BLOCK_NBYTES:
            if not uncut.shrink(self._schedule is Schedule.ADAPTIVE):
                break
        return large or found is not None

    def _encoded(self, items: Sequence[Any], uncut: Uncut, alone: bool = False) -> Encoded | None:
        """Encode items, and have the function's code bring the definitions in them.

        `alone`: without what is called with them, where it goes with them.
        """
        fn = None if alone or self._own_code else self.fn
        function: object = fn if self.operation is None else Reduction(fn, self.operation)
        size, large = uncut.block, uncut.large
        rests = () if alone else uncut.rests
        encode = partial(encode_blocks, items, self._several, rests=rests, size=size, large=large)
        of_class = self._owner is not self.fn
        try:
            return self._referring(partial(encode, function, of_class=of_class))
        except Torn:
            if of_class:  # all of it by value
                self.code, self._owner = None, self.fn
                return self._encoded(items, uncut, alone)
            without = None if self.operation is None else Reduction(None, self.operation)
            return encode(without, each=self.fn)

    def _referring(self, encode: Callable[..., T]) -> T:
        """Encode with references to the code, and have it bring the definitions that are met."""
        refer: Refer | None = None
        if self.code is not None:
            refer = self._codes.refer(self._owner, self.code)
        while True:
            beside = None if self.code is None else self.code.reach
            try:
                return encode(beside=beside, refer=refer)
            except UnknownDefinition as unknown:
                assert self.code is not None
                self.code, refer = self._codes.extended(self._owner, self.code, unknown.definition)

    def segment(self, content: Encoded, items: range, ends: bool) -> Segment:
        """Return some of the encoded items, to be shared out."""
        terms = Terms(self._schedule, self.workers, ends, items.start, len(items))
        most = tickets(self._schedule, len(items), self.workers)
        return Segment(self._number(), content, most, terms)

    def blame(self, uncut: Uncut, error: BaseException) -> tuple[Uncut, BaseException]:
        """Return the items that can be sent before one that cannot, and the error that names it."""
        items = uncut.items[uncut.at :] if self.at_once else uncut.part
        for at, item in enumerate(items):
            try:
                pack_call(self.fn, item if self._several else (item,), {}, self._own_code)
            except SerializationError as named:
                return self.begin(items[:at]), named
        return self.begin(()), error
