"""How the items of a ``map`` are cut into chunks: each worker computes the size of its next one.

With every schedule but ``adaptive`` the sizes follow from the number of items and of workers, so a
shared counter of the chunks that have been handed out is all that workers need to agree on::

    static      one chunk for each worker
    self        one item (P. Tang and P.-C. Yew, ICPP 1986)
    guided      a share of what is left, R / P (C. D. Polychronopoulos and D. J. Kuck, IEEE Trans.
                Computers C-36(12), 1987)
    factoring   P chunks of R / 2P each, then again of what is left (S. F. Hummel, E. Schonberg and
                L. E. Flynn, Comm. ACM 35(8), 1992)
    trapezoid   linearly from N / 2P down to one item (T. H. Tzen and L. M. Ni, IEEE Trans. Parallel
                and Distributed Systems 4(1), 1993)
    adaptive    as many items as take two milliseconds by the worker's own measure, or more where a
                chunk is dear to get, fewer towards the end (after the weighted and adaptive
                factoring of I. Banicescu and V. Velusamy)

R is what is left of N items, P the number of workers.  That each worker computes its chunk, instead
of being told, is the distributed chunk calculation of A. Eleliemy and F. M. Ciorba (2021).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from itertools import accumulate

from .errors import UsageError


class Schedule(IntEnum):
    """The schedules, by the names of the literature."""

    STATIC = 0
    SELF = 1
    GUIDED = 2
    FACTORING = 3
    TRAPEZOID = 4
    ADAPTIVE = 5

    @classmethod
    def named(cls, name: str) -> Schedule:
        """Return a schedule by its name; raise UsageError if there is none."""
        try:
            return cls[name.upper()]
        except (KeyError, AttributeError):
            names = ", ".join(schedule.name.lower() for schedule in cls)
            raise UsageError(f"schedule={name!r}: use one of {names}") from None


def tickets(schedule: Schedule, items: int, workers: int) -> int:
    """Return how far the shared counter goes: to the chunks, for ``adaptive`` to the items."""
    if schedule in (Schedule.ADAPTIVE, Schedule.SELF):
        return items
    return len(_ends(schedule, items, workers))


def chunk(schedule: Schedule, items: int, workers: int, ticket: int) -> range:
    """Return the items of one chunk.  Not for ``adaptive``, where they are the ticket itself."""
    if schedule is Schedule.SELF:
        return range(ticket, ticket + 1)
    ends = _ends(schedule, items, workers)
    return range(ends[ticket - 1] if ticket else 0, ends[ticket])


@lru_cache(maxsize=64)
def _ends(schedule: Schedule, items: int, workers: int) -> list[int]:
    """Return where each chunk ends."""
    return list(accumulate(_sizes(schedule, items, workers)))


def _sizes(schedule: Schedule, items: int, workers: int) -> list[int]:
    sizes: list[int] = []
    left = items
    most = max(1, -(-items // (2 * workers)))
    chunks = max(2, -(-2 * items // (most + 1)))
    while left:
        if schedule is Schedule.STATIC:
            size = items // workers + (len(sizes) < items % workers)
        elif schedule is Schedule.GUIDED:
            size = -(-left // workers)
        elif schedule is Schedule.FACTORING:
            size = -(-left // (2 * workers)) if len(sizes) % workers == 0 else sizes[-1]
        else:
            size = round(most - len(sizes) * (most - 1) / (chunks - 1))
        size = min(left, max(1, size))
        sizes.append(size)
        left -= size
    return sizes
