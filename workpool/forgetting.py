"""Iteration over a list that lets go of each of its values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TypeVar

T = TypeVar("T")


def forgetting(values: list[T]) -> Iterator[T]:
    """Iterate over a list, which is empty afterwards: a value may be large, and needed no more."""
    values.reverse()
    return map(values.pop, repeat(-1, len(values)))
