"""A driver, its resolver and a whole worker, stepped by hand over one window in memory.

Everything of a job but MPI, threads and futures: so a test can have something fail, or come between
any two steps, and see what becomes of the tasks.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from workpool import accumulator
from workpool.accumulator import Accumulator, Accumulators
from workpool.context import CALL, Context, encode_setup
from workpool.driver.driver import Driver
from workpool.layout import Geometry
from workpool.members.doorbell import Doorbells
from workpool.members.leases import Leases
from workpool.pool.resolver import Resolver
from workpool.repository import Claim, Claimant
from workpool.serializer import Code, pack_call
from workpool.serializer.code_cache import CodeCache
from workpool.system.inherited import of_us
from workpool.tasks import PoolContext, Retry, Task
from workpool.testing import MemoryWindow
from workpool.worker.worker import Worker

#: The pool, and the worker's member.
POOL = WORKER = 1


class Future:
    """Notes what it gets."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self._task: Task | None = None

    def resolve(self, value: Any, error: BaseException | None) -> None:
        """Note a result, or what was raised."""
        self.outcomes.append(value if error is None else error)

    def done(self) -> bool:
        """Return whether there is an outcome."""
        return bool(self.outcomes)


class Stepped:
    """A job of one worker.

    Parameters
    ----------
    carries : bool
        Whether outcomes carry contributions.
    leases : Leases, optional
    arena_nbytes : int
    """

    def __init__(
        self, carries: bool = False, leases: Leases | None = None, arena_nbytes: int = 1 << 22
    ) -> None:
        geometry = Geometry(rows=8, members=2, arena_nbytes=arena_nbytes)
        self.window = MemoryWindow(geometry.nbytes)
        self.driver = Driver(self.window, geometry, leases, Doorbells({}))
        self.accumulators = Accumulators()
        self.ended = 0  # tasks
        self.attend: Callable[[], None] = lambda: None
        self.resolver = Resolver(
            self.driver,
            self.accumulators,
            SimpleNamespace(store=lambda several: None),  # type: ignore[arg-type]
            threading.RLock(),
            POOL,
            self._count,
            lambda: self.attend(),
        )
        self.context = PoolContext(
            1,
            Context(POOL, None, encode_setup(of_us(None), None, ())),
            self.resolver.resolve,
            self.resolver.write_down,
            self.resolver.tally,
        )
        self.worker = Worker(WORKER, 0, "here", carries=carries)
        self.worker.attach(0, self.window, geometry, "pointer", 10.0)
        self.worker.runners.own.begin()
        (self.service,) = self.worker._services.values()
        self._numbers = itertools.count(1)
        self._codes = CodeCache()

    def _count(self, tasks: int) -> None:
        self.ended += tasks

    def code(self, fn: Callable[..., Any]) -> Code:
        """Return a function that travels on its own, as the one of many tasks does."""
        self._codes.lookup(fn)
        code = self._codes.lookup(fn)
        assert code is not None
        return code

    def accumulator(self, shape: int | tuple[int, ...] = ()) -> Accumulator:
        """Return numbers that tasks add to."""
        spec = accumulator.spec_of(shape, "int64", "sum")
        extent = self.driver.reserve(spec.nbytes)
        assert extent is not None
        spec = spec._replace(pool=POOL, offset=extent.offset)
        return self.accumulators.open(spec, None if self.worker.carries else self.window)

    def task(
        self, fn: Callable[..., Any], *args: Any, code: Code | None = None, retries: int = 0
    ) -> Task:
        """Return a task that is not submitted."""
        retry = Retry(retries, 0.0, (Exception,)) if retries else None
        payload = pack_call(fn, args, {}, code)
        number = next(self._numbers)
        task = Task(number, CALL, fn, self.context, payload, Future(), retry)
        task.future._task = task
        return task

    def submit(
        self, fn: Callable[..., Any], *args: Any, code: Code | None = None, retries: int = 0
    ) -> Task:
        """Submit a task."""
        task = self.task(fn, *args, code=code, retries=retries)
        self.driver.submit(task, code)
        return task

    def share_a_row(self, tasks: list[Task], code: Code) -> None:
        """Publish tasks in one row, as those of a function that is known to be short."""
        shared = self.driver._store.code(code)
        shared.measured(1, [1000] * 1000)
        for task in tasks:
            task.code = shared
        self.driver._backlog.tasks.extend(tasks)
        self.driver._dispatcher.publish()
        (batch,) = self.driver._rows.values()
        assert batch.tasks == tasks

    def claim(self) -> tuple[Claimant, Claim]:
        """Have the worker claim a row, and nothing else."""
        claimant = self.service._claimant
        offers = claimant.take(1)
        assert isinstance(offers, list)
        claim = claimant.claim(offers[0])
        assert isinstance(claim, Claim)
        return claimant, claim

    def work(self) -> None:
        """Have the worker run what there is."""
        self.service._swept = 0.0
        self.service.work()

    def go(self, rounds: int = 30) -> None:
        """Have both halves do what there is to do, and look again for what nobody knows of."""
        idle = 0
        while rounds and idle < 3:
            self.driver.progress()
            self.work()
            self.driver.progress()
            idle = 0 if self.driver.outstanding else idle + 1
            rounds -= 1

    def leave(self) -> None:
        """End what the worker has begun."""
        self.worker.runners.leave()


@contextmanager
def jobs() -> Iterator[Callable[..., Stepped]]:
    """Give what makes a job, and end what each has begun.  See the fixture `make_job`."""
    made: list[Stepped] = []

    def make_job(**options: Any) -> Stepped:
        made.append(Stepped(**options))
        return made[-1]

    yield make_job
    for job in made:
        job.leave()


def outcomes(tasks: list[Task]) -> list[Any]:
    """Return what each of some futures has got, which must be one outcome."""
    counts = Counter(len(task.future.outcomes) for task in tasks)
    assert set(counts) <= {1}, f"futures by their number of outcomes: {dict(counts)}"
    return [task.future.outcomes[0] for task in tasks]


# A host that falls silent.


class Peers:
    """Workers of which nothing can be seen from here."""

    def __init__(self) -> None:
        self.members = [SimpleNamespace(pid=1, rank=rank, host="there") for rank in range(2)]

    def state(self, member: int) -> str:
        """Return what a member's process does."""
        return "elsewhere"

    def near(self, member: int) -> bool:
        """Return whether a member is on this host."""
        return False


class Clock:
    """Says what time it is."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self, job: Stepped, seconds: float) -> None:
        """Have a driver make progress while time goes by."""
        for _ in range(int(2 * seconds)):
            self.now_s += 0.5
            job.driver.progress()


def silent(clock: Clock) -> Leases:
    """Return leases, of a second, of workers from which nothing is heard."""
    return Leases(lambda member: 0, Peers(), 1.0, clock)  # type: ignore[arg-type]
