"""A whole pool, stepped by hand over one window in memory: ``stepped`` with maps and more workers.

All of it is the pool's own but MPI, threads and processes.  Whoever waits for a result has the
workers run a row each, one after another.  So what happens is the same each time, and a test may
have something else come in between, or a worker die, at any item.  What finds no room in the arena
hangs: nobody hands a worker its pieces while it waits for them.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from stepped import Clock

from workpool import contributions
from workpool.accumulator import Accumulators
from workpool.context import encode_setup
from workpool.driver.driver import Driver
from workpool.errors import ProtocolError
from workpool.extents import in_lines
from workpool.job.control import Choice
from workpool.journal.ledger import Ledgers
from workpool.members.doorbell import Doorbells
from workpool.members.leases import Leases
from workpool.pool.core import Core
from workpool.pool.hold import Hold
from workpool.pool.options import TaskOptions
from workpool.pool.view import View
from workpool.serializer.code_cache import CodeCache
from workpool.system.inherited import of_us
from workpool.testing import MemoryWindow
from workpool.worker.worker import Worker


class Died(ProtocolError):
    """Raised by an item: the worker has come to its end, and says nothing any more."""


Make: TypeAlias = "Callable[..., SteppedPool]"

ran: Counter[Any] = Counter()  # by item
during: dict[Any, Callable[[], object]] = {}  # what comes in between, by item


def note(item: Any, numbers: Any = None) -> Any:
    """Count a run of an item, have happen what is to happen during that, and add one to numbers."""
    ran[item] += 1
    during.get(item, bool)()
    if numbers is not None:
        numbers.add(1)
    return item


def fail() -> None:
    """Be what an item raises."""
    raise KeyError("this item")


def die() -> None:
    """Be what ends the worker that has an item."""
    raise Died


def die_once(item: Any) -> Callable[[], None]:
    """Return what ends the worker that has an item, once."""

    def die() -> None:
        del during[item]
        raise Died

    return die


class Endless(Iterator[int]):
    """Items without an end.

    Attributes
    ----------
    taken : int
        How many were, and the last of them.
    """

    taken = 0

    def __next__(self) -> int:
        self.taken += 1
        return self.taken


class Unsaid(Exception):
    """Has no message."""

    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


def drained(results: Iterator[Any], error: type[BaseException]) -> tuple[list[Any], Any]:
    """Return the results that come before an error, and the error."""
    found: list[Any] = []
    with pytest.raises(error) as raised:
        found.extend(results)
    assert next(results, None) is None
    return found, raised.value


@contextmanager
def pools() -> Iterator[Make]:
    """Give what makes a pool; in the end nothing may be left of any.  See the fixture `make`."""
    made: list[SteppedPool] = []

    def make(*args: Any, **options: Any) -> SteppedPool:
        made.append(SteppedPool(*args, **options))
        return made[-1]

    ran.clear()
    try:
        yield make
    finally:
        during.clear()
    for pool in made:
        pool.close()


class Members:
    """The processes of a job, and its workers."""

    def __init__(self, choice: Choice, window: MemoryWindow, carries: bool) -> None:
        several = range(choice.workers + 1)
        self.members = [SimpleNamespace(pid=100 + n, rank=n, host="here") for n in several]
        self.states: dict[int, str] = {}  # of those that do not run
        self.busy: list[int] = []  # in the middle of a row each, the latest one last
        self.workers = {n: Worker(n, n, "here", carries=carries) for n in several[1:]}
        for worker in self.workers.values():
            worker.attach(0, window, choice.geometry(), choice.claim, choice.lease_s)

    def state(self, member: int) -> str:
        """Return what a member's process does."""
        return self.states.get(member, "running")

    @property
    def dead(self) -> list[int]:
        """The members that have died."""
        return [member for member, state in self.states.items() if state == "dead"]

    def near(self, member: int) -> bool:
        """Return whether a member is on this host."""
        return True

    def work(self) -> None:
        """Have each worker that can run a row, if there is one for it."""
        for member, worker in self.workers.items():
            if member in self.states or member in self.busy:
                continue
            before = contributions.current.get()
            self.busy.append(member)
            worker.runners.own.begin()
            (service,) = worker._services.values()
            service._swept = 0.0
            try:
                service.work()
            except Died:
                self.states[member] = "dead"
            finally:
                self.busy.pop()
                contributions.current.set(before)


