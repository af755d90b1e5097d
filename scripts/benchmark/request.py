"""What the table program asks of one measuring program, on its command line."""

from __future__ import annotations

import json
from typing import NamedTuple


class Request(NamedTuple):
    """One measurement.

    Parameters
    ----------
    measure : str
        The name of a function of ``measure`` and, for the limits, of ``limits``.
    peer : str
        Who is measured: one of ``peers.PEERS``.
    workers : int
    turn : int
        Which round it is.
    seconds : float
        About how long the pool may take for one figure; if it is slow, it does fewer tasks.
    share : float
        How much of the full number of tasks it does if it is fast, up to 1.
    launched_s : float
        When the process or job was started, by the monotonic clock.
    """

    measure: str
    peer: str
    workers: int
    turn: int
    seconds: float
    share: float
    launched_s: float = 0.0

    def encode(self) -> str:
        """Return the request as a word of a command line."""
        return json.dumps(self._asdict())

    @classmethod
    def decode(cls, word: str) -> Request:
        """Return what `encode` was given."""
        return cls(**json.loads(word))

    def count(self, most: int) -> int:
        """Return how many tasks are asked for, where all are `most`."""
        return max(1, round(most * self.share))
