"""The driver's hold on its job: who works in it, which pools there are, and how it ends.

Tables are opened and closed collectively, by workers that the driver has called together (see
``crew``, and ``alone`` for a job of one rank); it goes on serving its tables while it waits for
them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..accumulator import Accumulators
from ..backoff import wake_on_time
from ..driver.driver import Driver
from ..errors import UsageError
from ..interrupts import defer_interrupts
from ..members import doorbell
from ..members.doorbell import Doorbell, Doorbells
from ..members.liveness import Liveness, this_process
from ..serializer.code_cache import CodeCache
from ..system.inherited import Environment, Inherited, of_us
from ..system.memory import keep_freed
from ..system.status import UNFINISHED, Reporter
from ..whole import collective
from .alone import Alone
from .attendant import Attendant
from .control import Caller, Choice, Order
from .crew import Crew
from .deaths import Deaths
from .drain import Drain
from .survival import abort, exit_at_once, orphaned
from .tables import Tables
from .together import meet

if TYPE_CHECKING:
    from .. import rma

#: What is said to code that wants to call the workers together while its own thread does so.
IN_A_STEP = (
    "neither a finalizer nor a signal's handler can make a pool, or open a journal, in the middle "
    "of a step of another: have it set a flag"
)

#: Bytes of memory that the driver keeps, to use it again for large results.
SPARES_NBYTES = 1 << 30


class Runtime:
    """The driver's hold on its job.

    Parameters
    ----------
    group : rma.Group
        Rank 0 of it is this process.
    survive : bool
        Whether the job outlives its workers.  On every rank the same.
    reporter : Reporter or None
        Told of what whoever started the job must know.

    Attributes
    ----------
    survive : bool
        Whether the job outlives its workers: no job of one rank does.
    liveness : Liveness or None
        Knows who is dead; None in a job of one rank.
    tables : Tables
        Those that are open.
    pools : list
        Open ones, in the order in which they were made.
    lock : RLock
        Held while a table is opened or closed, and while a pool is made: the job does not end then.
    attendant : Attendant
        Makes progress when nobody else does, and calls back.
    codes : CodeCache
    accumulators : Accumulators
    numbers : iterator of int
        Of tasks, contexts, pools: unique in the job.
    left : bool
        Whether everybody has left the job.
    status : int
        With which the job ends if a worker falls silent in a step that takes all ranks.
    """

    def __init__(self, group: rma.Group, survive: bool, reporter: Reporter | None) -> None:
        self.group = group
        self.survive = survive and group.size > 1
        self.codes = CodeCache()
        self.accumulators = Accumulators()
        self.numbers = itertools.count(1)
        self.pools: list[Any] = []
        self.lock = threading.RLock()
        self._reporter = reporter
        # The ranks of an SPMD program have run what this one has, and a thread shares all of it.
        self._environment = Environment() if reporter is not None and group.size > 1 else None
        self._ending = self._closed = self.left = False
        self.status = 1
        self._drain = Drain(lambda: self.tables.drivers, self._announce, self.fail)
        self._staying = False  # whether SIGTERM is the driver's matter alone
        self._deaths: Deaths | None = None
        self._crew: Crew | Alone
        defer_interrupts()
        wake_on_time()
        keep_freed(SPARES_NBYTES)
        self.liveness: Liveness | None = None
        if group.size == 1:  # nobody else is there to die
            here = this_process()
            name = doorbell.name(here, id(self))
            bells = Doorbells({1: name})
            self.tables = tables = Tables(group, None, bells)
            self._crew = Alone(here.host, Doorbell(name), bells, tables)
        else:
            control = Caller(group)
            self.liveness = liveness = meet(group)
            near = filter(liveness.near, range(1, group.size))
            bells = Doorbells({m: doorbell.name(liveness.members[m]) for m in near})
            self.tables = tables = Tables(group, liveness, bells)
            self._crew = crew = Crew(control, liveness, bells, tables, survive, self.fail)
            if survive:
                self._deaths = Deaths(group, liveness, crew, tables, self.fail)
        self.attendant = Attendant(
            lambda: self.tables.drivers,
            lambda: any(pool.watched for pool in tuple(self.pools)),
            self._give_up_lost,
            orphaned() if group.size > 1 else lambda: None,
        )

    @property
    def workers(self) -> int:
        """Workers of the job: with one rank, a thread of it."""
        return max(1, self.group.size - 1)

    def living(self, workers: int) -> int:
        """Return how many of the first so many workers nobody has seen die."""
        dead = self.liveness.dead() if self.survive and self.liveness is not None else ()
        return sum(member not in dead for member in range(1, workers + 1))

    def rank_of(self, member: int) -> int:
        """Return the rank of a member, as the program knows it."""
        return 0 if self.group.size == 1 else self.group.outer(member)

    @property
    def serves(self) -> bool:
        """Whether the thread that asks runs the tasks of a job of one rank."""
        return self._crew.is_current

    @property
    def entered(self) -> bool:
        """Whether this thread is in the middle of opening a table, or of a step of one."""
        owned: bool = self.lock._is_owned()  # type: ignore[attr-defined]
        return owned or any(driver.entered for driver in self.tables.drivers)

    @property
    def apart(self) -> bool:
        """Whether the workers have run nothing of the program."""
        return self._environment is not None

    def inherited(self) -> Inherited:
        """Return what a worker shall have of this process before the first task of a pool."""
        return of_us(self._environment)

    # --- tables -------------------------------------------------------------------------------

    def table(self, choice: Choice) -> Driver:
        """Return the table of this choice, opened if it is new.  Waits for busy workers."""
        defer_interrupts()  # the script may have put Python's own handler back
        with self.lock:
            if self._closed or (self._ending and not self.attendant.is_current):
                raise UsageError("the job is ending: no pool can be made any more")
            if choice not in self.tables:
                used = {pool.choice for pool in tuple(self.pools)}  # a copy: threads drop some
                unused = next((known for known in self.tables if known not in used), None)
                if unused is not None:  # give back its memory before more is asked for
                    self._crew.call(Order("close", unused), lambda: self.tables.close(unused))
                self._crew.call(Order("open", choice), lambda: self.tables.open(choice))
            return self.tables[choice]

    # --- the end ------------------------------------------------------------------------------

    def journal_opened(self, drain_s: float) -> None:
        """Prepare for SIGTERM, on every rank.  Waits for busy workers, the first time."""
        if self.entered:
            raise RuntimeError(IN_A_STEP)
        with self.lock:
            try:
                self._drain.open(drain_s)
                if not self._staying:
                    self._crew.call(Order("stay"), lambda: None)
                    self._staying = True
            except BaseException:  # Ctrl-C meanwhile, or no thread is left
                self._drain.close()
                raise

    def journal_closed(self) -> None:
        """Count a journal that is open no more."""
        self._drain.close()

    def _announce(self, drain_s: float) -> None:
        if self._reporter is not None:
            self._reporter.patience(drain_s)

    def _give_up_lost(self, interrupted: Callable[[], bool]) -> None:
        for pool in tuple(self.pools):
            pool.give_up_lost(interrupted)

    def cancel(self) -> None:
        """Give up what no worker has started: nobody shall wait for it."""
        for driver in self.tables.drivers:
            driver.drained = True
        for pool in tuple(self.pools):
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Join the pools that are still open, send the workers home, free every window.

        What a signal's handler has cut off is done when this is called again.
        """
        self._ending = True
        while True:
            while pools := tuple(self.pools):  # a callback may make one more
                pools[0].shutdown()
            if self._drain.cut:  # a task still runs, and nobody knows for how long
                self.fail(UNFINISHED)
            with self.lock:
                if self.left:
                    return
                if not self.pools:  # a thread may have made one until now
                    self._closed = True
                    break
        self.attendant.stop()  # without the lock: a callback may be waiting for it
        with self.lock:
            if self._deaths is not None:
                self._deaths.leave()
                self._drain.ended()
                self.left = True
            elif not self.left:
                self._crew.call(Order("leave"), self._free)

    @collective
    def _free(self) -> None:
        """Free every window: the workers do the same, and leave."""
        for choice in self.tables:
            self.tables.close(choice)
        self._crew.close()
        self.group.close()
        self._drain.ended()
        self.left = True

    def fail(self, status: int | None = None) -> NoReturn:
        """End every process of the job at once, by the launcher if there is one.

        With the program's status by default, if that has ended.
        """
        status = self.status if status is None else status
        if self._deaths is not None:
            self._deaths.tell()
        if self._reporter is not None:
            self._reporter.failed(status)
        if self.group.size > 1:
            abort(self.group, status)
        exit_at_once(status)
