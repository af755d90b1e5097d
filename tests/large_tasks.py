"""A driver and a worker that take turns in one thread, and the large tasks that they run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from workpool.context import LARGE_NBYTES, Context, TaskKind, encode_setup
from workpool.driver.driver import Driver
from workpool.layout import Geometry
from workpool.loss import Loss, Why
from workpool.members.doorbell import Doorbells
from workpool.repository import Row
from workpool.serializer import Encoded, Kind, pack_call
from workpool.serializer.code_cache import CodeCache
from workpool.serializer.outcomes import unpack_outcome
from workpool.system.inherited import of_us
from workpool.tasks import Finished, PoolContext, Retry, Tally, Task
from workpool.testing import MemoryWindow
from workpool.worker.worker import Worker, _Service

LARGE = LARGE_NBYTES // 8 + 1  # numbers
FIRST = 1 << 20  # the task with which each job begins

#: What else is done while a task runs, given the task's number.
during: Callable[[int], object] = int
failures: list[BaseException] = []  # of that


def double(number: int, values: Any) -> Any:
    """Return twice the values, after what the test wants done while this runs."""
    try:
        during(number)
    except BaseException as error:
        failures.append(error)
    if values[0] < 0:
        raise ValueError(number)
    return 2 * values


class DriverAndWorker:
    """A driver and a worker on one window."""

    def __init__(self, rows: int = 64, arena_nbytes: int = 16 << 20) -> None:
        geometry = Geometry(rows, 2, arena_nbytes)
        self.window = window = MemoryWindow(geometry.nbytes)
        self.driver = Pause.driver = Driver(window, geometry, None, Doorbells({}))
        worker = Worker(1, 1, "here")
        worker.runners.own.begin()
        self.service = _Service(worker, window, geometry, "pointer")
        setup = encode_setup(of_us(None), None, ())
        context = Context(1, None, setup)
        self.context = PoolContext(1, context, self.resolve, lambda several: None, Tally())
        self.codes = CodeCache()
        self.tries_again = True  # what was lost
        self.found: dict[int, Any] = {}
        self.collected: dict[int, bytes] = {}  # as it was when it was collected
        self.shared: list[int] = []  # how many tasks were in each row
        add, append = self.driver._published.add, self.driver._unresolved.append

        def counted(batch: Any, row: Row) -> None:
            self.shared.append(len(batch.tasks))
            add(batch, row)

        def noted(finished: Finished) -> None:
            self.collected.update((task.task_id, bytes(c)) for task, _, c in finished.outcomes)
            append(finished)

        self.driver._published.add = counted  # type: ignore[method-assign]
        self.driver._unresolved.append = noted  # type: ignore[method-assign]
        self.submit(FIRST, np.zeros(1))  # after which one knows how long tasks take
        self.finish()
        self.driver._collector.retire()
        self.free_nbytes = self.regions()  # beside code and context
        self.shared.clear()

    def regions(self) -> tuple[int, int]:
        """Return what is free in both parts of the arena."""
        exchange = self.service._exchange
        exchange.reap()
        return self.driver._store.region.free_nbytes, exchange.region.free_nbytes

    def task(
        self, number: int, values: Any, retry: Retry | None = None, lent: bool = False
    ) -> Task:
        code = self.codes.lookup(double)
        payload: Encoded = pack_call(double, (number, values), {}, code)
        if not isinstance(payload, bytes):
            payload.lent = lent
            if retry is not None and not lent:
                payload = payload.tobytes()
        return Task(number, TaskKind.CALL, double, self.context, payload, None, retry)

    def submit(
        self, number: int, values: Any, retry: Retry | None = None, lent: bool = False
    ) -> Task:
        task = self.task(number, values, retry, lent)
        self.driver.submit(task, self.codes.lookup(double))
        return task

    def resolve(self, finished: Finished) -> None:
        while finished.outcomes:
            task, kind, content = finished.outcomes.popleft()
            assert self.collected.pop(task.task_id) == content, "it was not there yet"
            if kind == Kind.LOST and self.tries_again:
                self.driver.retry(task, 0)
                continue
            if kind == Kind.LOST:
                self.found[task.task_id] = Loss.decode(content)
                continue
            value, error = unpack_outcome(kind, content)
            if error is not None and task.retry is not None and task.failures < task.retry.retries:
                task.failures += 1
                self.driver.retry(task, 0)
                continue
            assert task.task_id not in self.found
            self.found[task.task_id] = error or value
            task.batch = None

    def finish(self) -> None:
        """Go on until nothing is left."""
        end = time.monotonic() + 60
        while self.driver.outstanding:
            self.driver.progress()
            self.service.work()
            assert time.monotonic() < end
        self.driver.progress()

    def waiting(self, *arrays: Any) -> list[Task]:
        """Submit tasks which wait for each other, and publish them together, as short ones."""
        code = self.driver._store.code(self.codes.lookup(double))  # type: ignore[arg-type]
        code.measured(1, [10_000] * 1000)  # though one has taken long, on a busy machine
        dispatcher = self.driver._dispatcher
        dispatcher._again_s = time.monotonic() + 60
        self.driver.progress()
        tasks = [self.submit(number, values) for number, values in enumerate(arrays)]
        dispatcher._again_s = 0.0
        self.driver.progress()
        return tasks

    def take_back(self, task: Task) -> None:
        """Take it for lost."""
        if task.batch is not None:
            loss = Loss(Why.SILENT, 1, "here")
            with self.driver._lock:
                recovery = self.driver.recovery
                recovery._take_back_from(1, [task.batch], loss)

    def recall(self, task: Task) -> None:
        batch = task.batch
        if batch is not None:
            with self.driver._lock:
                self.driver._published.withdraw(batch)


class Pause:
    """What a worker does while it waits for its driver."""

    driver: Driver

    def __init__(self, *_: object) -> None:
        self.left = 1000

    def pause(self) -> None:
        self.left -= 1
        assert self.left, "nobody answers"
        self.driver.progress()
