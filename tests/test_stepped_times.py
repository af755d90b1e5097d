"""When a worker looks for what nobody else will find, and what it says of how long tasks take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stepped import Stepped, outcomes

from workpool.repository import CONTENDED, EMPTY, Claimant, Miss
from workpool.worker import attempts, worker


def test_who_has_found_a_row_whose_ticket_was_lost_looks_for_others_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, now = Stepped(), 100.0
    monkeypatch.setattr(worker, "monotonic", lambda: now)
    sweeps = list[float]()
    for _ in range(10):
        now += job.service._rest_s + 1e-6
        job.service.work()
        sweeps.append(job.service._rest_s)
    assert sweeps[0] == worker.IDLE_SWEEP_S
    assert sweeps == sorted(sweeps)
    assert sweeps[-1] == worker.LONGEST_SWEEP_S
    tasks = [job.submit(abs, -n) for n in range(3)]
    job.driver.progress()
    while not isinstance(job.service._claimant.take(3), Miss):
        pass
    now += worker.LONGEST_SWEEP_S + 1e-6
    for _ in tasks:
        job.service.work()
        now += 2 * worker.SOON_S
    for _ in tasks:  # each resolves one at the least
        job.driver.progress()
    assert outcomes(tasks) == [0, 1, 2]
    job.leave()


def test_who_runs_tasks_that_come_one_by_one_looks_for_the_next_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, now = Stepped(), 100.0
    monkeypatch.setattr(worker, "monotonic", lambda: now)
    for _ in range(3):
        job.service.work()
    monkeypatch.delattr(Claimant, "take")
    tasks = []
    for number in range(4):
        tasks.append(job.submit(abs, -number))
        job.driver.progress()
        while not tasks[-1].over:
            job.service.work()
            job.driver.progress()
    assert outcomes(tasks) == [0, 1, 2, 3]
    assert job.service._rest_s == worker.SOON_S, "and then behind the head"
    monkeypatch.undo()
    job.leave()


@pytest.mark.parametrize("step", ["claim", "seize"])
def test_who_comes_second_looks_at_once_for_what_the_first_may_hold_tickets_of(
    make_job: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Who finds rows by sweeps may have tickets of older ones, and be busy for long."""

    def second(*_: object) -> Miss:
        monkeypatch.delattr(claimant, step)
        return CONTENDED

    job = make_job()
    monkeypatch.setattr(worker, "monotonic", lambda: 100.0)
    for _ in range(3):
        job.service.work()
    claimant, tasks = job.service._claimant, [job.submit(abs, -1)]
    job.driver.progress()
    if step == "claim":
        monkeypatch.setattr(claimant, "seize", lambda limit: EMPTY)  # a ticket is taken first
    else:
        while isinstance(claimant.take(1), Miss):  # a ticket that is lost
            pass
        tasks.append(job.submit(abs, -2))
        job.driver.progress()
    monkeypatch.setattr(claimant, step, second)
    for _ in range(2):
        job.service.work()
        job.driver.progress()
    assert outcomes(tasks) == [1, 2][: len(tasks)]


@pytest.mark.parametrize(
    ("sweeps_s", "soon_s"),
    [([0.0], worker.SOON_S), ([1e-3], 20e-3), ([3600.0], 0.2), ([1e-3, 3600.0], 20e-3)],
)
def test_where_to_look_takes_long_it_is_not_done_soon(
    monkeypatch: pytest.MonkeyPatch, sweeps_s: list[float], soon_s: float
) -> None:
    """Unless it took long because the process was stopped meanwhile."""
    job, now = Stepped(), 100.0
    monkeypatch.setattr(worker, "monotonic", lambda: now)
    genuine = job.service._claimant.sweep

    def sweep(*arguments: Any) -> object:
        nonlocal now
        now += next(left)
        return genuine(*arguments)

    monkeypatch.setattr(job.service._claimant, "sweep", sweep)
    left = iter(sweeps_s)
    for _ in sweeps_s:
        now += worker.LONGEST_SWEEP_S + 1e-6
        job.service.work()
    assert job.service._soon_s == pytest.approx(soon_s)
    job.leave()


def test_what_a_task_needs_and_waits_for_is_not_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(*arguments: Any) -> memoryview:
        nonlocal now_ns
        now_ns += 1000
        if now_ns == 10**9 + 1000:
            raise MemoryError
        return genuine(*arguments)

    job, now_ns = Stepped(), 10**9
    genuine = job.service._exchange.fetch
    monkeypatch.setattr(job.service._exchange, "fetch", fetch)
    for module in attempts, worker:
        monkeypatch.setattr(module, "monotonic_ns", lambda: now_ns)
    for elapsed_ns in (1000, 1000):  # of the first, which finds no memory; then nothing more
        task = job.submit(abs, -2)
        job.go()
        job.driver.count()
        assert job.resolver.tally.elapsed_ns[1] == elapsed_ns
    assert outcomes([task]) == [2]
    job.leave()
