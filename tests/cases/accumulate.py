"""What an accumulator promises: exact totals, made in the repository's window by MPI.

Here is what the tasks run, and what counts; ``accumulate_operations`` has the operations, and
``accumulate_pools`` tasks of one pool that add to an accumulator of another.
"""

from __future__ import annotations

import copy
import operator
import sys
from concurrent.futures import wait

import numpy as np
from runner import PATIENCE_S, hold, limit, main, needs

# What the tasks run.


def add(total, *parts):
    """Add each part, and return how many there were."""
    for part in parts:
        total.add(part)
    return len(parts)


def add_to_both(first, second, number):
    """Add a number to one accumulator, and its square to another."""
    first.add(number)
    second.add(number * number)


def add_then_fail(total, number):
    """Add, and fail on odd numbers."""
    total.add(number)
    if number % 2:
        raise ValueError(number)


def add_then_wait(total, place, name):
    """Add, then write `name` at a gate, and wait there until it is open."""
    total.add(1)
    hold(place, name)


kept = None


def keep(total):
    """Keep an accumulator for the tasks of a pool, out of their arguments."""
    global kept
    kept = total


def add_to_kept(number):
    """Add to what the initializer has kept."""
    kept.add(number)
    return number


def distinct(text):
    """Return how many different characters there are."""
    return len(set(text))


# What counts.


@limit(60)
def case_ten_thousand_tasks_count_exactly(pool):
    total = pool.accumulator((), "int64")
    futures = [pool.submit(add, total, n) for n in range(10_000)]
    assert sum(future.result() for future in futures) == 10_000
    assert int(total.value()) == sum(range(10_000))


def case_a_map_counts_exactly_with_every_chunksize(pool):
    for chunksize in (1, 7, 1000):
        total = pool.accumulator((2,), "int64")
        parts = [[1, n] for n in range(1000)]
        assert sum(pool.map(add, [total] * 1000, parts, chunksize=chunksize)) == 1000
        assert total.value().tolist() == [1000, sum(range(1000))]


def case_what_a_failing_task_added_does_not_count(pool):
    total = pool.accumulator((), "int64")
    futures = [pool.submit(add_then_fail, total, n) for n in range(200)]
    wait(futures)
    assert sum(future.exception() is not None for future in futures) == 100
    assert int(total.value()) == sum(range(0, 200, 2))


def case_what_a_task_with_an_unpicklable_result_added_does_not_count(pool):
    def task():
        total.add(1)
        return sys._getframe()

    total = pool.accumulator((), "int64")
    assert pool.submit(task).exception() is not None
    assert int(total.value()) == 0


def case_several_additions_of_one_task_all_count(pool):
    total = pool.accumulator((3,), "int64")
    parts = [np.arange(3) + n for n in range(20)]
    assert pool.submit(add, total, *parts).result() == 20
    np.testing.assert_array_equal(total.value(), sum(parts))
    product = pool.accumulator((), "int64", "prod")
    pool.submit(add, product, 2, 3, 7).result()
    assert int(product.value()) == 42


def case_an_addition_counts_as_it_was_when_added(pool):
    def task():
        part = np.ones(3)
        total.add(part)
        part += 100
        total.add(part)

    total = pool.accumulator((3,))
    pool.submit(task).result()
    assert total.value().tolist() == [102, 102, 102]


def case_two_accumulators_at_once(pool):
    first, second = pool.accumulator((), "int64"), pool.accumulator((), "float64")
    wait([pool.submit(add_to_both, first, second, n) for n in range(300)])
    assert int(first.value()) == sum(range(300))
    assert float(second.value()) == float(sum(n * n for n in range(300)))


def case_many_accumulators(pool):
    totals = [pool.accumulator((5,), "int32") for _ in range(50)]
    wait([pool.submit(add, total, np.full(5, n)) for n, total in enumerate(totals)])
    for n, total in enumerate(totals):
        assert total.value().tolist() == 5 * [n]


