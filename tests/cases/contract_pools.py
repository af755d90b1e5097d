"""Pools: options, initializers, the end."""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, wait

import numpy as np
from runner import PATIENCE_S, SHARED, hold, limit, only, raises, until

from __main__ import Unpickled, alive, fail, inverse, meet, prepare, prepared, same, touch


def case_zero_and_negative_workers_are_refused(make):
    for number in (0, -1):
        with raises(ValueError):
            make(max_workers=number)


def case_an_initializer_that_cannot_be_called_is_refused(make):
    with raises(TypeError):
        make(initializer=3)


def case_fewer_workers_than_there_are(make, gate):
    pool = make(max_workers=1)
    held = pool.submit(hold, gate.place)
    gate.wait_for(1)
    queued = [pool.submit(hold, gate.place, n) for n in range(5)]
    assert wait([held, *queued], 0.05).done == set()
    assert gate.entered() == {"one"}
    assert all(future.cancel() for future in queued)
    gate.open()


@only("workpool", "ThreadPoolExecutor has no num_workers")
def case_num_workers(make, workers):
    with make() as pool:
        assert pool.num_workers == pool._max_workers == workers
        assert repr(pool) == f"<WorkPool: {workers} workers, 0 tasks pending>"
    assert repr(pool) == "<WorkPool: shut down>"
    with make(max_workers=1) as pool:
        assert pool.num_workers == 1


def case_initializer_runs_on_each_worker_before_its_tasks(make, tmp, workers):
    with make(initializer=prepare, initargs=(str(tmp), "ready")) as pool:
        futures = [pool.submit(prepared) for _ in range(50)]
        assert {future.result() for future in futures} == {"ready"}
        met = [pool.submit(meet, str(tmp / "gate"), n, workers) for n in range(workers)]
        assert [future.result() for future in met] == [workers] * workers
        assert len(list(tmp.glob("worker-*"))) == workers


def case_initializer_of_one_pool_does_not_run_for_the_next(make, tmp):
    with make(initializer=prepare, initargs=(str(tmp), "first")) as pool:
        assert pool.submit(prepared).result() == "first"
    number = len(list(tmp.glob("worker-*")))
    with make() as pool:
        alive(pool)
    assert len(list(tmp.glob("worker-*"))) == number


def case_failing_initializer_breaks_the_pool(make):
    pool = make(initializer=fail, initargs=(ValueError("on purpose"),))
    futures = []
    with contextlib.suppress(BrokenExecutor):  # it may be known already
        for n in range(20):
            futures.append(pool.submit(same, n))
    for future in futures:
        assert isinstance(future.exception(PATIENCE_S), BrokenExecutor)

    def broken():
        try:
            return isinstance(pool.submit(same, 1).exception(PATIENCE_S), BrokenExecutor)
        except BrokenExecutor:
            return True

    assert broken()
    with raises(BrokenExecutor):
        pool.submit(same, 1)
    with raises(BrokenExecutor):
        list(pool.map(same, [1]))
    pool.shutdown()


def case_a_new_pool_works_after_a_broken_one(make):
    broken = make(initializer=fail, initargs=(ValueError("on purpose"),))
    with broken, raises(BrokenExecutor):
        broken.submit(same, 1).result(PATIENCE_S)
    with make() as pool:
        alive(pool)


def case_initializer_that_exits_breaks_the_pool(make):
    with make(initializer=sys.exit, initargs=(3,)) as pool, raises(BrokenExecutor):
        pool.submit(same, 1).result(PATIENCE_S)


@only("workpool", SHARED)
def case_arguments_of_an_initializer_that_cannot_be_restored(make):
    with make(initializer=same, initargs=(Unpickled(),)) as pool, raises(BrokenExecutor) as caught:
        pool.submit(same, 1).result(PATIENCE_S)
    named = "cannot restore the initializer or its arguments: ValueError: cannot be rebuilt"
    assert named in str(caught[0])


def case_with_waits_for_every_task(make, tmp):
    with make() as pool:
        for n in range(100):
            pool.submit(touch, str(tmp), f"ran-{n}")
    assert len(list(tmp.glob("ran-*"))) == 100


