"""Operations of an accumulator on every kind of number, and what is refused.

NumPy is the oracle: every total is also made here, by the ufunc that the operation stands for.
"""

from __future__ import annotations

import functools
from concurrent.futures import wait
from typing import Any

import numpy as np
from runner import raises

from __main__ import add
from workpool.errors import UsageError

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}


# One operation on one kind of number.


def samples(dtype: str, shape: tuple[int, ...], number: int) -> list[np.ndarray]:
    """Return arrays whose every total is exact: small integers, zeros and ones among them."""
    numbers = np.random.default_rng(len(dtype) + number)
    parts = [numbers.integers(0, 3, shape).astype(dtype) for _ in range(number)]
    if np.dtype(dtype).kind in "ifc":
        parts = [part - np.ones(shape, dtype) for part in parts]
    if np.dtype(dtype).kind == "c":
        parts = [part + 1j * numbers.integers(-1, 2, shape) for part in parts]
    return [part.astype(dtype) for part in parts]


def expected(op: str, dtype: str, parts: list[np.ndarray]) -> np.ndarray:
    """Return the total that NumPy makes of the same parts."""
    with np.errstate(all="ignore"):
        return functools.reduce(lambda a, b: UFUNCS[op](a, b).astype(dtype), parts)


def total_is_exact(pool: Any, op: str, dtype: str, shape: tuple[int, ...] = (3,)) -> None:
    """Assert that tasks make the total that NumPy makes."""
    parts = samples(dtype, shape, 12)
    total = pool.accumulator(shape=shape, dtype=dtype, op=op)
    done = wait([pool.submit(add, total, part) for part in parts]).done
    assert sum(future.result() for future in done) == len(parts)
    value = total.value()
    assert np.dtype(value.dtype) == np.dtype(dtype)
    assert np.shape(value) == shape
    np.testing.assert_array_equal(value, expected(op, dtype, parts), f"{op} of {dtype}")


def case_sum_of_every_dtype(pool):
    for dtype in INTEGERS + FLOATS + COMPLEX:
        total_is_exact(pool, "sum", dtype)


def case_prod_of_every_dtype(pool):
    for dtype in INTEGERS + FLOATS + COMPLEX:
        total_is_exact(pool, "prod", dtype)


def case_min_of_every_dtype_that_has_an_order(pool):
    for dtype in INTEGERS + FLOATS:
        total_is_exact(pool, "min", dtype)


def case_max_of_every_dtype_that_has_an_order(pool):
    for dtype in INTEGERS + FLOATS:
        total_is_exact(pool, "max", dtype)


def case_bitwise_operations_of_every_integer(pool):
    for dtype in INTEGERS:
        for op in ("band", "bor", "bxor"):
            total_is_exact(pool, op, dtype)


def case_logical_operations_of_every_integer(pool):
    for dtype in INTEGERS:
        for op in ("land", "lor", "lxor"):
            total_is_exact(pool, op, dtype)


def case_every_shape(pool):
    for shape in ((), (1,), (7,), (3, 4), (2, 3, 4), (1000,)):
        total_is_exact(pool, "sum", "int64", shape)
        total_is_exact(pool, "max", "float64", shape)


def case_the_defaults_are_one_float64_that_sums(pool):
    total = pool.accumulator()
    wait([pool.submit(add, total, 0.5) for _ in range(10)])
    assert total.value() == 5.0
    assert np.dtype(total.value().dtype) == np.dtype("float64")
    assert np.shape(total.value()) == ()


def case_shape_may_be_a_number(pool):
    total = pool.accumulator(shape=4, dtype="int32")
    pool.submit(add, total, [1, 2, 3, 4]).result()
    assert total.value().tolist() == [1, 2, 3, 4]


def case_dtype_may_be_given_in_every_way(pool):
    for dtype in (int, np.int64, "i8", np.dtype("int64")):
        total = pool.accumulator(dtype=dtype)
        pool.submit(add, total, 3).result()
        assert total.value() == 3


