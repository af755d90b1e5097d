"""The states of a future, and waiting for it."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from runner import PATIENCE_S, drain, hold, needs, only, raises, until

from __main__ import inverse, meet, same

# The states of a future.


def case_states_of_a_task_that_runs(pool, gate):
    future = pool.submit(hold, gate.place, value=7)
    gate.wait_for(1)
    until(future.running, "running()")
    assert "state=running" in repr(future)
    assert not future.done()
    assert not future.cancelled()
    gate.open()
    assert future.result() == 7
    assert "state=finished returned int" in repr(future)
    assert future.done()
    assert not future.running()
    assert not future.cancelled()


@only("workpool", "the standard library leaves it to the caller")
def case_nobody_but_its_task_ends_a_future(pool, gate):
    future = pool.submit(hold, gate.place, value=7)
    for end in (
        lambda: future.set_result(1),
        lambda: future.set_exception(ValueError()),
        lambda: future.set_running_or_notify_cancel(),
    ):
        with raises(ValueError) as caught:
            end()
        assert "whose task alone ends it" in str(caught[0]), caught
    gate.open()
    assert future.result() == 7


def case_done_becomes_true_without_asking_for_the_result(pool):
    future = pool.submit(same, 1)
    until(future.done, "done()")


def case_result_with_timeout(pool, gate):
    future = pool.submit(hold, gate.place, value=7)
    gate.wait_for(1)
    for timeout in (0, 0.05):
        with raises(FutureTimeout):
            future.result(timeout)
        with raises(FutureTimeout):
            future.exception(timeout)
    gate.open()
    assert future.result(PATIENCE_S) == 7


@only("workpool", "the standard library raises ValueError, or TimeoutError, by version")
def case_a_timeout_that_is_no_number_is_over(pool, gate):
    future = pool.submit(hold, gate.place)
    with raises(FutureTimeout):
        future.result(float("nan"))
    gate.open()
    future.result(PATIENCE_S)


def case_exception_of_a_success_is_none(pool):
    assert pool.submit(same, 1).exception() is None


def case_result_may_be_asked_for_again(pool):
    future = pool.submit(same, [1])
    assert future.result() is future.result()
    failed = pool.submit(inverse, 0)
    assert failed.exception() is failed.exception()


def case_a_result_is_there_before_the_next_task_ends(pool, gate):
    quick = [pool.submit(same, n) for n in range(5)]
    held = pool.submit(hold, gate.place)
    assert [future.result(PATIENCE_S) for future in quick] == list(range(5))
    assert not held.done()
    gate.open()
    held.result()


@needs(2)
def case_a_task_that_waits_does_not_hold_up_those_behind_it(pool, gate):
    held = pool.submit(hold, gate.place)
    quick = [pool.submit(same, n) for n in range(200)]
    assert [future.result(PATIENCE_S) for future in quick] == list(range(200))
    assert not held.done()
    gate.open()
    held.result()


def case_as_many_tasks_at_the_same_time_as_workers(pool, tmp, workers):
    futures = [pool.submit(meet, str(tmp / "gate"), n, workers) for n in range(workers)]
    assert [future.result() for future in futures] == workers * [workers]


def case_as_many_at_the_same_time_after_many_short_ones(pool, tmp, workers):
    assert sum(pool.map(same, range(2000))) == sum(range(2000))
    case_as_many_tasks_at_the_same_time_as_workers(pool, tmp, workers)


# wait() and as_completed().


def case_wait_for_all(pool):
    futures = [pool.submit(same, n) for n in range(20)]
    done, waiting = wait(futures, return_when=ALL_COMPLETED)
    assert done == set(futures)
    assert not waiting


def case_wait_for_all_with_a_failure_among_them(pool):
    futures = [pool.submit(inverse, n) for n in range(10)]
    done, waiting = wait(futures)
    assert len(done) == 10
    assert not waiting


def case_wait_for_the_first(pool, gate):
    quick = pool.submit(same, 1)
    held = pool.submit(hold, gate.place)
    done, waiting = wait([quick, held], PATIENCE_S, return_when=FIRST_COMPLETED)
    assert (done, waiting) == ({quick}, {held})
    gate.open()
    held.result()


def case_wait_for_the_first_exception(pool, gate):
    quick = pool.submit(same, 1)
    failed = pool.submit(inverse, 0)
    held = pool.submit(hold, gate.place)
    done, waiting = wait([quick, failed, held], PATIENCE_S, return_when=FIRST_EXCEPTION)
    assert failed in done
    assert held in waiting
    assert done | waiting == {quick, failed, held}
    gate.open()
    held.result()


def case_wait_for_the_first_exception_when_there_is_none(pool):
    futures = [pool.submit(same, n) for n in range(5)]
    done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
    assert (done, waiting) == (set(futures), set())


def case_wait_with_timeout(pool, gate):
    held = pool.submit(hold, gate.place)
    for timeout in (0, 0.05):
        done, waiting = wait([held], timeout)
        assert (done, waiting) == (set(), {held})
    gate.open()
    held.result()


def case_wait_for_what_is_done_for_nothing_and_for_one_twice(pool):
    future = pool.submit(same, 1)
    future.result()
    assert wait([future]).done == {future}
    assert wait([future, future]).done == {future}
    assert wait([]) == (set(), set())


def case_wait_counts_a_cancelled_future_as_done(pool, gate, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    queued = pool.submit(same, 1)
    assert queued.cancel()
    gate.open()  # the oracle counts it only when a worker has come across it
    assert wait([queued, *held], PATIENCE_S).done == {queued, *held}
    assert list(as_completed([queued], PATIENCE_S)) == [queued]


def case_as_completed_gives_each_once(pool):
    futures = [pool.submit(same, n) for n in range(50)]
    given = list(as_completed(futures + futures))
    assert len(given) == 50
    assert set(given) == set(futures)


def case_as_completed_gives_first_what_is_first_done(pool, gate):
    quick = pool.submit(same, 1)
    held = pool.submit(hold, gate.place)
    completed = as_completed([held, quick], PATIENCE_S)
    assert next(completed) is quick
    gate.open()
    assert next(completed) is held


def case_as_completed_with_timeout(pool, gate):
    quick = pool.submit(same, 1)
    held = pool.submit(hold, gate.place)
    quick.result()
    given: list[Any] = []
    with raises(FutureTimeout):
        drain(as_completed([held, quick], timeout=0.05), given)
    assert given == [quick]
    gate.open()
    held.result()


def case_wait_for_futures_of_two_executors(pool, gate):
    with ThreadPoolExecutor(1) as threads:
        ours, theirs = pool.submit(same, 1), threads.submit(same, 2)
        held = pool.submit(hold, gate.place), threads.submit(hold, gate.place, "two")
        assert wait([ours, theirs], PATIENCE_S).done == {ours, theirs}
        assert set(as_completed([ours, theirs], PATIENCE_S)) == {ours, theirs}
        assert wait(held, 0.05).not_done == set(held)
        gate.open()
        assert wait(held, PATIENCE_S).done == set(held)


def case_threads_wait_for_futures_of_several_pools(make, gate):
    """wait() locks the conditions of its futures in the order of their ids: they must not clash."""
    threads_pool = ThreadPoolExecutor(1)
    pools = make(), make(), threads_pool
    futures = [pool.submit(hold, gate.place, n) for n in range(20) for pool in pools]
    ended: list[int] = []

    def waiter(number):
        chosen = random.Random(number)
        for _ in range(2000):
            wait(chosen.sample(futures, 2), timeout=0)
        ended.append(number)

    threads = [threading.Thread(target=waiter, args=(n,), daemon=True) for n in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    finally:
        sys.setswitchinterval(interval)
    gate.open()
    assert sorted(ended) == list(range(4)), "deadlock"
    assert wait(futures, PATIENCE_S).not_done == set()
    threads_pool.shutdown()
