"""The control window, one for each job: it calls the workers to collective operations."""

from __future__ import annotations

from ..extents import LINE_NBYTES
from .words import WORD_NBYTES

CALLS = 0  # calls issued so far: odd while workers gather, even when all are there  (CAS word)
ORDER = 1 * LINE_NBYTES  # what they are called for                            (Put, Get)
ORDER_NBYTES = 15 * LINE_NBYTES
_PRESENCE = ORDER + ORDER_NBYTES  # for each member the call that it has come to     (CAS words)
FAREWELL = 1 << 62  # in the place of a call: it has left the job
DEAD = FAREWELL - 1  # it has died, as somebody on its host has seen


def presence(member: int) -> int:
    """Return the displacement of the word that says whether a member has come.

    Where there is no such member any more, the window ends.
    """
    return _PRESENCE + member * WORD_NBYTES
