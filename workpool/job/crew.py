"""How the driver brings its workers together, to do what takes all of them.

A worker that lives is waited for, for as long as its task takes.  One that has died is not waited
for, and one on another host that is not heard of any more ends the wait with an error.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..clock import Stopwatch
from ..driver.progress import progress_until
from ..errors import ResourceError, WorkerUnreachable
from ..interrupts import defer_handlers
from ..members.doorbell import Doorbells
from ..members.leases import Gone, Leases
from ..members.liveness import Liveness
from ..system.streams import VitalThread, say
from ..whole import collective
from .control import Caller, Choice, Order
from .survival import death_of, name_of
from .tables import Tables

#: How long workers are waited for before that is said.
LATE_S = 10.0

#: How long a step of several hosts may take when all have come for it: a host that falls silent in
#: the middle has the others wait in MPI for ever.  And how often that is seen to.
STEP_S = 60.0
LOOK_S = 0.5

#: How long after a step has failed here workers may take to fail as well.
FAILED_S = 8.0


class Crew:
    """The workers of a job, as their driver calls them.

    Parameters
    ----------
    control : Caller
    liveness : Liveness
    bells : Doorbells
    tables : Tables
        Served while a worker is waited for.
    survive : bool
        Whether the job outlives its workers.
    fail : callable
        ``fail(status)``: ends the job; by default with the program's status, if that has ended.
    """

    #: Whether it is the worker that asks: never, the workers are other processes.
    is_current = False

    def __init__(
        self,
        control: Caller,
        liveness: Liveness,
        bells: Doorbells,
        tables: Tables,
        survive: bool,
        fail: Callable[..., NoReturn],
    ) -> None:
        self.control = control
        self._liveness = liveness
        self._bells = bells
        self._tables = tables
        self._survive = survive
        self._fail = fail
        self._one_host = all(map(liveness.near, range(len(liveness.members))))

    def call(self, order: Order, part: Callable[[], None]) -> None:
        """Gather the workers between two tasks each, tell them what to do, and do our part of it.

        While a worker is busy, the wait for it may be interrupted: then nothing is done.

        Raises
        ------
        ResourceError
            If it would take those who have died.
        WorkerUnreachable
            If one is not heard any more.
        """
        control = self.control
        self.gather(control.obeyed)
        try:
            self.gather(self.summon())
            dead = self._liveness.dead() if self._survive else ()
            if dead and order.what != "stay":  # that one takes no collective call
                raise ResourceError(
                    "no table can be opened any more: that takes all ranks of the job, and "
                    f"{death_of(self._liveness, dead[0])}; a pool with the same options "
                    "(max_workers, claim, rows, arena_nbytes, repository, lease_s) as one before "
                    "it shares its table"
                )
            with defer_handlers():
                self._obey(order, part)
        except BaseException:
            if control.calling:  # else the workers that have come would wait for ever
                control.tell(Order("nothing"))
            raise
        if order.what == "open" and not self._one_host:
            self._await_opened()

    def _await_opened(self) -> None:
        """Wait until all workers have opened a table: they make a communicator of theirs, too."""
        late = self.gather(self.control.obeyed, STEP_S)
        silent = [member for member in late if self._liveness.state(member) != "dead"]
        if silent:
            say(
                f"{name_of(self._liveness, silent[0])} has not opened a table within {STEP_S:g} s, "
                "and others may wait for it in MPI for ever: the job ends"
            )
            self._fail(1)

    def close(self) -> None:
        """Free the window by which we call.  Collective."""
        self.control.window.close()

    def summon(self) -> int:
        """Ask the workers to come; return the word that each writes when it has."""
        word = self.control.call()
        self._bells.ring_all()
        return word

    @collective
    def _obey(self, order: Order, part: Callable[[], None]) -> None:
        """Tell the workers what to do, and do our part of it."""
        try:
            with self._watched():  # first: while it cannot be watched, nobody is told
                self.control.tell(order)
                part()
        except (ResourceError, MemoryError) as error:
            # Where that comes on this rank alone, the others may wait for it in MPI for ever.
            if self.gather(self.control.obeyed, FAILED_S):
                why = str(error) or type(error).__name__
                say(f"{why}; other ranks still wait for this one in MPI: the job ends")
                self._fail(1)
            raise

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """End the job if our part of a step does not end, as where a host was cut off."""
        ended, watch = threading.Event(), Stopwatch()

        def look() -> None:
            while not ended.wait(LOOK_S):
                if watch.look() > STEP_S:
                    say(
                        f"a step that takes all ranks has not ended within {STEP_S:g} s, as if a "
                        "host were cut off: the job ends"
                    )
                    self._fail()

        if not self._one_host:
            VitalThread("watch", look, "the watch on a step of all ranks").start()
        try:
            yield
        finally:
            ended.set()

    def gather(self, word: int, limit_s: float = math.inf, late: Container[int] = ()) -> list[int]:
        """Wait until each living worker that is not in `late` has written `word`, or a later one.

        Returns
        -------
        list of int
            The workers that have not.

        Raises
        ------
        WorkerUnreachable
            If one is waited for without a limit, and its heart is not heard any more.
        """
        state = self._liveness.state
        hearts = self._tables.hearts()
        served = 0 if hearts is None else hearts[0].workers  # by them: the others have no table
        watch, late_s = Stopwatch(), LATE_S

        def ended() -> bool:
            nonlocal late_s
            missing = self.control.missing(word)
            if self._survive:
                missing = [m for m in missing if m not in late and state(m) != "dead"]
            if missing and limit_s == math.inf:  # where a whole host has died, nobody reports it
                if hearts is not None:
                    self._check_heard(*hearts, missing)
                if watch.look() > STEP_S:
                    self._check_came([member for member in missing if member > served])
            if missing and watch.look() > late_s:
                late_s = math.inf
                others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                say(
                    "a step that takes all workers waits until each has ended its task, or goes on "
                    f"if it is stopped: {name_of(self._liveness, missing[0])}{others}"
                )
            return not missing

        progress_until(self._tables.drivers, ended, limit_s)
        return self.control.missing(word)  # anew: one that was seen dead may have left well before

    def _check_came(self, members: list[int]) -> None:
        """Raise WorkerUnreachable if one of these members, who serve no table, is on another host.

        They have no task: all would have come at once.
        """
        far = [member for member in members if not self._liveness.near(member)]
        if far:
            name = name_of(self._liveness, far[0])
            raise WorkerUnreachable(f"{name} has not been heard of for {STEP_S:g} s")

    def _check_heard(self, choice: Choice, leases: Leases, members: list[int]) -> None:
        """Raise WorkerUnreachable if one of these members is on another host, and silent."""
        if not leases.due():
            return
        serving = [member for member in members if member <= choice.workers]
        for member, gone in leases.gone(serving).items():
            if gone is Gone.SILENT:
                name = name_of(self._liveness, member)
                raise WorkerUnreachable(f"{name} has not been heard of for {choice.lease_s:g} s")
