"""How a worker runs the tasks of one row: in strides, so that what a row costs is shared by many.

The claim starts the first task alone.  From then on the worker says by one step that the outcomes
so far are in the window and that it starts the next task, or a stride of them if they are as short
as they were expected to be.  Within a stride it says nothing.  A task that takes long all the same
must not hold those behind it, which may even be what it waits for: so the worker's heart looks
after the stride from a thread of its own, puts the outcomes that there are, and gives back what is
not started.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Any

from .. import layout
from ..arena import put
from ..clock import monotonic_ns
from ..context import LARGE_NBYTES
from ..extents import Extent, Region
from ..repository import Claim, Claimant, Miss
from ..serializer import APART, CONTRIBUTES, Encoded, Kind, as_bytes
from .runner import AnyRunner, Evicted

#: Tasks are short if they take less than so many times the step that starts them.
SHORT_STEPS = 4

#: Stands for an outcome that comes with the row: the driver passes over it until then.
_LATER = layout.write_task_outcome(CONTRIBUTES, 0, b"")


class Outcomes:
    """What became of the first tasks of a row.

    They are entries, one after another.  A large outcome lies apart, and its entry says where.

    Parameters
    ----------
    extent : Extent
        Where all of that is in the window, as far as it fits; begins on a cache line.
    large_nbytes : int
        For large outcomes, at the end of it; a multiple of a cache line.

    Attributes
    ----------
    place : Extent
        Where entries are.
    entries : list of bytes
    nbytes : int
        Of all entries.
    large_nbytes : int
        Of the large outcomes, wherever they are.
    """

    def __init__(self, extent: Extent, large_nbytes: int = 0) -> None:
        self.extent = extent
        self.place = Extent(extent.offset, extent.nbytes - large_nbytes)
        self.entries: list[bytes] = []
        self.nbytes = self.large_nbytes = 0
        self._among_nbytes = 0  # of the large ones, those that are among the entries
        self._apart = Region(Extent(self.place.end, large_nbytes))

    @property
    def overflow(self) -> bool:
        """Whether there are more entries than have room in `place`."""
        return self.nbytes > self.place.nbytes

    @property
    def small_nbytes(self) -> int:
        """Bytes of all entries, without the large outcomes that are among them."""
        return self.nbytes - self._among_nbytes

    def reserve(self, nbytes: int) -> Extent | None:
        """Return where a large outcome may lie; None: it has to go among the entries."""
        extent = self._apart.reserve(nbytes)
        self.large_nbytes += nbytes
        if extent is None:
            self._among_nbytes += nbytes
        return extent


class BatchRun:
    """One row's tasks, from its claim until none is left, or those that are have gone elsewhere.

    Parameters
    ----------
    claimant : Claimant
    claim : Claim
    payloads : sequence of bytes or memoryview
        Of the tasks.
    outcomes : Outcomes
        What becomes of them; if there is no room, the first task will be the only one.
    runner : AnyRunner
        What runs them.
    call : tuple of EnteredPool or IsolatedPool, int and int
        What it must know of them: their pool, kind and code, as ``AnyRunner.call`` has it.
    """

    def __init__(
        self,
        claimant: Claimant,
        claim: Claim,
        payloads: Sequence[bytes | memoryview],
        outcomes: Outcomes,
        runner: AnyRunner,
        call: tuple[Any, int, int],
    ) -> None:
        self.outcomes = outcomes
        self._runner = runner
        self._call = call
        self._payloads = payloads
        self._window = claimant.window
        self._claimant = claimant
        self._claim = claim
        self._lock = Lock()  # on what is in the window, which worker and heart both change
        self._pending: deque[bytes | memoryview] = deque()  # started, as far as the word says
        self._said = 0  # outcomes that are in the window
        self._said_nbytes = 0  # of those
        self._over = False  # whether nothing is left for the heart to give back
        self._seen = -1  # outcomes that there were when the heart looked last

    def run(self) -> None:
        """Run the tasks; then `outcomes` has what became of those that were not given back.

        What each adds to accumulators is noted under its position in the row.

        Raises
        ------
        Evicted
            If the attempt was taken back.
        """
        outcomes, pending, runner, call = self.outcomes, self._pending, self._runner, self._call
        entries, contributions = outcomes.entries, runner.contributions
        kind: int
        short_ns, step_ns, end = runner.short_ns, sys.maxsize, monotonic_ns()
        pending.append(self._payloads[0])
        try:
            while True:
                begun, done = end, len(entries)
                while pending:
                    if outcomes.overflow and runner.retract():
                        break
                    try:
                        payload = pending.popleft()
                    except IndexError:  # the heart was quicker
                        break
                    contributions.task = len(entries)
                    kind, encoded = runner.call(*call, payload)
                    start, end = end, monotonic_ns()
                    try:
                        if len(encoded) > LARGE_NBYTES:
                            kind, encoded = self._set_apart(kind, encoded)
                        if contributions.parts:
                            kind |= CONTRIBUTES
                        entry = layout.write_task_outcome(kind, end - start, as_bytes(encoded))
                        if contributions.parts:
                            contributions.keep()
                    except MemoryError as error:  # for a copy of a large result, or of numbers
                        contributions.drop()
                        entry = layout.write_task_outcome(
                            Kind.EXCEPTION, end - start, runner.failure(error)
                        )
                    del encoded  # the next call may resize the array that it refers to
                    outcomes.nbytes += len(entry)
                    entries.append(entry)
                if not self._next(end - begun < short_ns * (len(entries) - done)):
                    return
                asked, end = end, monotonic_ns()
                step_ns = min(step_ns, end - asked)  # if nothing holds it up
                short_ns = max(runner.short_ns, SHORT_STEPS * step_ns)
        finally:
            with self._lock:
                self._over = True

    def _set_apart(self, kind: int, encoded: Encoded) -> tuple[int, Encoded]:
        """Put a large outcome apart; return what says where, or itself if there is no room."""
        extent = self.outcomes.reserve(len(encoded))
        if extent is None:
            return kind, encoded
        # Complete before the word says that it has ended, or the row is; and the next task may
        # change what this one has returned.
        put(self._window, extent.offset, encoded, buffered=True)
        return kind | APART, layout.write_extent(extent)

    def _next(self, stride: bool) -> bool:
        """Start the next tasks; return whether there are any."""
        payloads, outcomes, place = self._payloads, self.outcomes, self.outcomes.place
        with self._lock:
            # Until it is sure that there are more: after a recall the word still names the stride
            # that has run meanwhile, and the heart would give that back as soon as it has the lock.
            self._over = True
            done = len(outcomes.entries)
            if outcomes.overflow:
                return False  # all outcomes go elsewhere with the row; tasks that are left go back
            disp, entries = self._unsaid(done)
            left_nbytes = place.nbytes - outcomes.nbytes
            next_nbytes = outcomes.nbytes // done  # as far as one can tell
            # Without room for the next one, those that are there would have to be put elsewhere.
            if done == len(payloads) or next_nbytes > left_nbytes:
                self._window.put(disp, entries)  # complete when the row is
                return False
            if not self._said:
                self._claimant.announce(self._claim, place)
            ended = done - self._said
            count = min(layout.stride_after(done), len(payloads) - done)
            stride = stride and count * next_nbytes <= left_nbytes
            following = self._claimant.next(self._claim, disp, entries, ended, stride)
            if following is Miss.CONTENDED:
                raise Evicted
            self._note(ended, entries)
            if following:
                self._over = False
                self._pending.extend(payloads[done : done + (count if stride else 1)])
                self._runner.send_ahead(*self._call, self._pending)
            return bool(following)

    def watch(self) -> None:
        """Give back what waits behind a task that has run since the last call; for the heart.

        Notes
        -----
        RMA cost: none, or that of ``Claimant.give_back``.
        """
        seen, self._seen = self._seen, len(self.outcomes.entries)
        if seen == self._seen:
            self.give_back()

    def give_back(self) -> None:
        """Give back what is not started of a stride, and say what has ended; for the heart.

        Notes
        -----
        RMA cost: that of ``Claimant.give_back``.
        """
        with self._lock:
            if self._over or not layout.is_stride(self._claim.word) or not self._runner.retract():
                return
            # First, so that the worker begins none after we have counted.  The one after those that
            # have ended either runs or was not begun: then the row ends without an outcome of it,
            # and the driver has it run elsewhere.
            self._pending.clear()
            done = len(self.outcomes.entries)
            if done == len(self._payloads):
                return  # the worker is about to leave, with what it has
            ended = done - self._said
            # If there is no room for the outcomes, as many of these, for which there always is.
            disp, entries = self.outcomes.place.offset + self._said_nbytes, _LATER * ended
            if not self.outcomes.overflow:
                disp, entries = self._unsaid(done)
            if self._claimant.give_back(self._claim, disp, entries, ended):
                self._note(ended, entries)  # to be put no more: the driver may be reading it

    def holds(self) -> bool:
        """Return whether the attempt is still ours.

        Notes
        -----
        RMA cost: 1 load.
        """
        # Else the heart may give something back between the load of the word and its comparison
        # with the claim's: as if somebody had taken the row.
        with self._lock:
            return self._claimant.holds(self._claim)

    def _unsaid(self, done: int) -> tuple[int, bytes]:
        """Return the outcomes that are not in the window, and where they belong."""
        entries = b"".join(self.outcomes.entries[self._said : done])
        return self.outcomes.place.offset + self._said_nbytes, entries

    def _note(self, ended: int, entries: bytes) -> None:
        self._said += ended
        self._said_nbytes += len(entries)