def case_with_runs_what_was_submitted_though_its_body_fails(make, tmp):
    futures = []
    with raises(KeyError), make() as pool:
        futures += [pool.submit(touch, str(tmp), f"ran-{n}") for n in range(20)]
        raise KeyError("body")
    assert not wait(futures, PATIENCE_S).not_done
    assert len(list(tmp.glob("ran-*"))) == 20


def case_submit_after_shutdown_is_a_runtime_error(make):
    for options in ({}, {"wait": False}, {"cancel_futures": True}):
        pool = make()
        pool.submit(same, 1)
        pool.shutdown(**options)
        with raises(RuntimeError):
            pool.submit(same, 1)
        with raises(RuntimeError):
            pool.map(same, [1])


def case_shutdown_in_every_order(make):
    orders = itertools.product((True, False), (True, False), (True, False))
    for first, second, cancel in orders:
        pool = make()
        futures = [pool.submit(same, n) for n in range(20)]
        pool.shutdown(wait=first, cancel_futures=cancel)
        pool.shutdown(wait=second)
        pool.shutdown(wait=True, cancel_futures=cancel)
        pool.shutdown()
        for n, future in enumerate(futures):
            assert future.done()
            assert future.cancelled() if cancel and future.cancelled() else future.result() == n


def case_shutdown_without_waiting_lets_the_tasks_end(make, gate):
    pool = make()
    futures = [pool.submit(hold, gate.place, n, n) for n in range(20)]
    gate.wait_for(1)
    pool.shutdown(wait=False)
    assert not all(future.done() for future in futures)
    gate.open()
    assert [future.result(PATIENCE_S) for future in futures] == list(range(20))


def case_shutdown_that_cancels_lets_running_tasks_end(make, gate, workers):
    pool = make()
    held = [pool.submit(hold, gate.place, n, n) for n in range(workers)]
    gate.wait_for(workers)
    queued = [pool.submit(same, n) for n in range(20)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)
    gate.open()
    assert [future.result(PATIENCE_S) for future in held] == list(range(workers))
    pool.shutdown()


def case_results_may_be_asked_for_after_shutdown(make):
    pool = make()
    futures = [pool.submit(np.full, 1000, float(n)) for n in range(20)]
    pool.shutdown()
    assert [future.result().sum() for future in futures] == [1000.0 * n for n in range(20)]


def case_map_iterated_after_shutdown(make):
    with make() as pool:
        mapped = pool.map(same, range(50))
    assert list(mapped) == list(range(50))


def case_a_pool_that_is_never_used(make):
    with make():
        pass
    make().shutdown(wait=False)


def case_pools_one_after_another(make):
    for n in range(5):
        with make() as pool:
            mapped = pool.map(operator.add, range(20), itertools.repeat(n))
            assert list(mapped) == list(range(n, n + 20))


def case_two_pools_at_once(make):
    with make() as first, make() as second:
        ours = [(first.submit(same, n), second.submit(operator.neg, n)) for n in range(50)]
        for n, (one, other) in enumerate(ours):
            assert (one.result(), other.result()) == (n, -n)


def case_two_pools_closed_in_the_order_of_their_opening(make):
    first, second = make(), make()
    alive(first)
    alive(second)
    first.shutdown()
    alive(second)
    second.shutdown()


@only("workpool", "ThreadPoolExecutor has no such options")
def case_pools_of_different_options_at_once(make):
    options = ({"claim": "pointer"}, {"claim": "counter"}, {"rows": 16}, {"arena_nbytes": 1 << 20})
    pools = [make(**option) for option in options]
    futures = [[pool.submit(same, n) for n in range(50)] for pool in pools]
    for ours in futures:
        assert [future.result() for future in ours] == list(range(50))
    for pool in pools:
        pool.shutdown()


