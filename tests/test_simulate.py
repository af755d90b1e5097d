"""The simulation of claims: limits that must hold, and two ways to simulate that must agree."""

from __future__ import annotations

import importlib
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from workpool.schedule import Schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
model = importlib.import_module("simulation.model")
simulate = importlib.import_module("simulate")

Fabric, Way = model.Fabric, model.Way
FABRIC = Fabric(latency_s=2e-6, service_s=0.5e-6)
TASKS = 40
RANGES = [Way(schedule=schedule) for schedule in Schedule]
ADAPTIVE = Way(schedule=Schedule.ADAPTIVE)
CLAIMS = [
    Way(),
    Way(batch=8),
    Way(repositories=4),
    Way(cores=8),
    Way(cores=8, batch=4),
    Way(cores=4, batch=2, repositories=3),
]


@pytest.mark.parametrize("way", [way for way in CLAIMS + RANGES if way != ADAPTIVE], ids=str)
@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("task_s", [1e-6, 30e-6, 2e-3])
def test_waves_are_the_events(way: Way, workers: int, task_s: float) -> None:
    for fabric in (FABRIC, Fabric(1e-6, 1e-6), Fabric(5e-3, 1e-9)):
        waved = model.simulate(way, workers, task_s, fabric, TASKS)
        stepped = model.simulate(way, workers, task_s, fabric, TASKS, waves=False)
        assert waved == pytest.approx(stepped, rel=1e-9)
        assert 0 < waved.efficiency <= 1


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("task_s", [1e-6, 30e-6, 2e-3])
def test_an_adaptive_range_keeps_to_the_bounds(workers: int, task_s: float) -> None:
    for fabric in (FABRIC, Fabric(1e-6, 1e-6), Fabric(5e-3, 1e-9)):
        outcome = model.simulate(ADAPTIVE, workers, task_s, fabric, TASKS)
        assert 0 < outcome.efficiency <= 1


def test_long_items_of_an_adaptive_range_are_claimed_one_by_one() -> None:
    end_s = model.by_adaptive_events(1, np.full(10, 1.0), FABRIC)
    assert end_s == pytest.approx(10 * (1.0 + FABRIC.latency_s))


def test_short_items_of_an_adaptive_range_are_claimed_and_looked_for() -> None:
    # Claims of 1, 1, 6, 3, 1, 1 and 1: half of what is left, and at most eight times the last.
    # Before the two larger ones it looks.
    end_s = model.by_adaptive_events(1, np.full(14, 0.1e-3), FABRIC)
    assert end_s == pytest.approx(14 * 0.1e-3 + (7 + 2) * FABRIC.latency_s)


def test_adaptive_chunks_last_longer_where_the_counter_is_far() -> None:
    far = Fabric(latency_s=100e-6, service_s=0.5e-6)
    outcome = model.simulate(ADAPTIVE, 1, 100e-6, far, 4_000)
    assert outcome.efficiency > 0.99  # 2 ms for each claim would be 0.95


@pytest.mark.parametrize("way", CLAIMS, ids=str)
def test_no_bound_is_exceeded(way: Way) -> None:
    for workers, task_s in product([20_000, 1_000, 10, 1], [1e-6, 100e-6, 10e-3]):
        way = way.fitted(workers)
        outcome = model.simulate(way, workers, task_s, FABRIC, TASKS)
        assert outcome.rate <= way.repositories * way.batch * way.cores / FABRIC.service_s
        assert outcome.rate <= 1.1 * workers / task_s  # few times that are drawn have another mean
        assert outcome.efficiency <= 1.1 * task_s / model.cycle_s(way, task_s, FABRIC)


@pytest.mark.parametrize("workers", [2, 16, 1_000])
def test_long_tasks_keep_every_worker_busy(workers: int) -> None:
    outcome = model.simulate(Way(), workers, 1.0, FABRIC, TASKS)
    assert outcome.rate == pytest.approx(workers / 1.0, rel=0.05)
    assert outcome.efficiency > 0.95


