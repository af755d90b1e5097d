"""How a pool maps and reduces: which items are shared out, and which are tasks of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ..clock import monotonic
from ..context import CALL, CHUNK
from ..errors import SerializationError, UsageError
from ..interrupts import failures
from ..journal.ledger import Ledger
from ..reduction import OPERATIONS, Binary
from ..schedule import Schedule
from ..serializer import pack_call
from ..tasks import PoolContext, Retry
from .core import Core
from .future import PoolFuture
from .hold import Hold
from .mapping import apart
from .mapping.call import MapCall
from .mapping.cutter import RANGE_ITEMS, Cutter
from .mapping.source import LEAST_BUFFERSIZE, Source, arguments, few, holds
from .mapping.supply import refused
from .options import checked

#: Items of a reduce, all of which are cut into segments at once.
MOST_REDUCED = 1000 * RANGE_ITEMS

T = TypeVar("T")


class Maps:
    """The maps and reductions of one view of a pool.

    Parameters
    ----------
    core : Core
    context : PoolContext
        What tasks of the view have in common.
    retry : Retry or None
    hold : Hold
        Of a program on its pool: iterators have it as long as they may submit more.
    """

    def __init__(self, core: Core, context: PoolContext, retry: Retry | None, hold: Hold) -> None:
        self._core = core
        self._context = context
        self._retry = retry
        self._hold = hold

    @property
    def _plain(self) -> bool:
        """Whether tasks run in the ranks, once."""
        return not self._context.isolated and self._retry is None

    def map(
        self,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        chunksize: int | None,
        buffersize: int | None,
        schedule: str,
        journal: str | os.PathLike[str] | None,
        unordered: bool,
        *,
        star: bool = False,
    ) -> Iterator[T]:
        """Return the iterator of ``View.map``, or of ``View.starmap`` where `star`."""
        for name, size in (("chunksize", chunksize), ("buffersize", buffersize)):
            if size is not None and not hasattr(size, "__index__"):
                raise TypeError(f"{name} must be an integer or None")
            if size is not None and size < 1:
                raise UsageError(f"{name} must be None or > 0, not {size}")
        if unordered not in (True, False):
            raise UsageError(f"unordered={unordered!r}: give True or False")
        wanted, deadline = Schedule.named(schedule), _deadline(timeout)
        core = self._core
        core.check_submits()
        core.checks.look(fn, several=True)
        ledger = core.ledgers.default if journal is None else core.ledgers.open(journal)
        small = buffersize is not None and buffersize < LEAST_BUFFERSIZE
        alone = chunksize is not None or small or not self._plain
        if not alone and wanted is Schedule.ADAPTIVE and few(iterables, core.workers):
            alone = core.submits_at_once(fn)
        if alone:
            items = arguments(iterables, star)
            chunksize = chunksize or 1
        else:
            source = Source(iterables, star, buffersize)
            mapping = self._mapping(fn, wanted, source, ledger=ledger)
            rest = source.begin(mapping)
            if rest is None:
                more = partial(self._feed, mapping, source)
                results = mapping.results(more, deadline, unordered)
                return results if ledger is None else ledger.reading(results)
            items, chunksize = rest, 1
        if not self._sendable(fn):  # each would fail, after a long search for why: one is enough
            items = islice(items, 1)

        # Not with a journal: its key is of the arguments as they are now, and so must the task be.
        lent = ledger is None and all(map(holds, iterables))

        def submit(chunk: tuple[Any, ...]) -> PoolFuture[Any]:
            args, kind = (chunk[0], CALL) if chunksize == 1 else (chunk, CHUNK)
            return core.send(fn, args, {}, self._context, self._retry, ledger, kind=kind, lent=lent)

        return apart.results(core, submit, items, chunksize, buffersize, deadline, unordered)

    def reduce(
        self,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        op: Any,
        timeout: float | None,
        schedule: str,
    ) -> T:
        """Return the value of ``View.reduce``."""
        if not self._plain:
            raise UsageError(
                "reduce runs in the ranks themselves, once: call it on the pool itself"
            )
        if self._core.ledgers.default is not None:
            raise UsageError(
                "reduce has no results of single items that a journal could keep: use map and fold "
                "what it yields, or a pool without journal="
            )
        deadline = _deadline(timeout)
        wanted, operation = Schedule.named(schedule), _operation(op)
        self._core.check_submits()
        self._core.checks.look(fn, several=True)
        source = Source(iterables, False, None)
        mapping = self._mapping(fn, wanted, source, operation)
        items = source.all()
        if isinstance(items, range) and items[MOST_REDUCED:]:
            raise UsageError(f"reduce of more than {MOST_REDUCED:,} items")
        try:
            mapping.begin(items, large=True)
        except failures() as error:
            if mapping.over:  # some turns were submitted
                raise
            raise refused(error) from error
        values: list[T] = mapping.fold(deadline)
        if not values:
            raise UsageError("reduce of no items has no value")
        return values[0]

    def _feed(self, mapping: MapCall, source: Source) -> None:
        """Give a map more items.

        By this method an iterator that may still want some refers to us, and so to the hold: the
        pool is not shut down meanwhile.
        """
        source.feed(mapping)

    def _sendable(self, fn: Callable[..., Any]) -> bool:
        """Return whether a function can be pickled."""
        if self._core.codes.at_once(fn) is None:
            try:
                pack_call(fn, (), {})
            except SerializationError:
                return False
        return True

    def _mapping(
        self,
        fn: Callable[..., Any],
        schedule: Schedule,
        source: Source,
        operation: Binary | None = None,
        ledger: Ledger | None = None,
    ) -> MapCall:
        core = self._core
        cutter = Cutter(
            core.number,
            core.workers,
            fn,
            core.codes,
            schedule,
            several=source.several,
            operation=operation,
            ledger=ledger,
            weigh=partial(core.checks.heavy.note, fn, what="map"),
        )
        return MapCall(core, cutter)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else monotonic() + checked("timeout", timeout, float)


def _operation(op: Any) -> Binary:
    """Return the function of two values that an operation stands for."""
    from .. import rma

    function: Binary = op
    if not callable(op) or rma.is_op(op):
        try:
            function = OPERATIONS[rma.op_name(op)].function
        except UsageError as error:
            raise UsageError(f"{error}, or a function of two values") from None
    return function
