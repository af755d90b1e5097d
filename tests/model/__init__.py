"""Small processes over the real ``Publisher`` and ``Claimant``, and what must hold between them.

    Submitter     publishes tasks, answers their owners, collects, cancels, takes back
    Worker        takes tickets, claims, reads the payload, delivers the outcome
    Rules         what a member may do to which word and which bytes, checked at every call
    invariants    what holds in every state, and when nobody has anything left to do
    case          all of them together, to be explored
    batch         the same of rows of several tasks; its ``explore`` is all of them

A task's payload and an attempt's outcome name themselves (task, ticket, owner), so that whoever
reads one can tell whether it is the right one.
"""

from __future__ import annotations

from .cases import METHODS, SECOND, case
from .places import GREEDY, Port, death_word, geometry, payload_of
from .rules import Rules
from .submitter import Submitter
from .tickets import explore_tickets
from .worker import Worker, find_one, forget

__all__ = [
    "GREEDY",
    "METHODS",
    "SECOND",
    "Port",
    "Rules",
    "Submitter",
    "Worker",
    "case",
    "death_word",
    "explore_tickets",
    "find_one",
    "forget",
    "geometry",
    "payload_of",
]
