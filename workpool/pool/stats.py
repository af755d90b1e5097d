"""What the workers of a pool have done."""

from __future__ import annotations

from typing import NamedTuple


class WorkerStats(NamedTuple):
    """What one worker has done for a pool.

    Parameters
    ----------
    rank : int
        The worker's, as the program knows it.
    tasks : int
        Whose outcomes have come; each attempt counts, and each item of a map, or each chunk with a
        ``chunksize``.
    busy_s : float
        Seconds that it has spent in them.
    evicted : int
        Attempts that were taken back from it, because it was gone.
    """

    rank: int
    tasks: int
    busy_s: float
    evicted: int
