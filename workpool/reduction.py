"""MPI's reduction operations, by the names of the standard: on any values, and on arrays.

Reference: MPI-4.1 section 6.9.2 (which operations go with which types).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from .lazy import np

Binary = Callable[[Any, Any], Any]

_INTEGERS = "iu"
_REAL = _INTEGERS + "f"
_NUMBERS = _REAL + "c"
_LOGICAL = _INTEGERS + "b"


class Operation(NamedTuple):
    """A reduction operation."""

    function: Binary  #: of two values, which may be anything that has operators
    ufunc: str  #: what it is called in NumPy
    kinds: str  #: of dtypes that MPI defines it for
    identity: Callable[[np.dtype[Any]], Any]  #: from what it starts


def _any_numpy(*values: Any) -> bool:
    """Return whether one of some values is NumPy's."""
    return any(isinstance(value, (np.ndarray, np.generic)) for value in values)


def _smaller(one: Any, other: Any) -> Any:
    if _any_numpy(one, other):
        return np.minimum(one, other)
    return other if _is_nan(other) else min(one, other)  # `one`, if that is NaN


def _larger(one: Any, other: Any) -> Any:
    if _any_numpy(one, other):
        return np.maximum(one, other)
    return other if _is_nan(other) else max(one, other)


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN, which passes through every minimum and maximum."""
    return isinstance(value, float) and value != value


def _both(one: Any, other: Any) -> Any:
    return np.logical_and(one, other) if _any_numpy(one, other) else bool(one and other)


def _either(one: Any, other: Any) -> Any:
    return np.logical_or(one, other) if _any_numpy(one, other) else bool(one or other)


def _only_one(one: Any, other: Any) -> Any:
    return np.logical_xor(one, other) if _any_numpy(one, other) else bool(one) != bool(other)


def _zero(dtype: np.dtype[Any]) -> Any:
    return 0


def _unity(dtype: np.dtype[Any]) -> Any:
    return 1


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def _all_bits(dtype: np.dtype[Any]) -> Any:
    return np.invert(np.zeros((), dtype))


OPERATIONS = {
    "sum": Operation(operator.add, "add", _NUMBERS, _zero),
    "prod": Operation(operator.mul, "multiply", _NUMBERS, _unity),
    "min": Operation(_smaller, "minimum", _REAL, _highest),
    "max": Operation(_larger, "maximum", _REAL, _lowest),
    "band": Operation(operator.and_, "bitwise_and", _INTEGERS, _all_bits),
    "bor": Operation(operator.or_, "bitwise_or", _INTEGERS, _zero),
    "bxor": Operation(operator.xor, "bitwise_xor", _INTEGERS, _zero),
    "land": Operation(_both, "logical_and", _LOGICAL, _unity),
    "lor": Operation(_either, "logical_or", _LOGICAL, _zero),
    "lxor": Operation(_only_one, "logical_xor", _LOGICAL, _zero),
}


def ufunc(op: str) -> Any:
    """Return NumPy's function for an operation, by its name in the standard."""
    return getattr(np, OPERATIONS[op].ufunc)


class Reduction(NamedTuple):
    """What stands before the items of a ``reduce``, in the place of the function."""

    function: Callable[..., Any] | None  # None when it travels as code
    operation: Binary

    def fold(self, values: list[Any]) -> list[Any]:
        """Return a list of one value, or of none."""
        return [reduce(self.operation, values)] if values else []
