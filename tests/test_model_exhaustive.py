"""Three tasks and a death at any point, and more with counters; it takes minutes and gigabytes.

sh scripts/test -m exhaustive
"""

from __future__ import annotations

from typing import Any

import pytest
from model import case
from test_model import SMALL

pytestmark = [pytest.mark.model, pytest.mark.exhaustive, pytest.mark.timeout(3600)]

CASES: dict[str, dict[str, Any]] = {
    "pointer": {},
    "counter": {"batch": 3, "limit": 1},  # published at once, taken one by one
}

LEAST = {"pointer": 1_300_000, "counter": 7_900_000}  # a little less than there are


@pytest.mark.parametrize("method", CASES)
def test_three_tasks_and_a_death(method: str) -> None:
    large = case(method, 3, rows=4, crashes=1, **CASES[method])
    large.most = 20_000_000
    report = large.run()
    assert report.states > LEAST[method]
    assert report.crashed


COUNTED = (
    "three tasks in one row",
    "a worker dies",
    "two workers die",
    "cancel",
    "sweeping while there is work",
    "what was seen of the queue is old",
)


@pytest.mark.parametrize("name", COUNTED)
def test_small_ones_with_counters(name: str) -> None:
    options = SMALL[name].options
    large = case("counter", eager=True, **options)
    large.most = 20_000_000
    report = large.run()
    assert report.states > 500_000
    assert bool(report.crashed) == ("crashes" in options)
