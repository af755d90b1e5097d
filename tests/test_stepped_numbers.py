"""What tasks have added to accumulators counts once, where memory ends, or a host, in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stepped import Clock, Stepped, outcomes, silent

from workpool import accumulator, contributions, layout
from workpool.accumulator import Accumulator
from workpool.driver import collector
from workpool.errors import TaskLost


def add_and_return(numbers: Any, nbytes: int) -> bytes:
    numbers.add(1)
    return bytes(nbytes)


def add_to_both(first: Any, second: Any) -> None:
    first.add(1)
    second.add(np.ones(10, np.int64))


def add_ones(numbers: Any) -> None:
    numbers.add(np.ones(numbers.shape, np.int64))


@pytest.mark.parametrize("carries", [False, True])
def test_each_task_counts_once(make_job: Callable[..., Stepped], carries: bool) -> None:
    job = make_job(carries=carries)
    numbers = job.accumulator()
    tasks = [job.submit(add_and_return, numbers, 10) for _ in range(5)]
    job.go()
    assert outcomes(tasks) == [bytes(10)] * 5
    assert numbers.value() == job.ended == 5


def test_a_task_that_counts_is_not_tried_again_for_want_of_memory_for_its_outcome(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    numbers = job.accumulator()
    task = job.submit(add_and_return, numbers, 5000, retries=1)
    calls = fail_once(collector, "empty", MemoryError("for an outcome"))
    job.go()
    assert calls[0]
    (error,) = outcomes([task])
    assert isinstance(error, MemoryError)
    assert numbers.value() == 1


def test_what_is_carried_is_added_once_though_memory_ends_in_the_middle(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job(carries=True)
    first, second = job.accumulator(), job.accumulator((10,))
    task = job.submit(add_to_both, first, second)
    job.driver.progress()
    job.work()
    fail_once(accumulator, "combine", MemoryError("for a sum"), call=2)
    with pytest.raises(MemoryError):
        job.go()
    job.go()
    assert outcomes([task]) == [None]
    assert second.value().tolist() == [1] * 10
    assert first.value() == 1


@pytest.mark.parametrize("added", [False, True])
def test_what_is_cut_off_while_it_is_added_is_not_added_again(
    make_job: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch, added: bool
) -> None:
    class Alarm(Exception):
        pass

    def cut_off(self: Accumulator, part: Any) -> None:
        monkeypatch.setattr(Accumulator, "_add", genuine)
        if added:
            genuine(self, part)
        raise Alarm

    job = make_job(carries=True)
    numbers = job.accumulator()
    first = job.submit(add_and_return, numbers, 10)
    job.driver.progress()
    job.work()
    genuine = Accumulator._add
    monkeypatch.setattr(Accumulator, "_add", cut_off)
    with pytest.raises(Alarm):
        job.go()
    second = job.submit(add_and_return, numbers, 10)
    job.go()
    lost, value = outcomes([first, second])
    assert isinstance(lost, TaskLost)
    assert value == bytes(10)
    assert numbers.value() == 1 + added
    assert job.ended == 2


def test_a_sum_without_memory_costs_its_task_alone(
    make_job: Callable[..., Stepped], fail_once: Callable[..., list[int]]
) -> None:
    job = make_job()
    numbers = job.accumulator((contributions.KEPT_NBYTES // 8,))
    code = job.code(add_ones)
    tasks = [job.task(add_ones, numbers, code=code) for _ in range(4)]
    job.share_a_row(tasks, code)
    fail_once(contributions, "combine", MemoryError("for a sum"), call=2)
    job.go()
    kinds = [type(each) for each in outcomes(tasks)]
    assert kinds == [type(None), type(None), MemoryError, type(None)]
    assert (numbers.value() == 3).all()


@pytest.mark.parametrize(
    ("carries", "owner", "name"),
    [
        (True, contributions.Contributions, "packed"),
        (True, layout, "write_carried"),
        (False, contributions.Contributions, "total"),
    ],
)
@pytest.mark.parametrize("together", [1, 4])
def test_what_was_added_without_memory_for_it_costs_the_tasks_of_its_row(
    make_job: Callable[..., Stepped],
    fail_once: Callable[..., list[int]],
    carries: bool,
    owner: object,
    name: str,
    together: int,
) -> None:
    """And not the rank: that would be the job."""
    job = make_job(carries=carries)
    numbers = job.accumulator()
    code = job.code(add_and_return)
    tasks = [job.task(add_and_return, numbers, 10, code=code) for _ in range(together)]
    fail_once(owner, name, MemoryError("for a copy of what was added"))
    job.share_a_row(tasks, code)
    job.go()
    assert [type(each) for each in outcomes(tasks)] == [MemoryError] * together
    assert numbers.value() == 0
    after = job.submit(add_and_return, numbers, 10)
    job.go()
    assert outcomes([after]) == [bytes(10)]
    assert numbers.value() == 1


def test_tasks_of_a_host_that_falls_silent_are_taken_back(make_job: Callable[..., Stepped]) -> None:
    """Where hosts can, outcomes carry what they contribute: a row is never left COMMITTED."""
    clock = Clock()
    job = make_job(carries=True, leases=silent(clock))
    numbers = job.accumulator()
    task = job.submit(add_and_return, numbers, 10)
    job.driver.progress()
    claimant, claim = job.claim()
    clock.pass_by(job, 10)
    assert not claimant.holds(claim)
    job.go()
    assert outcomes([task]) == [bytes(10)]
    assert numbers.value() == 1
