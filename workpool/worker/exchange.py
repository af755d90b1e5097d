"""How a worker gets bytes from its driver and gives it others: in one place, or in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .. import layout
from ..arena import pair_nbytes, piece_of, write
from ..backoff import WAIT_S, Backoff
from ..errors import ProtocolError
from ..extents import Extent, Region
from ..layout import NOTHING, Blob, Piece
from ..protocol import Step
from ..repository import Claim, Claimant, Miss, Stream
from ..serializer import Encoded
from ..system.memory import empty
from .runner import Evicted

#: After so many bytes of results a worker sees what was collected, and uses the room again.  A few
#: large ones fit into a cache together with the arguments.
REAP_NBYTES = 1 << 21


class Exchange:
    """A worker's part of one arena, and its way into that of the driver.

    Parameters
    ----------
    claimant : Claimant

    Attributes
    ----------
    share_nbytes : int
        Bytes of the largest extent that an attempt may hold while it waits for another: a quarter
        of the region.  Wherever such an extent lies, a second one finds room as soon as all others
        are released, so the attempt does not wait for ever.
    """

    def __init__(self, claimant: Claimant) -> None:
        self.region = Region(claimant.geometry.region(claimant.member))
        self.share_nbytes = self.region.nbytes // 4
        self._window = claimant.window
        self._claimant = claimant
        self._reap_nbytes = REAP_NBYTES  # with more bytes in use, see first what was collected
        self._results: deque[tuple[int, int, Extent]] = deque()  # (row, our word, extent)

    def keep(self, claim: Claim, extents: Sequence[Extent]) -> None:
        """Keep an attempt's extents until its row has another word than the attempt has left there.

        Then the driver has fetched what is in them, or has taken the attempt back and wants none.
        """
        self._results.extend((claim.number, claim.word, extent) for extent in extents)

    # --- room for results ---------------------------------------------------------------------

    def reserve(self, nbytes: int) -> Extent:
        """Return room for a result, waiting until the driver has collected enough of the others.

        Notes
        -----
        RMA cost: none if there is room; else 1 look for each look at what was collected.
        """
        wait = Backoff(WAIT_S)
        while (extent := self.try_reserve(nbytes)) is None:
            wait.pause()
        return extent

    def try_reserve(self, nbytes: int) -> Extent | None:
        """Return room for results if there is any now."""
        if self.region.used_nbytes > self._reap_nbytes:
            self.reap()
            self._reap_nbytes = self.region.used_nbytes + REAP_NBYTES
        while (extent := self.region.reserve(nbytes)) is None:
            if not self.reap():
                return None
        return extent

    def reap(self) -> bool:
        """Release the extents that nobody needs any more; return whether there were some.

        Notes
        -----
        RMA cost: 1 look; none if no extent is kept.
        """
        if not self._results:
            return False
        words = self._claimant.look()
        kept: deque[tuple[int, int, Extent]] = deque()
        for number, word, extent in self._results:
            if words[number] == word:  # else it is over: a fact, see ``repository``
                kept.append((number, word, extent))
            else:
                self.region.release(extent)
        freed = len(kept) < len(self._results)
        self._results = kept
        return freed

    # --- pieces -------------------------------------------------------------------------------

    def blob(self, claim: Claim, stream: Stream, blob: Blob) -> bytes:
        """Return shared bytes that a descriptor names; see ``fetch``."""
        return bytes(self.fetch(claim, stream, blob.offset, blob.nbytes, memoryview(b"")))

    def fetch(
        self, claim: Claim, stream: Stream, offset: int, nbytes: int, inline: memoryview
    ) -> memoryview:
        """Return the bytes that an extent of the descriptor stands for.

        Raises
        ------
        Evicted
            If the attempt was taken back meanwhile.

        Notes
        -----
        RMA cost: none for inline bytes; 1 get, 1 flush and 1 load for others; in pieces, for each a
        request, the looks until its answer, 1 get and 1 flush, and one request more at the end.
        """
        if offset == layout.INLINE:
            return inline[:nbytes]
        if offset == layout.STREAMED:
            content = empty(nbytes)
            self._want_all(claim, stream, content)
            return content
        (content,) = self._get(claim, [(offset, nbytes)])
        return content

    def fetch_all(
        self, claim: Claim, payloads: Sequence[bytes | tuple[int, int]]
    ) -> list[bytes | memoryview]:
        """Return the payloads of a row's tasks, each of which stands here, or where it lies.

        Also those of tasks that are not started.  Should these be recalled, their extents may be
        used again while we read in them; but then we do not run them.

        Raises
        ------
        Evicted
            If the attempt was taken back meanwhile.

        Notes
        -----
        RMA cost: none if all stand here; else 1 get for each other, 1 flush and 1 load.
        """
        apart = [payload for payload in payloads if not isinstance(payload, bytes)]
        got = iter(self._get(claim, apart) if apart else ())
        return [payload if isinstance(payload, bytes) else next(got) for payload in payloads]

    def _get(self, claim: Claim, extents: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return what is in some extents that a row of ours names."""
        found = [empty(nbytes) for _, nbytes in extents]
        for (offset, _), content in zip(extents, found, strict=True):
            self._window.get(offset, content)
        self._window.flush()  # the bytes are here only after it
        # An extent is the row's as long as the row is ours: after an eviction it may be reused.
        if not self._claimant.holds(claim):
            raise Evicted
        return found

    def _want_all(self, claim: Claim, stream: Stream, content: memoryview) -> None:
        """Fill `content` with the pieces of a stream: while one is read, the next is asked for.

        Each comes to the other half of the driver's buffer than the one before.
        """
        position, total_nbytes = 0, content.nbytes
        self._want(claim, stream, position, total_nbytes)
        while position < total_nbytes:
            piece = self._answer(claim, Step.SUPPLY)
            nbytes = piece.extent.nbytes
            if piece.position != position or not 0 < nbytes <= total_nbytes - position:
                raise ProtocolError(f"asked for byte {position} of {total_nbytes}, got {piece}")
            start, position = position, position + nbytes
            if position < total_nbytes:
                self._want(claim, stream, position, total_nbytes)
            self._window.get(piece.extent.offset, content[start:position])
            self._window.flush()  # before we ask for the one after next, which comes to its place
        # At the end of the stream: the last piece was read.
        self._want(claim, stream, position, total_nbytes)
        self._answer(claim, Step.SUPPLY)

    def _want(self, claim: Claim, stream: Stream, position: int, total_nbytes: int) -> None:
        request = Piece(stream, position, total_nbytes, NOTHING)
        if not self._claimant.request(claim, Step.WANT, request):
            raise Evicted

    def offer_all(self, claim: Claim, encoded: Encoded) -> None:
        """Hand an outcome to the driver in pieces: while it takes one, the next is written."""
        pair, total_nbytes = self.reserve(pair_nbytes(self.share_nbytes)), len(encoded)
        try:
            for position in range(0, total_nbytes, pair.nbytes // 2):
                extent = piece_of(pair, position, total_nbytes)
                write(self._window, extent.offset, encoded, position, extent.nbytes)
                if position:  # the next one is written over it
                    self._answer(claim, Step.TAKE)
                piece = Piece(Stream.OUTCOME, position, total_nbytes, extent)
                if not self._claimant.request(claim, Step.OFFER, piece):
                    raise Evicted
            self._answer(claim, Step.TAKE)
        finally:
            self.region.release(pair)

    def _answer(self, claim: Claim, step: Step) -> Piece:
        """Wait until the driver has taken the step."""
        wait = Backoff(WAIT_S)
        while (answer := self._claimant.answered(claim, step)) is None:
            wait.pause()
        if isinstance(answer, Miss):
            raise Evicted
        return answer