def test_many_workers_are_served_one_after_another() -> None:
    outcome = model.simulate(Way(), 50_000, 10e-6, FABRIC, TASKS)
    assert outcome.rate == pytest.approx(1 / FABRIC.service_s, rel=0.01)


def test_one_worker_pays_the_latency() -> None:
    end_s = model.by_events(1, model.batches([1e-3] * 10, 1), FABRIC)
    assert end_s == pytest.approx(10 * (1e-3 + FABRIC.latency_s))


@pytest.mark.parametrize("task_s", [50e-6, 500e-6])
def test_saturation_is_where_the_workers_ask_for_what_the_counter_serves(task_s: float) -> None:
    workers = model.saturation(Way(), task_s, FABRIC)
    assert workers / (task_s + FABRIC.latency_s) == pytest.approx(1 / FABRIC.service_s)
    below = model.simulate(Way(), int(workers / 1.5), task_s, FABRIC, TASKS)
    above = model.simulate(Way(), int(workers * 1.5), task_s, FABRIC, TASKS)
    assert below.efficiency > 0.9
    assert above.efficiency == pytest.approx(1 / 1.5, rel=0.07)
    assert above.rate == pytest.approx(1 / FABRIC.service_s, rel=0.05)


@pytest.mark.parametrize(
    ("way", "factor"), [(Way(batch=8), 8), (Way(repositories=4), 4), (Way(cores=16), 16)], ids=str
)
def test_what_moves_the_saturation(way: Way, factor: int) -> None:
    task_s = 500e-6
    before = model.saturation(Way(), task_s, FABRIC)
    assert model.saturation(way, task_s, FABRIC) == pytest.approx(factor * before, rel=0.01)
    crowd = int(2 * factor * before)
    rate = model.simulate(way, crowd, task_s, FABRIC, way.batch * TASKS).rate
    assert rate == pytest.approx(factor / FABRIC.service_s, rel=0.05)


def test_a_static_range_is_one_claim_for_each_worker() -> None:
    times_s = model.chunks(Schedule.STATIC, 10, model.spread(10 * TASKS))
    assert len(times_s) == 10
    assert times_s.sum() == pytest.approx(model.spread(10 * TASKS).sum())


def test_a_range_saturates_later_than_its_tasks() -> None:
    workers, task_s = 2_000, 100e-6
    plain = model.simulate(Way(), workers, task_s, FABRIC, TASKS).efficiency
    for way in RANGES:
        if way.schedule is not Schedule.SELF:
            assert model.simulate(way, workers, task_s, FABRIC, TASKS).efficiency > 2 * plain


def test_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "WORKERS", (2, 128, 1_000, 21_000))
    assert simulate.main(["--tasks", "2", "--latency-us", "3", "--service-us", "1"]) == 0
    shown = capsys.readouterr().out
    assert "as given, latency 3 us, service 1 us; 2 tasks" in shown
    assert all(str(way) in shown for way in simulate.CLAIMS + simulate.RANGES)


def test_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    picture = importlib.import_module("simulation.picture")
    monkeypatch.setattr(picture, "WORKERS", (2, 20))
    picture.draw(tmp_path / "claims.png", "some fabric", FABRIC, 2, (*CLAIMS, *RANGES))
    assert (tmp_path / "claims.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "words",
    [
        ["--tasks", "0"],
        ["--service-us", "5"],
        ["--latency-us", "0"],
        ["--fabric", "string"],
        ["--plot", "/nowhere/picture.png"],
    ],
)
def test_what_makes_no_sense(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        simulate.main(words)
    assert left.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_numbers_are_short() -> None:
    found = [simulate.short(number) for number in (25.4, 9_994, 22_430, 223_650, 3_846_000, 338e6)]
    assert found == ["25", "9,994", "22.4 k", "224 k", "3.85 M", "338 M"]
    times = [simulate.duration(seconds) for seconds in (10e-6, 1e-3, 0.1, 10)]
    assert times == ["10 us", "1 ms", "100 ms", "10 s"]
