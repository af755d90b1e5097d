"""The driver's hold on its job: which tables are open, and who serves them.

Tables are opened and closed collectively, by workers that the driver has called together (see
``crew``); the driver goes on serving its tables while it waits for them.

Pools are served by the tables that are open: a pool with the same sizes as another shares its
table, so opening one costs nothing, and pools may come and go while workers are busy.

A job may outlive the death of workers (see ``survival``).  Then nobody waits for the dead, tables
that are open go on working, and nothing collective happens any more.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..accumulator import Accumulators
from ..backoff import WAIT_S, Backoff, wake_on_time
from ..driver.driver import Driver
from ..errors import UsageError
from ..layout import FAREWELL, Geometry
from ..members import doorbell
from ..members.doorbell import Doorbell, Doorbells
from ..members.leases import Leases
from ..members.liveness import Liveness, this_process
from ..serializer import CodeCache
from ..system.status import UNFINISHED, Reporter
from ..system.streams import flush, say
from ..whole import defer_interrupts
from .control import Caller, Choice, Order
from .crew import Crew
from .drain import Drain
from .service import meet, open_table
from .survival import Sentry, abort, name_of, obituary, vanish
from .threads import Attendant, ThreadWorker

if TYPE_CHECKING:
    from .. import rma

#: How long workers may take to leave a job that outlives them: they may be stopped, or evicted.
LEAVE_S = 5.0


class _Table(NamedTuple):
    """A table on the driver's side."""

    number: int
    driver: Driver
    window: rma.Window

    def close(self) -> None:
        """Free the window, of which nobody makes use any more.  Collective."""
        self.driver.close()
        self.window.close()