def case_shutdown_by_another_thread_while_one_waits(make, gate):
    pool = make()
    future = pool.submit(hold, gate.place, value=4)
    gate.wait_for(1)
    thread = threading.Thread(target=pool.shutdown)
    thread.start()
    gate.open()
    assert future.result(PATIENCE_S) == 4
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def case_a_pool_that_is_forgotten_ends_its_tasks(make, tmp):
    def forget():
        pool = make()
        return [pool.submit(touch, str(tmp), f"ran-{n}") for n in range(20)]

    assert len(wait(forget(), PATIENCE_S).done) == 20


def case_a_thread_may_open_and_close_a_pool(make):
    given: list[int] = []

    def work():
        with make() as pool:
            given.extend(pool.map(same, range(20)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE_S)
    assert given == list(range(20))


@only("workpool", "ThreadPoolExecutor has no such options")
def case_more_tasks_than_rows(make):
    with make(rows=4) as pool:
        futures = [pool.submit(same, n) for n in range(500)]
        assert [future.result() for future in futures] == list(range(500))
        assert list(pool.map(same, range(100))) == list(range(100))


@only("workpool", "ThreadPoolExecutor has no such options")
@limit(60)
def case_more_bytes_than_the_arena(make):
    with make(arena_nbytes=1 << 20) as pool:
        value = np.arange(1 << 20, dtype="f8")  # 8 MiB through 1 MiB
        np.testing.assert_array_equal(pool.submit(same, value).result(), value)
        futures = [pool.submit(same, bytes([n]) * (200 << 10)) for n in range(40)]
        for n, future in enumerate(futures):
            assert future.result() == bytes([n]) * (200 << 10)


@only("workpool", "ThreadPoolExecutor has no such options")
def case_max_pending_holds_submit_back(make, gate, workers):
    pool = make(max_pending=4)
    futures = [pool.submit(same, n) for n in range(100)]
    assert [future.result() for future in futures] == list(range(100))
    held: list[Future[None]] = []

    def submit_many():
        for n in range(workers + 30):
            held.append(pool.submit(hold, gate.place, n))

    thread = threading.Thread(target=submit_many)
    thread.start()
    gate.wait_for(min(workers, 4))
    until(lambda: len(held) == 4, "four tasks to be submitted")
    thread.join(0.2)
    assert len(held) == 4, "submit went on beyond max_pending"
    gate.open()
    thread.join(PATIENCE_S)
    assert wait(held, PATIENCE_S).not_done == set()
    assert len(held) == workers + 30


@only("workpool", "ThreadPoolExecutor has no such options")
def case_wrong_options_are_refused(make):
    from workpool.errors import UsageError

    for options in (
        {"claim": "magic"},
        {"rows": 0},
        {"arena_nbytes": -1},
        {"max_pending": 0},
        {"max_workers": 0},
        {"max_workers": 1.5},
        {"rows": 8.5},
        {"rows": float("inf")},
    ):
        with raises(UsageError) as caught:
            make(**options)
        assert str(caught[0])
    with make(max_workers=1.0) as pool:  # nothing of what was refused has reached the workers
        assert pool.submit(same, 1).result(PATIENCE_S) == 1


@only("workpool", "ThreadPoolExecutor has no stats")
def case_stats_count_every_task_once(make, workers):
    with make() as pool:
        assert sum(pool.map(same, range(300))) == sum(range(300))
        wait([pool.submit(inverse, 0) for _ in range(20)])
        stats = pool.stats()
        assert sum(worker.tasks for worker in stats) == 320, stats
        assert len({worker.rank for worker in stats}) == len(stats) == workers
        assert all(worker.busy_s >= 0 for worker in stats)


@only("workpool", "ThreadPoolExecutor has no stats")
def case_stats_measure_the_time_of_the_tasks(make, workers):
    def busy(seconds):
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            pass

    with make() as pool:
        begun = time.perf_counter()
        wait([pool.submit(busy, 0.05) for _ in range(6)])
        elapsed_s = time.perf_counter() - begun
        stats = pool.stats()
    assert sum(worker.busy_s for worker in stats) >= 0.3
    assert all(worker.busy_s < elapsed_s for worker in stats), (stats, elapsed_s)