def case_extreme_numbers(pool):
    for dtype in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        lowest, highest = (pool.accumulator((), dtype, op) for op in ("min", "max"))
        for end in (low, high):
            pool.submit(add, lowest, np.array(end, dtype)).result()
            pool.submit(add, highest, np.array(end, dtype)).result()
        assert (int(lowest.value()), int(highest.value())) == (low, high)
    for dtype in FLOATS:
        lowest = pool.accumulator((), dtype, "min")
        pool.submit(add, lowest, np.array(np.finfo(dtype).max, dtype)).result()
        assert lowest.value() == np.finfo(dtype).max


def case_integers_wrap_around_as_in_numpy(pool):
    total = pool.accumulator((), "uint8")
    wait([pool.submit(add, total, np.uint8(200)) for _ in range(10)])
    assert int(total.value()) == 2000 % 256


def case_an_mpi_operation_may_be_given_itself(pool):
    from mpi4py import MPI

    for name, op in (("sum", MPI.SUM), ("max", MPI.MAX), ("bor", MPI.BOR)):
        parts = samples("int32", (3,), 12)
        total = pool.accumulator((3,), "int32", op)
        wait([pool.submit(add, total, part) for part in parts])
        np.testing.assert_array_equal(total.value(), expected(name, "int32", parts))


def case_nothing_added_leaves_what_changes_nothing(pool):
    for op, identity in (
        ("sum", 0),
        ("prod", 1),
        ("bor", 0),
        ("band", -1),
        ("lor", 0),
        ("land", 1),
    ):
        assert int(pool.accumulator((), "int64", op).value()) == identity
    assert pool.accumulator((), "int16", "min").value() == np.iinfo("int16").max
    assert pool.accumulator((), "int16", "max").value() == np.iinfo("int16").min


# What is refused.


def refused(make: Any) -> None:
    """Assert that a call is refused, with words."""
    with raises(UsageError) as caught:
        make()
    assert str(caught[0])


def case_operations_that_do_not_go_with_the_dtype_are_refused(pool):
    wrong = [("band", dtype) for dtype in FLOATS + COMPLEX]
    wrong += [("bxor", dtype) for dtype in FLOATS + COMPLEX]
    wrong += [(op, dtype) for op in ("min", "max") for dtype in COMPLEX]
    for op, dtype in wrong:
        refused(lambda op=op, dtype=dtype: pool.accumulator((), dtype, op))


def case_an_unknown_operation_is_refused(pool):
    for op in ("median", "", "SUM ", None, 3):
        refused(lambda op=op: pool.accumulator((), "int64", op))


def case_dtypes_that_mpi_does_not_reduce_are_refused(pool):
    for dtype in ("O", "U3", "M8[s]", "V8", "i4,f8", ">i4", "float16"):
        refused(lambda dtype=dtype: pool.accumulator((), dtype))


def case_wrong_shapes_are_refused(pool):
    for shape in (-1, (2, -3), "ab", 1.5, 10**12, (10**9, 10**9)):
        refused(lambda shape=shape: pool.accumulator(shape))
    for shape in ("ab", 1.5, None):
        with raises(UsageError) as caught:
            pool.accumulator(shape)
        assert "give a whole number, or a tuple of them" in str(caught[0]), caught[0]


def case_an_addition_of_the_wrong_shape_fails_its_task(pool):
    total = pool.accumulator((4,), "int64")
    for part in (np.zeros(3, int), np.zeros((4, 1), int), np.zeros((), int), 5):
        error = pool.submit(add, total, part).exception()
        assert isinstance(error, UsageError), repr(error)
        assert str(error)
        refused(lambda part=part: total.add(part))
    assert total.value().tolist() == [0, 0, 0, 0]


def case_an_addition_of_the_wrong_dtype_fails_its_task(pool):
    for dtype, part in (("int64", 1.5), ("float64", 1j), ("int64", "text"), ("int64", None)):
        total = pool.accumulator((), dtype)
        error = pool.submit(add, total, part).exception()
        assert isinstance(error, UsageError), repr(error)
        assert total.value() == 0


def case_smaller_dtypes_of_the_same_kind_are_taken(pool):
    total = pool.accumulator((2,), "float64")
    pool.submit(add, total, np.array([1, 2], "float32"), [1, 2], np.array([1, 2], "int16")).result()
    assert total.value().tolist() == [3, 6]
