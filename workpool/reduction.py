"""Operations that fold the results of ``reduce``, on numbers, arrays, and whatever has operators.

They are Python functions of two values, because results need not be numbers in the window: a
worker folds what it computes, and only one value for each of its turns travels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from .lazy import np

Binary = Callable[[Any, Any], Any]


def _smaller(one: Any, other: Any) -> Any:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)


def _larger(one: Any, other: Any) -> Any:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)


def _both(one: Any, other: Any) -> Any:
    return np.logical_and(one, other)


def _either(one: Any, other: Any) -> Any:
    return np.logical_or(one, other)


def _one(one: Any, other: Any) -> Any:
    return np.logical_xor(one, other)


#: By the names of the standard, see ``rma.OPS``.
OPERATIONS: dict[str, Binary] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": _smaller,
    "max": _larger,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
    "land": _both,
    "lor": _either,
    "lxor": _one,
}


class Reduction(NamedTuple):
    """What stands before the items of a ``reduce``, in the place of the function."""

    function: Callable[..., Any] | None  # None when it travels as code
    operation: Binary

    def fold(self, values: list[Any]) -> list[Any]:
        """Return a list of one value, or of none."""
        return [reduce(self.operation, values)] if values else []
