"""The stretches of a map: cut off its items, and shared out, as workers come near them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...errors import SerializationError
from ...interrupts import failures
from ...serializer import said
from ...whole import whole
from .cutter import SEGMENT_ITEMS, Cutter, Uncut
from .stretch import Stretch


def refused(error: BaseException) -> SerializationError:
    """Return what is said of a reduce whose function or items cannot be pickled."""
    refusal = SerializationError(f"cannot pickle a reduce's function or items: {said(error)}")
    refusal.__cause__ = error
    return refusal


class Map(Protocol):
    """What a supply needs of its map."""

    @property
    def over(self) -> bool:
        """Whether no more of it is shared out."""

    def fail(self, error: BaseException) -> None:
        """Have whoever iterates get an exception when the results so far are used up."""


class Supply:
    """What there is of a map's items.

    Parameters
    ----------
    mapping : Map
    cutter : Cutter
    share : callable
        ``share(stretch)``: publishes the first turns in one.
    lock : threading.RLock
        The pool's.

    Attributes
    ----------
    stretches : list of Stretch
        In order, until who iterates has used them up.
    refusal : BaseException or None
        Why nothing comes after the items that are here.
    """

    def __init__(
        self,
        mapping: Map,
        cutter: Cutter,
        share: Callable[[Stretch], None],
        lock: threading.RLock,
    ) -> None:
        self.stretches: list[Stretch] = []
        self.refusal: BaseException | None = None
        self._mapping = mapping
        self._cutter = cutter
        self._share = share
        self._lock = lock
        self._waiting: deque[Stretch] = deque()  # those of them that are not shared out yet
        self._total = 0  # items in all stretches so far
        self._untaken = 0  # weight of what is shared out, and that workers have not taken
        self._uncut: deque[Uncut] = deque()  # items that come after all stretches
        self._cutting = False  # whether a thread cuts some of these

    @property
    def ended(self) -> bool:
        """Whether no stretch will come after those that are here."""
        return not self._uncut

    @whole
    def add(self, uncut: Uncut, found: list[Stretch]) -> None:
        """Take on items, of which some are cut; none after a refusal."""
        with self._lock:
            self._have(found)
            if not uncut.ended and self.refusal is None:
                self._uncut.append(uncut)
        self._share_next()

    @whole
    def refuse(self, error: BaseException) -> None:
        """Say why nothing comes after the items that are here."""
        with self._lock:
            if self.refusal is None:
                self.refusal = error

    def use_up(self, stretch: Stretch) -> bool:
        """Drop a stretch; return whether none is left of those that the map was given with it."""
        at = self.stretches.index(stretch)
        self.stretches.pop(at)
        if stretch.last and at and not self.stretches[at - 1].last:
            self.stretches[at - 1].last = True  # it is the last one now
            return False
        return stretch.last

    @whole
    def all_taken(self, stretch: Stretch) -> None:
        """Share out what comes after a stretch."""
        with self._lock:
            self._untaken -= 0 if stretch.taken else stretch.weight
            stretch.taken = True
        self._share_next()

    @whole
    def _share_next(self) -> None:
        """Share out what is next, unless workers have enough to take; and cut what comes then.

        Each segment that is shared out wants room in the arena, and the first ones are waited for
        first.
        """
        cut = True
        while cut:
            found: list[Stretch] = []
            with self._lock:
                over = self._mapping.over
                while self._waiting and not over:
                    untaken = self._untaken + self._waiting[0].weight
                    if self._untaken and untaken > SEGMENT_ITEMS:
                        break
                    self._untaken = untaken
                    found.append(self._waiting.popleft())
                enough = self._waiting and not self._cutter.at_once
                cut = bool(self._uncut) and not (enough or self._cutting or over)
                self._cutting |= cut
            try:
                for stretch in found:
                    self._share(stretch)
                if cut:
                    self._cut_next()
            except BaseException as error:
                self._mapping.fail(error)  # else who iterates would wait for what is not shared out
                raise
            finally:
                if cut:
                    self._cutting = False

    def _cut_next(self) -> None:
        """Cut what is next; if it cannot be pickled, who iterates gets what is before it first."""
        uncut = self._uncut[0]
        refusal: BaseException | None = None
        found: list[Stretch] | None = []
        try:
            found = self._cutter.cut(uncut, large=True)
        except failures() as error:
            if self._cutter.operation is not None:
                # Not raised: this may be any thread that makes progress.
                self._mapping.fail(refused(error))
                return
            uncut, refusal = self._cutter.blame(uncut, error)
        assert found is not None
        with self._lock:
            self._have(found)
            if refusal is not None:
                self.refusal, self._uncut = refusal, deque([uncut])  # and nothing after it
            if uncut.ended:
                self._uncut.popleft()  # last: then who iterates may find that nothing is left

    def _have(self, found: list[Stretch]) -> None:
        for stretch in found:
            stretch.first = self._total
            self._total += stretch.total
        self.stretches += found
        self._waiting += found
