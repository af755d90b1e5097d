"""The protocol carried out over a window: every step is one compare-and-swap of a row's word.

The row's word alone decides.  HEAD, TAIL and TICKET only say where to look: they may be stale, run
ahead, or be lost with a rank, and the worst that happens is that a READY row lies behind the head
until ``sweep`` finds it.  Three habits make the rest safe:

* Nothing is published before the flush that completes what it points to.
* Each compare-and-swap compares with the word that its caller *holds*: the one that it saw when it
  decided.  A fresh load would make a stale decision succeed.
* A Get of the words is a hint of where to try, never a proof that it worked.

What shares a flush happens in any order, also where no MPI that we know does so.  MPI keeps that of
one rank's atomics at one word (MPI-4.1, 12.7), and nothing here needs more:

* A publisher changes the words of its rows and TAIL by one flush.  Whoever sees TAIL first holds a
  ticket whose row is still RESERVED for it.  The row will change, so the ticket is kept until then,
  and those behind it (``EarlyTickets``).  A sweep, too, stops before such a row.
* An owner commits its row, claims the next one and moves HEAD by one flush.  Each of these means
  the same without the others.
* A descriptor is read by the flush that claims its row only if the row was seen READY before.

Three facts may be taken from a Get all the same.  Once true they stay true until the reader itself
acts, so that its knowledge may be old but not wrong:

* A row of ours is DONE, WANTED or OFFERED: only its submitter, the reader, takes the next step.
* A row no longer has the word that our attempt has left there, which never comes back: so the
  driver is done with our outcome, and its room may be used again.
* A member has come to a collective call: its word only grows.

Nor can a Get that meets a store half way make up a state: that lies within one byte of the word.

The modules::

    table         what both halves share: the words of the rows, as one member has seen them
    publisher     the submitter's half, ``Publisher``; reserver: which rows it publishes next
    claimant      the worker's half, ``Claimant``; awaiter: how it waits for the next row
    tickets       the two ways to take tickets
    claim         what a worker may have of a row
    items         the counters that hand out the items of a map

Any member may be both submitter and worker.
"""

from __future__ import annotations

from .claim import CONTENDED, EMPTY, Claim, Miss, Offer
from .claimant import Claimant
from .items import Counters, take_items
from .publisher import Publisher
from .table import Row, Stream
from .tickets import TAKERS, PointerTaker

__all__ = [
    "CONTENDED",
    "EMPTY",
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
