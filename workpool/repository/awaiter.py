"""How an idle worker waits for the next row, and makes it its own when it is published."""

from __future__ import annotations

from .. import layout, protocol, verbs
from ..layout import DESCRIPTOR_NBYTES, Geometry
from .claim import CONTENDED, EMPTY, Claim, Miss
from .table import Row, Table
from .tickets import Taker


class Awaiter(Table):
    """Waits for the row of the next ticket.

    The parameters are those of ``Table``, and `taker`: how tickets are taken.
    """

    def __init__(self, window: verbs.Window, geometry: Geometry, member: int, taker: Taker) -> None:
        super().__init__(window, geometry, member)
        self._taker = taker
        self._published = False  # whether `quiet` has seen the awaited row READY
        self._seen: list[int] = []  # the words of the last look, if there was nothing to take
        self._await(-1)

    @property
    def knows_next(self) -> bool:
        """Whether it is known which row comes next, and no ticket is owed for one before it."""
        return self._taker.first >= 0 and self._taker.owed is None

    def quiet(self, seconds: float = 0) -> bool:
        """Return whether there is nothing to take, as far as one can know.

        Parameters
        ----------
        seconds : float
            For how long to look; see ``await_change`` of a window.

        Notes
        -----
        RMA cost: that of ``await_change`` for one word, and for the row of a ticket that is known.
        """
        first = self._taker.first
        if first != self._awaited:
            self._await(first)
        words = self.window.await_change(self._seen, *self._places, seconds=seconds)
        # The row counts before its publisher has pushed the tail past it, which it does next.
        self._published = words[-1] == self._claim[1]
        quiet = self._taker.quiet(words[0]) and not self._published
        self._seen = words if quiet else []
        return quiet

    def seize(self, limit: int) -> Claim | Miss:
        """Claim the row of the next ticket, if it is the only one that there is for us.

        To be called when it was not `quiet`.  The row's ticket is taken later, together with the
        next one: somebody waits for the task, and nobody for the pointer to move.

        Parameters
        ----------
        limit : int
            As for `take`.

        Returns
        -------
        Claim or Miss
            ``Miss.EMPTY`` if the awaited row was not READY, or there are others to share as well:
            nothing was tried, and `take` and `claim` come next.

        Notes
        -----
        RMA cost: 1 get, 1 compare_and_swap, 1 flush.
        """
        if not (self._published and self._taker.alone(limit)):
            return EMPTY
        # Get and claim need no order between them.  We have seen READY, so the descriptor is there,
        # and nobody changes it before somebody has claimed the row; if that was another, our claim
        # fails, and the copy is not used.
        record, (found,) = self.window.get_and_swap(
            self._descriptor, DESCRIPTOR_NBYTES, (self._claim,)
        )
        # Whoever has claimed the row, nobody needs its ticket any more: that says where to look.
        self._taker.pass_first()
        _, word, mine = self._claim
        return Claim(self._number, mine, record) if found == word else CONTENDED

    def _expected(self, ticket: int) -> Row:
        """Return the row of a ticket as it is when published, and not yet claimed or cancelled."""
        number = self.geometry.row(ticket)
        return Row(number, protocol.ready(self.geometry.generation(ticket)))

    def _await(self, ticket: int) -> None:
        """Look for this ticket's row from now on, and not for any if it is -1."""
        self._awaited = ticket
        self._seen = []
        self._places: tuple[int, ...] = (layout.TAIL,)
        self._claim: verbs.Swap = layout.TAIL, verbs.NEVER, verbs.NEVER
        if ticket >= 0:
            # Computed now: as soon as the row is published, somebody waits for its claim.
            self._number, word = self._expected(ticket)
            place = self.geometry.word(self._number)
            self._places = layout.TAIL, place
            self._claim = place, word, protocol.claim(word, self.member)
            self._descriptor = self.geometry.descriptor(self._number)
