"""Three tasks and a death at any point, and other cases that take minutes and gigabytes.

sh scripts/test -m exhaustive
"""

from __future__ import annotations

from typing import Any

import pytest
from model import METHODS, case
from model.batch import explore
from test_model import SMALL
from test_model_batch import shorten_strides

pytestmark = [pytest.mark.model, pytest.mark.exhaustive, pytest.mark.timeout(3600)]

CASES: dict[str, dict[str, Any]] = {
    "pointer": {},
    "counter": {"batch": 3, "limit": 1},  # published at once, taken one by one
}

LEAST = {"pointer": 1_300_000, "counter": 2_400_000}  # a little less than there are


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
)


@pytest.mark.parametrize("name", COUNTED)
def test_small_ones_with_counters(name: str) -> None:
    options = SMALL[name].options
    large = case("counter", eager=True, **options)
    large.most = 20_000_000
    report = large.run()
    assert report.states > 440_000
    assert bool(report.crashed) == ("crashes" in options)


@pytest.mark.parametrize("method", METHODS)
def test_what_was_seen_of_two_rows_is_old(method: str) -> None:
    large = case(method, 2, remembers=True, eager=True)
    large.most = 20_000_000
    assert large.run().states > 3_760_000


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"workers": 2, "rows": 1}, 2_800_000),
        ({"workers": 1, "suspicions": 1}, 560_000),
        ({"workers": 1, "suspicions": 1, "counts": True}, 1_500_000),
    ],
    ids=str,
)
def test_tasks_behind_a_stride_end_once(
    options: dict[str, Any], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_strides(monkeypatch)
    report = explore((4,), strides=True, recalls=1, **options)
    assert report.states > least, report


@pytest.mark.parametrize("how", ["counts", "apart"])
def test_three_tasks_of_a_row_end_once(how: str) -> None:
    report = explore((3,), recalls=1, **{how: True})
    assert report.states > 600_000, report
