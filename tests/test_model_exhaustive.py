"""Three tasks and a death at any point, or two deaths; it takes minutes and gigabytes.

sh scripts/test -m exhaustive
"""

from __future__ import annotations

from typing import Any

import pytest
from model import case

pytestmark = [pytest.mark.model, pytest.mark.exhaustive, pytest.mark.timeout(3600)]

CASES: dict[str, dict[str, Any]] = {
    "pointer": {},
    "counter": {"batch": 3, "limit": 1},  # published at once, taken one by one
}


@pytest.mark.parametrize("method", CASES)
def test_three_tasks_and_a_death(method: str) -> None:
    large = case(method, 3, rows=4, crashes=1, **CASES[method])
    large.most = 10_000_000
    report = large.run()
    assert report.states > 3_000_000
    assert report.crashed


def test_two_deaths_among_those_who_count() -> None:
    report = case("counter", 1, workers=3, rows=4, crashes=2, eager=True).run()
    assert report.states > 1_500_000
    assert report.crashed
