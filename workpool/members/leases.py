"""Which members are gone, judged by their heartbeats and by what their processes do.

Each worker bumps a word of its own, some times in each lease, from a thread of its own.  Whoever
watches judges by its own clock how long the word has stood still, so no clock value is ever
compared with that of another host.  What counts is the time for which it has watched: where a whole
job was stopped, it may be the first that goes on.

A word that stands still is not yet a death: a task that keeps the interpreter's lock stops the
thread as well.  So the process is looked at, where it can be: one that runs is left alone, however
long its task takes.  On another host it cannot be seen; there a worker is given at least twice the
longest rest that its heart has had, which its word says as well: or tasks that keep the lock for
longer than the lease would be taken back again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from .. import layout
from ..clock import Stopwatch, monotonic
from ..system.streams import VitalThread
from ..whole import whole
from .liveness import Liveness

#: How often members are looked at.
LOOK_S = 0.1

#: How often a worker bumps its word in each lease, after how long at the latest; the least lease.
BEATS = 5
MOST_BEAT_S = 1.0
LEAST_LEASE_S = 0.5

#: How long a heart that cannot be seen may rest, in terms of its longest rest so far.
MORE_REST = 2.0

#: How often it looks whether the task that it runs holds up others.
WATCH_S = 5e-3


class Gone(Enum):
    """How a member was lost."""

    DEAD = "dead"  #: its process is gone: nothing of it can come any more
    STOPPED = "stopped"  #: its process does not run, but may some day
    SILENT = "silent"  #: its heart stands still, and its process cannot be seen from here


class _Seen(NamedTuple):
    beat: int
    since_s: float  # of the time for which we have watched


class Leases:
    """Watches members.

    Parameters
    ----------
    beat : callable
        ``beat(member)``: the word of its heart.
    peers : Liveness
        What their processes do.
    lease_s : float
        How long a heart may stand still.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        beat: Callable[[int], int],
        peers: Liveness,
        lease_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.peers = peers
        self._beat = beat
        self._lease_s = lease_s
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._looked = clock()
        self._watch = Stopwatch(lease_s / BEATS, clock)

    def due(self) -> bool:
        """Return whether it is time to look; True once for each time."""
        now = self._clock()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        return True

    def put_off(self) -> None:
        """Put off the next look by `LOOK_S`."""
        self._looked = self._clock()

    def gone(self, members: Collection[int]) -> dict[int, Gone]:
        """Return which of some members are gone, and how.

        Those that are not asked about are forgotten: the next time their lease begins anew.  It
        takes `BEATS` calls at least to end.

        Notes
        -----
        RMA cost: 1 load for each member whose process lives.
        """
        watched_s = self._watch.look()
        self._seen = {member: seen for member, seen in self._seen.items() if member in members}
        found: dict[int, Gone] = {}
        for member in members:
            state = self.peers.state(member)
            if state == "dead":
                found[member] = Gone.DEAD
                continue
            beat = self._beat(member)
            seen = self._seen.get(member)
            if seen is None or seen.beat != beat:
                self._seen[member] = _Seen(beat, watched_s)
                continue
            lease_s = self._lease_s
            if state == "elsewhere":
                lease_s = max(lease_s, MORE_REST * layout.rest_of(beat))
            if state != "running" and watched_s - seen.since_s >= lease_s:
                found[member] = Gone.STOPPED if state == "stopped" else Gone.SILENT
        return found


class Heart(VitalThread):
    """Beats as long as this process can run Python, whatever its task does.

    Parameters
    ----------
    beat : callable
        ``beat(rest_s)``, with the longest rest between two beats so far.
    watch : callable, optional
        Called every `WATCH_S` while somebody has asked for it by ``hurry``, until it returns False.

    Attributes
    ----------
    still : threading.Lock
        Held while it beats, and by whoever takes away what it beats for.
    """

    def __init__(
        self, beat: Callable[[float], None], watch: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__("heart", self._run, "the worker's heart")
        self.still = threading.Lock()
        self._beat = beat
        self._watch = watch
        self._hurries = False
        self._every_s = MOST_BEAT_S
        self._rest_s = 0.0
        self._awake = threading.Event()
        self._stopped = False

    def keep(self, lease_s: float) -> None:
        """Beat often enough for this lease as well."""
        self._every_s = min(self._every_s, lease_s / BEATS)
        self._awake.set()

    def hurry(self) -> None:
        """Have something watched."""
        if not self._hurries:
            self._hurries = True
            self._awake.set()

    def _run(self) -> None:
        beaten = monotonic()
        while not self._stopped:
            rest_s = beaten + self._every_s - monotonic()
            self._awake.wait(WATCH_S if self._hurries else max(0.0, rest_s))
            self._awake.clear()
            beaten = self._step(beaten)

    @whole  # a task may be waiting for what we hold, and a finalizer for the task
    def _step(self, beaten: float) -> float:
        """Do what is due; return when it has beaten last."""
        with self.still:
            now = monotonic()
            if now >= beaten + self._every_s:
                self._rest_s = max(self._rest_s, now - beaten)
                beaten = now
                self._beat(self._rest_s)
            if self._hurries:
                self._hurries = False  # before we look: a `hurry` meanwhile wakes us again
                if self._watch():
                    self._hurries = True
        return beaten

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._awake.set()
        self.join()
