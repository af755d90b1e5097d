"""The protocol carried out over a window: every step is one compare-and-swap of a row's word.

The row's word alone decides.  HEAD, TAIL and TICKET only say where to look: they may be stale, run
ahead, or be lost with a rank, and the worst that happens is that a READY row lies behind the head
until ``sweep`` finds it.  Three habits make the rest safe:

* Nothing is published before the flush that completes what it points to.
* Each compare-and-swap compares with the word that its caller *holds*: the one that it saw when it
  decided.  A fresh load would make a stale decision succeed.
* A Get of the words is a hint of where to try, never a proof that it worked.

Three facts are taken from a Get all the same, because from then on nobody but the reader changes
the word, or it only grows, so no later look can deny them: that a row of ours is DONE, WANTED or
OFFERED, for its submitter; that the row of our outcome speaks of something else than that by now,
for the worker that waits to use the outcome's room again; that a member has come to a collective
call.  A look in the midst of a change cannot make them up: the state is one byte of the word.

``Publisher`` is the submitter's half and ``Claimant`` the worker's; any member may be both.
"""

from __future__ import annotations

from .claim import Claim, Offer
from .claimant import Claimant
from .items import Counters, take_items
from .publisher import Publisher
from .table import Row, Stream
from .tickets import TAKERS, Miss, PointerTaker

__all__ = [
    "TAKERS",
    "Claim",
    "Claimant",
    "Counters",
    "Miss",
    "Offer",
    "PointerTaker",
    "Publisher",
    "Row",
    "Stream",
    "take_items",
]
