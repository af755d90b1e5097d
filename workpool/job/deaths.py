"""What the driver does about deaths in a job that outlives its workers.

Nobody waits for the dead, tables that are open go on working, and nothing collective happens any
more: at the end the workers are sent home one by one, and no window is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ..layout.control import FAREWELL
from ..members.liveness import Liveness
from ..serializer import task_name
from ..system.streams import flush, say
from .control import Order
from .crew import Crew
from .survival import Sentry, death_of, name_of
from .tables import Tables

if TYPE_CHECKING:
    from .. import rma

#: How long workers may take to leave: they may be stopped, or evicted.
LEAVE_S = 5.0


class Deaths:
    """Watches over the other ranks, for the driver.

    Parameters
    ----------
    group : rma.Group
    liveness : Liveness
    crew : Crew
    tables : Tables
    fail : callable
        ``fail(status)``: tells of the deaths and ends the job.
    """

    def __init__(
        self,
        group: rma.Group,
        liveness: Liveness,
        crew: Crew,
        tables: Tables,
        fail: Callable[[int], NoReturn],
    ) -> None:
        self._group = group
        self._liveness = liveness
        self._crew = crew
        self._tables = tables
        self._fail = fail
        self._sentry = Sentry(liveness, group.answers, self._lost, self._end_job, self._learn)
        self._sentry.start()

    def tell(self) -> None:
        """Tell on standard error who has died, a line each."""
        for member in self._liveness.dead():
            lost = [driver.recovery.ran for driver in self._tables.drivers]
            ran = [task_name(functions[member]) for functions in lost if member in functions]
            say(death_of(self._liveness, member, *ran[:1]))

    def leave(self) -> None:
        """Send the workers home; nothing is freed, for that is collective."""
        crew, control = self._crew, self._crew.control
        late = crew.gather(control.obeyed, LEAVE_S)  # stopped, or busy: each is waited for once
        late = crew.gather(crew.summon(), LEAVE_S, late)
        self._sentry.stop()  # who leaves now is not dead
        control.tell(Order("leave"))
        missing = crew.gather(FAREWELL, LEAVE_S, late)
        members = range(self._group.size)
        self._liveness.excuse([member for member in members if member not in missing])
        self.tell()
        for member in missing:
            if self._liveness.state(member) == "elsewhere":  # all ranks of its host may have died
                say(f"{name_of(self._liveness, member)} does not answer any more")

    def _lost(self) -> str:
        """Return why the job cannot go on; "" if it can."""
        dead = self._liveness.dead()
        for choice in self._tables:
            if (host := choice.repository) in dead:
                return (
                    f"{death_of(self._liveness, host)}: it held the repository of a pool; start "
                    "the job again, best with the repository on the driver's rank (repository=0)"
                )
        return ""

    def _learn(self) -> None:
        """Take in who has died on other hosts."""
        if not self._group.one_host:
            self._liveness.learn(self._crew.control.reported_dead())

    def _end_job(self, why: str) -> NoReturn:
        """End the job because of a death."""
        flush()
        say(why)
        self._fail(1)
