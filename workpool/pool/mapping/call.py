"""One call of ``map``: its items and its results.  The turns of workers in between: ``turns``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from ...clock import monotonic
from ...errors import of_item
from ...forgetting import forgetting
from ...reduction import Reduction
from ...serializer import Kind, unpack_outcome
from ...turns import Part
from .cutter import Uncut
from .stretch import Stretch
from .turns import Turns


class MapCall(Turns):
    """One call of ``map``.

    Parameters
    ----------
    pool : Pool
    cutter : Cutter
        Says of what, and makes segments of the items.
    """

    def begin(self, items: Sequence[Any], large: bool = False, only: bool = False) -> bool:
        """Take on the first items.

        Large ones are better sent one by one: then this returns False.  With `large` it takes them
        all the same; if they are the `only` ones, also those that repeat what makes them large.

        Raises
        ------
        Exception
            Whatever pickle raises.
        """
        uncut = self._cutter.begin(items)
        found = self._cutter.cut(uncut, large)
        if found is None and only and (smaller := self._cutter.begin_repeated(items)):
            uncut, found = smaller, self._cutter.cut(smaller, large)
        if found is None:
            return False
        self._take_on(uncut, found)
        return True

    def add(self, items: Sequence[Any]) -> None:
        """Take on more items; if the pool refuses them, who iterates gets the others first."""
        try:
            self._pool.check_open()
        except Exception as error:
            self._supply.refuse(error)
        else:
            self._take_on(self._cutter.begin(items, first=False), [])

    def _take_on(self, uncut: Uncut, found: list[Stretch]) -> None:
        try:
            self._supply.add(uncut, found)
        except BaseException:  # no memory; or what a signal's handler has raised
            self.stop()  # what is shared out by now would be run for nobody
            raise

    def results(
        self, more: Callable[[], object], deadline: float | None, unordered: bool
    ) -> Iterator[Any]:
        """Yield the results: in order, or as they come.

        Parameters
        ----------
        more : callable
            Called whenever the last of some items has been consumed: to add others.
        deadline : float or None
            By the monotonic clock.
        unordered : bool
        """
        found = self._as_they_come(more, deadline) if unordered else self._in_order(more, deadline)
        try:
            for values in found:
                yield from forgetting(values)
            if self._supply.refusal is not None:
                raise self._supply.refusal
        finally:
            self._pool.callbacks.outside(self._abandon)

    def _in_order(self, more: Callable[[], object], deadline: float | None) -> Iterator[list[Any]]:
        while self._left(deadline):
            stretch = self._stretches[0]
            computed = self._computed(stretch, deadline)
            yield from computed if stretch.plan is None else stretch.plan.merged(computed)
            if self._supply.use_up(stretch):
                more()

    def _computed(self, stretch: Stretch, deadline: float | None) -> Iterator[list[Any]]:
        """Yield the results of a stretch that a journal has not, in order, in lists."""
        while stretch.left:
            at = stretch.items - stretch.left
            self._wait_for(partial(stretch.parts.__contains__, at), deadline)
            yield from self._use(stretch, at)

    def _as_they_come(
        self, more: Callable[[], object], deadline: float | None
    ) -> Iterator[list[Any]]:
        while self._left(deadline):
            for stretch in list(self._stretches):
                if stretch.fresh and stretch.plan is not None:
                    yield from stretch.plan.stored()
                stretch.fresh = False
                for at in list(stretch.parts):
                    yield from self._use(stretch, at)
                if not stretch.left and self._supply.use_up(stretch):
                    more()
            self._wait_for(self._came, deadline)

    def _came(self) -> bool:
        """Return whether there are results to be used, or will be none."""
        if not self._stretches:
            return self._supply.ended
        return any(stretch.has_some for stretch in self._stretches)

    def _use(self, stretch: Stretch, at: int) -> Iterator[list[Any]]:
        """Yield the results of one part, in a list; raise what the item after them has raised."""
        part, failed = stretch.parts.pop(at)
        stretch.left -= part.total
        if part.total:
            yield self._values(part, stretch)
        if failed is not None:
            raise of_item(stretch.place(at + part.total), self._error(Kind.EXCEPTION, failed))

    def fold(self, deadline: float | None) -> list[Any]:
        """Return a list of the one value that all results are folded to, or of none."""
        assert self._operation is not None
        values: list[Any] = []
        try:
            for found in self._as_they_come(lambda: None, deadline):
                values = Reduction(None, self._operation).fold([*values, *found])
        finally:
            self._pool.callbacks.outside(self.stop)
        return values

    def _left(self, deadline: float | None) -> bool:
        """Return whether there is a stretch to be used up, waiting until one is cut."""
        self._wait_for(lambda: bool(self._stretches or self._supply.ended), deadline)
        return bool(self._stretches)

    def _wait_for(self, came: Callable[[], bool], deadline: float | None) -> None:
        if not came():
            left = None if deadline is None else deadline - monotonic()
            if not self._pool.driver.wait(lambda: came() or self.over, left):
                raise FutureTimeout
        if not came():
            try:
                if self._failure is not None:  # an exception may be false
                    raise self._failure
                raise CancelledError
            finally:  # its traceback refers to the program's frames, and by them to the pool
                self._failure = None
                self._stopped = True

    def _values(self, part: Part, stretch: Stretch) -> list[Any]:
        """Restore the results of some items, which come by one pickle: all of them, or none."""
        values: list[Any]
        values, error = unpack_outcome(Kind.VALUE, part.encoded, self._fn)
        if error is not None:
            first, last = map(stretch.place, (part.start, part.start + part.total - 1))
            error.args = (f"items {first} to {last} of a map: {error}",)
            raise error
        return values

    @property
    def refused(self) -> bool:
        """Whether nothing comes after the items that are here."""
        return self._supply.refusal is not None
