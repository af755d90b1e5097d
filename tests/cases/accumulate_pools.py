"""Accumulators and tasks of different pools, and accumulators whose pool was shut down."""

from __future__ import annotations

from concurrent.futures import wait

import numpy as np
from runner import PATIENCE_S, raises

from __main__ import add, add_then_fail, add_then_wait, add_to_both, add_to_kept, distinct, keep
from workpool.errors import SerializationError, UsageError

GONE = "was shut down"


def occupy(pool, gate, workers):
    """Have every worker wait at the gate."""
    waiting = pool.accumulator((), "int64")
    held = [pool.submit(add_then_wait, waiting, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    return held


def gone(future):
    """Assert that a task has failed because of an accumulator of a pool that was shut down."""
    error = future.exception(PATIENCE_S)
    assert isinstance(error, UsageError), repr(error)
    assert GONE in str(error), error


# Pools that are open.


def case_tasks_add_to_an_accumulator_of_another_pool(make):
    with make(max_workers=1, rows=32) as few, make(rows=64) as many:
        total = few.accumulator((), "int64")
        futures = [many.submit(add, total, n) for n in range(500)]
        assert sum(future.result() for future in futures) == 500
        assert int(total.value()) == sum(range(500))


def case_each_result_that_is_there_has_been_counted_in_another_pool(make):
    with make(rows=32) as first, make(rows=64) as second:
        total = first.accumulator((), "int64")
        for n in range(50):
            second.submit(add, total, 1).result()
            assert int(total.value()) == n + 1


def case_maps_add_to_an_accumulator_of_another_pool(make):
    with make(max_workers=1) as few, make() as many:
        total = few.accumulator((2,), "int64")
        parts = [[1, n] for n in range(500)]
        assert sum(many.map(add, [total] * 500, parts)) == 500
        assert sum(many.map(add, [total] * 500, parts, chunksize=7)) == 500
        assert total.value().tolist() == [1000, 2 * sum(range(500))]


def case_isolated_tasks_add_to_an_accumulator_of_another_pool(make):
    with make(max_workers=1) as few, make(rows=64) as many:
        total = few.accumulator((), "int64")
        isolated = many.with_options(isolate=True)
        wait([isolated.submit(add, total, n) for n in range(20)])
        assert int(total.value()) == sum(range(20))


def case_one_task_adds_to_accumulators_of_two_pools(make):
    with make(max_workers=1) as few, make(rows=64) as many:
        theirs, ours = few.accumulator((), "int64"), many.accumulator((3,), "float64")
        futures = [many.submit(add_to_both, theirs, ours, np.int64(n)) for n in range(3)]
        assert all(isinstance(future.exception(), UsageError) for future in futures)  # the shape
        assert int(theirs.value()) == 0
        ours = many.accumulator((), "float64")
        wait([many.submit(add_to_both, theirs, ours, n) for n in range(300)])
        assert int(theirs.value()) == sum(range(300))
        assert float(ours.value()) == float(sum(n * n for n in range(300)))


def case_what_a_failing_task_of_another_pool_added_does_not_count(make):
    with make(max_workers=1) as few, make(rows=64) as many:
        total = few.accumulator((), "int64")
        futures = [many.submit(add_then_fail, total, n) for n in range(200)]
        assert sum(future.exception() is not None for future in futures) == 100
        assert int(total.value()) == sum(range(0, 200, 2))


def case_many_numbers_of_another_pool(make):
    with make(max_workers=1) as few, make(rows=64) as many:
        total = few.accumulator((1 << 17,), "float64")
        part = np.arange(1 << 17, dtype=float)
        wait([many.submit(add, total, part) for _ in range(8)])
        np.testing.assert_array_equal(total.value(), 8 * part)


# Pools that were shut down.


def case_an_accumulator_cannot_be_sent_when_its_pool_is_shut_down(make):
    with make() as pool:
        closed = make()
        total = closed.accumulator((), "int64")
        closed.submit(add, total, 3).result()
        closed.shutdown()
        error = pool.submit(add, total, 1).exception(PATIENCE_S)
        assert isinstance(error, SerializationError), repr(error)
        assert GONE in str(error), error
        assert "__reduce__" not in str(error), error
        with raises(SerializationError) as caught:
            list(pool.map(add, [total], [1]))
        assert GONE in str(caught[0])
        with raises(UsageError) as caught:
            total.add(1)
        assert GONE in str(caught[0])
        assert int(total.value()) == 3


def case_room_that_accumulators_have_taken_comes_back_with_the_shutdown(make):
    for _ in range(2):
        with make(arena_nbytes=1 << 22) as pool:
            assert not pool.accumulator(1 << 17, "int64").value().any()
            with raises(UsageError) as caught:
                _ = [pool.accumulator(1 << 17, "int64") for _ in range(4)]
            assert "until this pool is shut down" in str(caught[0])


def case_tasks_that_run_after_the_shutdown_fail_and_damage_nothing(make, gate, workers):
    with make() as pool:
        other = make()
        totals = [other.accumulator((1000,), "int64") for _ in range(20)]
        held = occupy(pool, gate, workers)
        late = [pool.submit(add, total, np.ones(1000, int)) for total in totals]
        other.shutdown()
        # Their payloads have the room where the numbers were.
        futures = [pool.submit(distinct, "a" * 8000) for _ in range(20)]
        following = make()
        fresh = following.accumulator((1000,), "int64")
        gate.open()
        for future in late:
            gone(future)
        assert [future.result() for future in futures] == [1] * 20
        assert not fresh.value().any()
        assert not any(total.value().any() for total in totals)
        wait(held)
        following.shutdown()


def case_of_tasks_in_one_row_only_those_fail_whose_accumulator_is_gone(make, gate, workers):
    with make() as pool, make(rows=64) as open_one:
        closed = make(rows=32)
        dead, alive = closed.accumulator((), "int64"), open_one.accumulator((), "int64")
        ours = pool.accumulator((), "int64")
        wait([pool.submit(add, total, 0) for total in (dead, alive, ours) for _ in range(200)])
        held = occupy(pool, gate, workers)
        futures = [pool.submit(add, total, 1) for _ in range(100) for total in (dead, alive, ours)]
        closed.shutdown()
        gate.open()
        wait([*futures, *held])
        for future in futures[::3]:
            gone(future)
        assert not any(future.exception() for n, future in enumerate(futures) if n % 3)
        assert [int(total.value()) for total in (dead, alive, ours)] == [0, 100, 100]


def case_a_task_adds_to_all_of_its_accumulators_or_to_none(make, gate, workers):
    with make() as pool:
        closed = make(rows=32)
        dead, ours = closed.accumulator((), "int64"), pool.accumulator((), "int64")
        held = occupy(pool, gate, workers)
        future = pool.submit(add_to_both, ours, dead, 5)
        closed.shutdown()
        gate.open()
        gone(future)
        wait(held)
        assert int(ours.value()) == 0


def case_a_task_that_has_kept_an_accumulator_whose_table_is_closed_fails(make):
    closed = make(rows=24)
    total = closed.accumulator((), "int64")
    with make(rows=48, initializer=keep, initargs=(total,)) as pool:
        assert [pool.submit(add_to_kept, n).result() for n in range(30)] == list(range(30))
        closed.shutdown()
        with make(rows=40), make(rows=56):  # the table that nobody uses gives way to theirs
            for n in range(10):
                gone(pool.submit(add_to_kept, n))
            with raises(UsageError) as caught:
                list(pool.map(add_to_kept, range(100)))
            assert GONE in str(caught[0])
            gone(pool.with_options(isolate=True).submit(add_to_kept, 1))
        assert pool.submit(distinct, "abc").result() == 3
    assert int(total.value()) == sum(range(30))
