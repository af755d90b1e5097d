"""Arrays cross whole, and belong to whoever got them."""

from __future__ import annotations

from concurrent.futures import wait

import numpy as np
from runner import SHARED, hold, only

from __main__ import same, whole_sum


def assert_array_crosses(pool, value):
    back = pool.submit(same, value).result()
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    np.testing.assert_array_equal(back, value)


def case_arrays_of_no_dimension_and_of_no_element(pool):
    assert_array_crosses(pool, np.array(3.5))
    assert_array_crosses(pool, np.array([], dtype="f4"))
    assert_array_crosses(pool, np.empty((0, 5), dtype="i2"))
    assert_array_crosses(pool, np.empty((3, 0, 2)))


def case_numpy_scalars(pool):
    for value in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex128(1j), np.str_("a")):
        back = pool.submit(same, value).result()
        assert back == value
        assert type(back) is type(value)


def case_arrays_that_are_not_contiguous(pool):
    base = np.arange(24.0).reshape(4, 6)
    assert_array_crosses(pool, base[::2, 1::2])
    assert_array_crosses(pool, base[::-1])
    assert_array_crosses(pool, base.T)
    assert_array_crosses(pool, np.asfortranarray(base))
    assert_array_crosses(pool, np.broadcast_to(np.arange(3), (4, 3)))


def case_arrays_of_unusual_dtypes(pool):
    assert_array_crosses(pool, np.array([1, "a", None, [2]], dtype=object))
    kinds = np.dtype([("id", "i4"), ("at", "f8", (3,)), ("name", "S5"), ("sub", [("k", "u1")])])
    records = np.zeros(7, kinds)
    records["id"] = np.arange(7)
    assert_array_crosses(pool, records)
    assert_array_crosses(pool, np.array(["2026-01-01", "NaT"], dtype="M8[D]"))
    assert_array_crosses(pool, np.array(["a", "bcd"]))
    assert_array_crosses(pool, np.arange(5, dtype=">i4"))
    assert_array_crosses(pool, np.array([True, False]))
    assert_array_crosses(pool, np.arange(6, dtype="f2").reshape(2, 3))
    assert_array_crosses(pool, np.arange(3, dtype="c8"))
    assert_array_crosses(pool, np.arange(9.0).view(np.recarray))


def case_array_of_64_mib(pool):
    value = np.arange(8 << 20, dtype="f8")
    assert pool.submit(whole_sum, value).result() == float(value.sum())
    assert_array_crosses(pool, value)


def case_many_arrays_of_middling_size(pool):
    arrays = [np.full(1 << 14, n, dtype="f8") for n in range(64)]
    for n, back in enumerate(pool.map(same, arrays)):
        assert back.shape == (1 << 14,)
        assert (back == n).all()


@only("workpool", SHARED)
def case_calls_have_a_large_argument_in_common(pool):
    def taken(number, text, numbers):
        return number, len(text), sum(numbers), numbers[0]

    text, numbers = "x" * (3 << 20), [float(n) for n in range(100_000)]
    futures = []
    for n in range(40):
        numbers[0] = float(n // 10)
        futures.append(pool.submit(taken, n, text, numbers))
    numbers[0] = 0.0
    common = len(text), sum(numbers)
    expected = [(n, common[0], common[1] + n // 10, float(n // 10)) for n in range(40)]
    assert [future.result() for future in futures] == expected


def case_arrays_may_be_changed_on_both_sides(pool):
    def bump(values):
        values += 1
        return values

    for nbytes in (8, 1 << 12, 1 << 20):
        back = pool.submit(bump, np.zeros(nbytes // 8)).result()
        back += 1
        assert (back == 2).all()


def case_an_array_that_may_not_be_written_still_crosses(pool):
    value = np.arange(1 << 16)
    value.flags.writeable = False
    assert_array_crosses(pool, value)


def case_one_array_twice_is_one_array(pool):
    value = np.zeros(1 << 12)
    assert pool.submit(lambda a, b: a is b, value, value).result()


@only("workpool", SHARED)
def case_a_task_has_arrays_of_its_own(pool):
    value = np.zeros(1 << 12)
    futures = [pool.submit(lambda v: v.__iadd__(1).sum(), value) for _ in range(20)]
    assert [future.result() for future in futures] == 20 * [float(1 << 12)]
    assert not value.any()


@only("workpool", SHARED)
def case_results_stay_whole_when_their_memory_is_used_again(pool):
    kept = [pool.submit(np.full, 1 << 12, float(n)).result() for n in range(100)]
    for n, back in enumerate(kept):
        assert (back == n).all()


@only("workpool", SHARED)
def case_an_argument_counts_as_it_was_at_submit(pool, gate, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(3 * workers)]  # what follows waits
    value, listed = np.zeros(1 << 12), [1]
    futures = pool.submit(whole_sum, value), pool.submit(len, listed)
    value += 1
    listed.append(2)
    gate.open()
    assert [future.result() for future in futures] == [0.0, 1]
    wait(held)
