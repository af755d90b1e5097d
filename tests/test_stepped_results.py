"""What a call has returned, the next one may resize: nothing of it is held any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stepped import Stepped, outcomes
from stepped_pool import Make

from workpool.context import LARGE_NBYTES

kept: dict[str, Any] = {}

#: Numbers of an array that stands among the outcomes of its row, and of one that lies apart.
LENGTHS = (LARGE_NBYTES // 16, LARGE_NBYTES // 8 + 1)


def fill(length: int) -> Any:
    """Return the array of this process, of so many numbers by now."""
    array = kept.pop("array", None)
    if array is None:
        array = np.zeros(1)
    array.resize(length)  # which NumPy refuses if anything else refers to it
    array[:] = length
    kept["array"] = array
    return array


def expected(lengths: range) -> list[list[float]]:
    return [[length] * length for length in lengths]


@pytest.mark.parametrize("least", LENGTHS)
def test_by_the_tasks_of_a_row(make_job: Callable[..., Stepped], least: int) -> None:
    kept.clear()
    job, lengths = make_job(), range(least, least + 10)
    job.worker.runners.own.short_ns = 10**10  # however busy the machine is
    code = job.code(fill)
    tasks = [job.task(fill, length, code=code) for length in lengths]
    job.share_a_row(tasks, code)
    job.go()
    assert [list(array) for array in outcomes(tasks)] == expected(lengths)


@pytest.mark.parametrize("least", LENGTHS)
@pytest.mark.parametrize(
    "how", [{}, {"schedule": "self"}, {"schedule": "static"}, {"chunksize": 5}], ids=str
)
def test_by_the_items_of_a_map(make: Make, how: dict[str, Any], least: int) -> None:
    kept.clear()
    lengths = range(least, least + 30)
    assert [list(array) for array in make().map(fill, lengths, **how)] == expected(lengths)