class Stepping(Driver):
    """A driver whose workers take steps whenever somebody wants to make progress."""

    step: Callable[[], object]

    def progress(self) -> int:
        """Have the workers take a step, and then do what there is to do."""
        self.step()
        return super().progress()


class SteppedPool(View):
    """A pool, which is all there is in its job.

    Parameters
    ----------
    workers : int
    carries : bool
        Whether outcomes carry contributions.
    journal : str or Path, optional
    initializer : callable, optional
    options : object
        Of ``Choice``.
    """

    def __init__(
        self,
        workers: int = 2,
        carries: bool = False,
        journal: Any = None,
        initializer: Any = None,
        **options: Any,
    ) -> None:
        chosen = {"rows": 8, "arena_nbytes": 1 << 22, "claim": "pointer", "lease_s": 1.0, **options}
        choice = Choice(workers, repository=0, **chosen)
        window, self.clock = MemoryWindow(choice.geometry().nbytes), Clock()
        self.members = Members(choice, window, carries)
        leases = Leases(lambda member: 0, self.members, choice.lease_s, self.clock)  # type: ignore[arg-type]
        self.driver = Stepping(window, choice.geometry(), leases, Doorbells({}))
        self.driver.step = self.step
        self.told: list[Callable[[], object]] = []  # what the attendant was, and has not done
        self.job: Any = SimpleNamespace(
            codes=CodeCache(),
            attendant=SimpleNamespace(
                wake=bool, ring=self._attend, call=self.told.append, join=self._join
            ),
            numbers=itertools.count(1),
            group=SimpleNamespace(is_own_rank=lambda *_: False),
            apart=False,
            lock=threading.RLock(),
            accumulators=Accumulators(),
            pools=[],
            serves=False,
            survive=carries,
            table=lambda choice: self.driver,
            living=lambda workers: workers - len(self.members.dead),
            rank_of=lambda member: member,
        )
        ledgers = Ledgers((None, ()), bool, bool, journal)
        core = Core(self.job, choice, encode_setup(of_us(None), initializer, ()), None, ledgers)
        super().__init__(core, TaskOptions(), Hold(core))

    def step(self) -> None:
        """Have the workers do something, and time go by."""
        self.members.work()
        self.clock.now_s += 0.1

    def stop_current(self, seconds: float) -> None:
        """Stop the worker that is just running a row for so long, while all else goes on."""
        member = self.members.busy[-1]
        self.members.states[member] = "stopped"
        for _ in range(int(10 * seconds)):
            self.driver.progress()
        del self.members.states[member]

    def _attend(self) -> None:
        """Do what the attendant does as long as somebody waits who makes no progress himself."""
        idle = 0
        while self.driver.outstanding and idle < 30:
            idle = 0 if self.driver.progress() else idle + 1

    def _join(self, ended: Callable[[], bool]) -> None:
        while self.told:
            self.told.pop(0)()

    def close(self) -> None:
        """Shut the pool down, and check that nothing of it is left."""
        self.shutdown()
        self.driver.progress()  # what has failed in the middle is gone by this
        driver, core = self.driver, self._core
        assert not any((driver.outstanding, self.job.pools, core._pending, self.told))
        driver.close()
        store = driver._store
        codes = (code.placed.extent for code in store._codes.values() if code.placed)
        assert store.busy_nbytes == sum(in_lines(extent.nbytes) for extent in codes)
        assert not driver._segments._counters._lent