def case_an_accumulator_inside_other_objects(pool):
    def task(given):
        given["totals"][1].add(2)

    totals = [pool.accumulator((), "int64") for _ in range(2)]
    pool.submit(task, {"totals": totals}).result()
    assert [int(total.value()) for total in totals] == [0, 2]


def case_an_accumulator_in_a_closure(pool):
    total = pool.accumulator((), "int64")
    wait([pool.submit(lambda n=n: total.add(n)) for n in range(20)])
    assert int(total.value()) == sum(range(20))


def case_the_driver_may_add(pool):
    total = pool.accumulator((), "int64")
    total.add(5)
    pool.submit(add, total, 6).result()
    total.add(7)
    assert int(total.value()) == 18


def case_a_result_that_is_there_has_been_counted(pool):
    total = pool.accumulator((), "int64")
    for n in range(200):
        pool.submit(add, total, 1).result()
        assert int(total.value()) == n + 1


def case_value_during_the_run_never_exceeds_the_final_one(pool):
    total = pool.accumulator((), "int64")
    futures = [pool.submit(add, total, 1) for _ in range(500)]
    seen = []
    while not all(future.done() for future in futures):
        seen.append(int(total.value()))
    seen.append(int(total.value()))
    assert seen == sorted(seen)
    assert seen[-1] == 500


def case_what_a_running_task_added_does_not_count_yet(pool, gate):
    total = pool.accumulator((), "int64")
    future = pool.submit(add_then_wait, total, gate.place, "one")
    gate.wait_for(1)
    assert int(total.value()) == 0
    gate.open()
    future.result()
    assert int(total.value()) == 1


def case_a_copy_of_what_has_an_accumulator_has_the_same(pool):
    total = pool.accumulator((), "int64")
    pool.submit(add, copy.deepcopy([total])[0], 3).result(PATIENCE_S)
    assert copy.copy(total).value() == 3
    (copied,) = copy.deepcopy([total])
    copied.add(4)
    assert total.value() == copied.value() == 7


def case_value_is_a_copy(pool):
    total = pool.accumulator((2,), "int64")
    pool.submit(add, total, [1, 2]).result()
    total.value()[:] = 99
    assert total.value().tolist() == [1, 2]


def case_value_remains_after_shutdown(make):
    with make() as pool:
        total = pool.accumulator((2,), "int64")
        wait([pool.submit(add, total, [n, 1]) for n in range(10)])
    assert total.value().tolist() == [45, 10]


def case_accumulators_of_two_pools(make):
    with make() as first, make() as second:
        totals = first.accumulator((), "int64"), second.accumulator((), "int64")
        futures = [first.submit(add, totals[0], n) for n in range(50)]
        futures += [second.submit(add, totals[1], 1) for _ in range(50)]
        wait(futures)
        assert [int(total.value()) for total in totals] == [sum(range(50)), 50]


def case_more_numbers_than_fit_in_one_piece(pool):
    total = pool.accumulator((1 << 17,), "float64")
    wait([pool.submit(lambda n: total.add(np.full(1 << 17, float(n))), n) for n in range(10)])
    assert (total.value() == 45.0).all()


@needs(2)
def case_all_workers_add_at_the_same_time(pool, gate, workers):
    total = pool.accumulator((1000,), "int64")
    waiting = pool.accumulator((), "int64")
    held = [pool.submit(add_then_wait, waiting, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    futures = [pool.submit(add, total, *(10 * [np.ones(1000, int)])) for _ in range(100)]
    gate.open()
    wait(futures + held)
    assert (total.value() == 1000).all()
    assert int(waiting.value()) == workers


def case_cancelled_tasks_add_nothing(pool, gate, workers):
    total = pool.accumulator((), "int64")
    held = [pool.submit(add_then_wait, total, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    queued = [pool.submit(add, total, 1000) for _ in range(20)]
    assert all(map(operator.methodcaller("cancel"), queued))
    gate.open()
    wait(held)
    assert int(total.value()) == workers


if __name__ == "__main__":
    sys.exit(main(globals()))
