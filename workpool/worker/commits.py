"""From the outcome of a claimed row to its commit: put, flush, one compare-and-swap."""

from __future__ import annotations

from .. import layout
from ..arena import put
from ..contributions import Parts, contribute
from ..extents import Extent
from ..layout import NOTHING
from ..protocol import Step
from ..repository import EMPTY, Claim, Claimant, Miss, Offer
from ..serializer import CONTRIBUTES, Encoded, Kind, as_bytes
from .batch import Outcomes
from .exchange import Exchange
from .runner import Evicted, Runner


class Commits:
    """Commits what became of the rows that a worker has run in one table.

    Parameters
    ----------
    claimant : Claimant
    exchange : Exchange
    own : Runner
        The worker's, which has what tasks have added to accumulators.
    carries : bool
        Whether outcomes carry all contributions to accumulators, which the driver then adds.
    """

    def __init__(self, claimant: Claimant, exchange: Exchange, own: Runner, carries: bool) -> None:
        self._window = claimant.window
        self._claimant = claimant
        self._exchange = exchange
        self._own = own
        self._carries = carries

    def commit(
        self,
        claim: Claim,
        kind: int,
        content: Encoded | Outcomes,
        elapsed_ns: int,
        then: Offer | None,
    ) -> Claim | Miss:
        """Put an outcome where the driver finds it, and commit it; return the next claim."""
        held = []  # extents that the driver may read until the row is over
        if isinstance(content, Outcomes) and content.extent is not NOTHING:
            held.append(content.extent)
        try:
            kind, content, total = self._gathered(kind, content)
        except MemoryError as error:  # for a copy of contributions, or of outcomes
            (kind, content), total = self._refused(content, error), None
        record = self._record(claim, kind, content, elapsed_ns, held)
        following: Claim | Miss = EMPTY
        if total is not None:
            if self._claimant.commit(claim, record):
                # Only the attempt that won the commit contributes: exactly once.
                contribute(total, self._window)
                self._claimant.advance(claim, Step.COMPLETE)
        else:
            _, following = self._claimant.complete(claim, record, then)
        if held:
            self._exchange.keep(claim, held)
        return following

    def _gathered(
        self, kind: int, content: Encoded | Outcomes
    ) -> tuple[int, Encoded | Outcomes, Parts | None]:
        """Return an outcome as it is to be recorded, and what is to be added to the window.

        All that takes memory is done here: nothing may fail between commit and complete.
        """
        contributions = self._own.contributions
        carries = bool(contributions.kept) and (self._carries or contributions.foreign)
        if isinstance(content, Outcomes) and (carries or content.overflow):
            content = b"".join(content.entries)
        if carries:
            assert not isinstance(content, Outcomes)
            content = layout.write_carried(as_bytes(content), contributions.packed())
            return kind | CONTRIBUTES, content, None
        return kind, content, contributions.total() if contributions.kept else None

    def _refused(self, content: Encoded | Outcomes, error: MemoryError) -> tuple[int, bytes]:
        """Return what stands in the place of an outcome for which there is no memory."""
        failure = self._own.failure(error)
        if not isinstance(content, Outcomes):
            return Kind.EXCEPTION, failure
        entry = layout.write_task_outcome(Kind.EXCEPTION, 0, failure)
        return Kind.BATCH, entry * len(content.entries)

    def _record(
        self,
        claim: Claim,
        kind: int,
        content: Encoded | Outcomes,
        elapsed_ns: int,
        held: list[Extent],
    ) -> bytes:
        """Put an outcome into the window, if need be in pieces; return its record.

        A small one stands in the record itself.  Else the record names its extent, which is added
        to `held`.
        """
        if isinstance(content, Outcomes):  # they are in the window already
            return layout.write_outcome(kind, elapsed_ns, content.place.offset, content.nbytes)
        nbytes = len(content)
        if nbytes <= layout.INLINE_OUTCOME_NBYTES and isinstance(content, bytes):
            return layout.write_outcome(kind, elapsed_ns, layout.INLINE, nbytes, content)
        if nbytes > (self._exchange.share_nbytes if held else self._exchange.region.nbytes):
            try:
                self._exchange.offer_all(claim, content)
            except Evicted:
                self._exchange.keep(claim, held)
                raise
            offset = layout.STREAMED
        else:
            extent = self._exchange.reserve(nbytes)
            held.append(extent)
            put(self._window, extent.offset, content)  # complete with the record, before the commit
            offset = extent.offset
        return layout.write_outcome(kind, elapsed_ns, offset, nbytes)
