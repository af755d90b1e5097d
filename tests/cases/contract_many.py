"""Many tasks, from many threads, and what they may do."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from runner import PATIENCE_S, hold, until

from __main__ import alive, same, touch

# Many, and from many sides.


def case_many_futures(pool):
    futures = [pool.submit(same, n) for n in range(5000)]
    assert [future.result() for future in futures] == list(range(5000))


def case_many_futures_asked_for_from_the_last(pool):
    futures = [pool.submit(same, n) for n in range(1000)]
    assert [future.result() for future in reversed(futures)] == list(range(999, -1, -1))


def case_several_threads_submit_at_the_same_time(pool):
    given: dict[int, list[int]] = {}

    def submitter(base):
        futures = [pool.submit(same, base + n) for n in range(100)]
        given[base] = [future.result() for future in futures]

    threads = [threading.Thread(target=submitter, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * PATIENCE_S)
    assert given == {1000 * n: list(range(1000 * n, 1000 * n + 100)) for n in range(8)}


def case_several_threads_wait_for_one_future(pool, gate):
    future = pool.submit(hold, gate.place, value=9)
    given: list[int] = []
    threads = [threading.Thread(target=lambda: given.append(future.result())) for _ in range(6)]
    for thread in threads:
        thread.start()
    gate.wait_for(1)
    gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert given == 6 * [9]


def case_threads_wait_while_others_submit(pool, gate):
    held = pool.submit(hold, gate.place, value=1)
    waiter = threading.Thread(target=held.result)
    waiter.start()
    gate.wait_for(1)
    futures = [pool.submit(same, n) for n in range(50)]
    gate.open()
    assert [future.result() for future in futures] == list(range(50))
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()


def case_tasks_run_though_nobody_keeps_their_futures(pool, tmp):
    for n in range(100):
        pool.submit(touch, str(tmp), f"ran-{n}")
    gc.collect()
    until(lambda: len(list(tmp.glob("ran-*"))) == 100, "a hundred tasks")


def case_a_finished_future_and_its_result_are_freed(pool):
    future = pool.submit(lambda: np.zeros(1000))
    watched = weakref.ref(future), weakref.ref(future.result())
    del future  # and nothing is submitted after it

    def freed():
        gc.collect()
        return not any(reference() for reference in watched)

    until(freed, "the future and its result to be freed")


def case_results_dropped_at_once_do_not_pile_up(pool):
    for _ in range(20):
        for future in [pool.submit(bytes, 1 << 20) for _ in range(8)]:
            assert len(future.result()) == 1 << 20
    alive(pool)


# What tasks may do.


def case_a_task_may_start_a_process(pool):
    def task():
        command = [sys.executable, "-c", "print(6 * 7)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert {future.result() for future in [pool.submit(task) for _ in range(3)]} == {"42\n"}


def case_a_task_may_use_threads(pool):
    def task():
        with ThreadPoolExecutor(3) as threads:
            return sum(threads.map(same, range(50)))

    assert [future.result() for future in [pool.submit(task) for _ in range(5)]] == 5 * [1225]


def case_a_task_may_run_out_of_stack(pool):
    def deeper(n):
        return deeper(n + 1) + 1

    assert isinstance(pool.submit(deeper, 0).exception(), RecursionError)
    alive(pool)


def case_a_task_may_change_its_own_globals(pool):
    def task():
        global LOCAL_COUNT
        LOCAL_COUNT = 5
        return LOCAL_COUNT

    assert pool.submit(task).result() == 5
