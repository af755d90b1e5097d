"""The tables that are open, as the driver of a job holds them.

Pools are served by the tables that are open: a pool with the same sizes as another shares its
table, so opening one costs nothing, and pools may come and go while workers are busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from .. import verbs
from ..clock import Stopwatch, sleep
from ..driver.driver import Driver
from ..members.doorbell import Doorbells
from ..members.leases import Leases
from ..members.liveness import Liveness
from ..system.streams import VitalThread, say
from .control import Choice
from .survival import name_of
from .together import open_window

if TYPE_CHECKING:
    from .. import rma

#: How often it is seen whether MPI answers, where a repository is on another host.
ANSWER_S = 0.5


class Tables:
    """The tables of one job, by choice.  Not thread-safe but for reading: the job holds its lock.

    A table is there when it has a driver.  To iterate gives also those whose window was opened when
    there was no memory left for a driver.

    Parameters
    ----------
    group : rma.Group
    liveness : Liveness or None
        Without, no worker is ever taken for gone.
    bells : Doorbells

    Attributes
    ----------
    defaults : dict of Choice to Choice
        What was made of choices that name no size of the arena.
    """

    def __init__(self, group: rma.Group, liveness: Liveness | None, bells: Doorbells) -> None:
        self.defaults: dict[Choice, Choice] = {}
        self._group = group
        self._liveness = liveness
        self._bells = bells
        self._windows: dict[Choice, rma.Window] = {}  # that the workers have open as well
        self._drivers: dict[Choice, Driver] = {}  # fewer, if there was no memory for one

    def __contains__(self, choice: object) -> bool:
        return choice in self._drivers

    def __getitem__(self, choice: Choice) -> Driver:
        return self._drivers[choice]

    def __iter__(self) -> Iterator[Choice]:
        return iter(tuple(self._windows))

    @property
    def drivers(self) -> list[Driver]:
        """Of all tables."""
        return list(self._drivers.values())

    def open(self, choice: Choice) -> None:
        """Open one more.  Collective."""
        window = self._windows[choice] = open_window(self._group, choice)
        leases = self._leases(window, choice)
        driver = self._drivers[choice] = Driver(window, choice.geometry(), leases, self._bells)
        if self._liveness is not None and not self._liveness.near(choice.repository):
            name = name_of(self._liveness, choice.repository)
            watch = partial(self._watch, choice, driver, name)
            VitalThread("watch", watch, "the watch on a repository").start()

    def _watch(self, choice: Choice, driver: Driver, name: str) -> None:
        """Say so, once, if the repository does not answer.

        Then the driver is in a call into MPI that does not end, and cannot say anything itself.
        """
        watch, heard_s = Stopwatch(), 0.0
        while self._windows.get(choice) is driver.window:
            beats = driver.beats  # it may make one call after the other, and never let us in
            if self._group.answers(ANSWER_S) or driver.beats != beats:
                heard_s = watch.look()
                sleep(ANSWER_S)
            elif watch.look() > heard_s + choice.lease_s:
                say(
                    f"{name}, which holds the repository, does not answer for {choice.lease_s:g} s "
                    "(its host, the network, or a task there that keeps the interpreter's lock): "
                    "all waits until it does; repository=0 needs no other host"
                )
                return

    def close(self, choice: Choice) -> None:
        """Close a table that no pool uses any more.  Collective."""
        if driver := self._drivers.pop(choice, None):
            driver.close()
        self._windows[choice].close()
        del self._windows[choice]

    def hearts(self) -> tuple[Choice, Leases] | None:
        """Return the table that most workers serve, and leases of these; None without a table."""
        if not self._windows:
            return None
        choice = max(self, key=lambda choice: choice.workers)
        leases = self._leases(self._windows[choice], choice)
        return None if leases is None else (choice, leases)

    def _leases(self, window: verbs.Window, choice: Choice) -> Leases | None:
        if self._liveness is None:
            return None
        geometry = choice.geometry()
        return Leases(lambda m: window.load(geometry.beat(m)), self._liveness, choice.lease_s)