class Runtime:
    """The driver's hold on its job.

    Parameters
    ----------
    group : rma.Group
        Rank 0 of it is this process.
    survive : bool
        Whether the job outlives its workers.  On every rank the same.
    fail : callable, optional
        ``fail(status)``: ends the job if somebody listens, else returns.

    Attributes
    ----------
    liveness : Liveness or None
        Who is dead.
    lock : RLock
        Held while a table is opened or closed, and while a pool is made: the job does not end then.
    """

    def __init__(
        self, group: rma.Group, survive: bool = False, fail: Callable[[int], object] = bool
    ) -> None:
        self.group = group
        self.survive = survive and group.size > 1
        self.liveness: Liveness | None = None  # with one rank, nobody else is there to die
        self.codes = CodeCache()
        self.accumulators = Accumulators()
        self.numbers = itertools.count(1)  # of tasks, contexts, pools: unique in the job
        self.pools: list[Any] = []  # open ones, in the order in which they were made
        self.lock = threading.RLock()
        self._tables: dict[Choice, _Table] = {}
        self._attendant = Attendant(
            lambda: self.drivers, lambda: any(pool.watched for pool in tuple(self.pools))
        )
        #: Told of what whoever started the job must know; None where nobody listens.
        self.reporter: Reporter | None = None
        self._drain: Drain | None = None
        self._ending = self._closed = False
        #: What was made of choices that name no size of the arena.
        self.defaults: dict[Choice, Choice] = {}
        self._thread: ThreadWorker | None = None
        self._attached: set[int] = set()  # tables that it serves
        self._crew: Crew | None = None
        self._sentry: Sentry | None = None
        self._fail = fail
        defer_interrupts()
        wake_on_time()
        if group.size == 1:
            from .. import rma

            name = doorbell.name(this_process(), id(self))
            self._bells = Doorbells({1: name})
            self._thread = ThreadWorker(rma.processor_name(), Doorbell(name))
            return
        control = Caller(group)
        self.liveness = meet(group)
        members = self.liveness.members
        near = filter(self.liveness.near, range(1, group.size))
        self._bells = Doorbells({member: doorbell.name(members[member]) for member in near})
        hearts = None if survive else self._hearts
        self._crew = Crew(control, self.liveness, self._bells, self._until, hearts)
        if survive:
            self._sentry = Sentry(
                self.liveness, group.answers, self._lost, self._perish, self._learn
            )
            self._sentry.start()

    @property
    def workers(self) -> int:
        """Workers of the job: with one rank, a thread of it."""
        return max(1, self.group.size - 1)

    def rank_of(self, member: int) -> int:
        """Return the rank of a member, as the program knows it."""
        return 0 if self.group.size == 1 else self.group.outer(member)

    @property
    def drivers(self) -> list[Driver]:
        """Of all tables."""
        return [table.driver for table in tuple(self._tables.values())]

    @property
    def serves(self) -> bool:
        """Whether the thread that asks runs the tasks of a job of one rank."""
        return self._thread is not None and self._thread.is_current

    def is_open(self, choice: Choice) -> bool:
        """Return whether there is a table of this choice."""
        return choice in self._tables

    def attend(self) -> None:
        """See that somebody makes progress, even if nobody waits."""
        self._attendant.wake()

    def attend_closely(self) -> None:
        """See that somebody makes progress now: a thread waits that makes none itself."""
        self._attendant.ring()

    def call_back(self, callbacks: Callable[[], object]) -> None:
        """Have callbacks called by the thread that makes progress when nobody else does."""
        self._attendant.call(callbacks)

    def called_back(self, ended: Callable[[], bool]) -> None:
        """Wait for callbacks that were to be called."""
        self._attendant.join(ended)

    def table(self, choice: Choice) -> _Table:
        """Return the table of this choice, opened if it is new.  Waits for busy workers."""
        with self.lock:
            if self._closed or (self._ending and not self._attendant.is_current):
                raise UsageError("the job is ending: no pool can be made any more")
            if choice not in self._tables:
                geometry = Geometry(choice.rows, choice.workers + 1, choice.arena_nbytes)
                number = next(self.numbers)
                unused = self._unused()
                if unused is not None:
                    self._close_table(unused)
                self._call(
                    Order("open", number, geometry, choice),
                    lambda: self._open_table(number, geometry, choice),
                )
            table = self._tables[choice]
            if self._thread is not None and table.number not in self._attached:
                worker, geometry = self._thread.worker, table.driver.geometry
                parts = table.number, table.window, geometry, choice.claim, choice.lease_s
                table.driver.runs_tasks = self._thread.ident
                self._tell(lambda: worker.attach(*parts))
                self._attached.add(table.number)  # unless this was interrupted
            return table

    def _open_table(self, number: int, geometry: Geometry, choice: Choice) -> None:
        window = open_table(self.group, geometry, choice)
        driver = Driver(window, geometry, self._leases(window, geometry, choice), self._bells)
        self._tables[choice] = _Table(number, driver, window)

    def _leases(self, window: rma.Window, geometry: Geometry, choice: Choice) -> Leases | None:
        if self.liveness is None:
            return None
        return Leases(lambda m: window.load(geometry.beat(m)), self.liveness, choice.lease_s)

    def journal_opened(self, drain_s: float) -> None:
        """Prepare for SIGTERM, on every rank.  Waits for busy workers, the first time."""
        with self.lock:
            if self._drain is None:
                self._call(Order("stay"))
                self._drain = Drain(lambda: self.drivers, self._announce, self.fail)
            self._drain.open(drain_s)

    def journal_closed(self) -> None:
        """Count a journal that is open no more."""
        if self._drain is not None:
            self._drain.close()

    def _announce(self, drain_s: float) -> None:
        if self.reporter is not None:
            self.reporter.patience(drain_s)

    def _ended(self) -> None:
        if self._drain is not None:
            self._drain.ended()

    def cancel(self) -> None:
        """Give up what no worker has started: nobody shall wait for it."""
        for driver in self.drivers:
            driver.drained = True
        for pool in tuple(self.pools):
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Join the pools that are still open, send the workers home, free every window."""
        self._ending = True
        while True:
            while pools := tuple(self.pools):  # a callback may make one more
                pools[0].shutdown()
            if self._drain is not None and self._drain.cut:
                self.fail(UNFINISHED)  # a task still runs, and nobody knows for how long
            with self.lock:
                if self._closed:
                    return
                if not self.pools:  # a thread may have made one until now
                    self._closed = True
                    break
        self._attendant.stop()  # without the lock: a callback may be waiting for it
        with self.lock:
            if self.survive:
                self._leave()
            else:
                if (thread := self._thread) is not None:
                    self._tell(thread.stop)
                    self._until(lambda: thread.ended)
                self._call(Order("leave"), self._free)
            self._ended()

    def _free(self) -> None:
        """Free every window."""
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        if self._crew is not None:
            self._crew.control.window.close()
        self.group.close()

    def _unused(self) -> Choice | None:
        """A table that no pool uses: its memory is given back before more is asked for."""
        used = {pool.choice for pool in tuple(self.pools)}  # others leave the list meanwhile
        return next((choice for choice in self._tables if choice not in used), None)

    def _close_table(self, choice: Choice) -> None:
        table = self._tables[choice]
        if self._thread is not None:
            worker = self._thread.worker
            self._attached.discard(table.number)  # also if this is interrupted
            self._tell(lambda: worker.detach(table.number))

        def close() -> None:
            del self._tables[choice]
            table.close()

        self._call(Order("close", table.number), close)

    def _call(self, order: Order, part: Callable[[], None] = lambda: None) -> None:
        """Do something with all workers: our part of it, and they theirs."""
        if self._crew is None:
            part()
        else:
            self._crew.call(order, part)

    def _hearts(self) -> tuple[Choice, Leases] | None:
        """Return leases of those who serve a table, and its choice: the one that most serve."""
        if not self._tables:
            return None
        choice = max(self._tables, key=lambda choice: choice.workers)
        table = self._tables[choice]
        leases = self._leases(table.window, table.driver.geometry, choice)
        return None if leases is None else (choice, leases)

    def _tell(self, action: Callable[[], None]) -> None:
        """Have the thread that is our worker do something between two tasks."""
        assert self._thread is not None
        done = self._thread.ask(action)
        self._bells.ring_all()
        self._until(done.is_set)

    def _until(self, ended: Callable[[], bool], limit_s: float = math.inf) -> None:
        """Serve the tables until the workers have done something, at most for so long."""
        wait = Backoff(WAIT_S)
        give_up = time.monotonic() + limit_s
        while not ended() and time.monotonic() < give_up:
            if not sum(driver.progress() for driver in self.drivers):
                wait.pause()

    # --- the dead -----------------------------------------------------------------------------

    def fail(self, status: int) -> NoReturn:
        """End every process of the job at once, by the launcher if there is one."""
        self.tell_deaths()
        self._fail(status)
        if self.group.size > 1:
            abort(self.group, status)
        vanish(status)

    def tell_deaths(self) -> None:
        """Tell on standard error who has died, a line each."""
        if not self.survive or self.liveness is None:
            return
        for member in self.liveness.dead():
            lost = [driver.recovery.ran for driver in self.drivers]
            ran = [functions[member] for functions in lost if member in functions]
            say(obituary(self.liveness, member, *ran[:1]))

    def _leave(self) -> None:
        """Send the workers home; nothing is freed, for that is collective."""
        assert self._crew is not None
        assert self._sentry is not None
        assert self.liveness is not None
        crew, control = self._crew, self._crew.control
        late = crew.gather(control.obeyed, LEAVE_S)  # stopped, or busy: each is waited for once
        late = crew.gather(crew.summon(), LEAVE_S, late)
        self._sentry.stop()  # who leaves now is not dead
        control.tell(Order("leave"))
        missing = crew.gather(FAREWELL, LEAVE_S, late)
        self.liveness.excuse([member for member in range(self.group.size) if member not in missing])
        self.tell_deaths()
        for member in missing:
            if self.liveness.state(member) == "elsewhere":  # all ranks of its host may have died
                say(f"{name_of(self.liveness, member)} does not answer any more")

    def _lost(self) -> str:
        """Return why the job cannot go on; "" if it can."""
        assert self.liveness is not None
        dead = self.liveness.dead()
        for table in tuple(self._tables.values()):
            if (host := table.window.host) in dead:
                return (
                    f"{obituary(self.liveness, host)}: it held the repository of a pool; start the "
                    "job again, best with the repository on the driver's rank (repository=0)"
                )
        return ""

    def _learn(self) -> None:
        """Take in who has died on other hosts."""
        assert self.liveness is not None
        assert self._crew is not None
        if not self.group.one_host:
            self.liveness.learn(self._crew.control.mourned())

    def _perish(self, why: str) -> NoReturn:
        """End the job because of a death."""
        flush()
        say(why)
        self.tell_deaths()
        self._fail(1)
        vanish(1)  # the workers notice
