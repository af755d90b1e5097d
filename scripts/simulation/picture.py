"""The picture of ``simulate.py``: how busy workers are, by their number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from .model import Fabric, Way, saturation, simulate

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, PercentFormatter

WORKERS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
TIMES_S = {10e-6: "10 us", 100e-6: "100 us", 1e-3: "1 ms", 10e-3: "10 ms", 100e-3: "100 ms"}
TASK_S = 100e-6  # of the right half


def draw(path: Path, name: str, fabric: Fabric, tasks: int, ways: Sequence[Way]) -> None:
    """Draw one counter at several task times, and several ways to claim at one task time."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.6), sharey=True, layout="constrained")
    figure.suptitle(
        f"Claims at one counter: {name}, latency {fabric.latency_s * 1e6:.3g} us, "
        f"service {fabric.service_s * 1e6:.3g} us, {tasks} tasks for each worker"
    )
    colors = plt.get_cmap("viridis")
    for i, (task_s, label) in enumerate(TIMES_S.items()):
        color = colors(i / len(TIMES_S))
        found = efficiencies(Way(), task_s, fabric, tasks)
        left.plot(*found, marker=".", label=label, color=color)
        crossing = saturation(Way(), task_s, fabric)
        left.axvline(crossing, color=color, linewidth=1, linestyle=":")
    left.set_title("one claim for each task, by the time of a task\n(dotted: saturation)")

    claims = [way for way in ways if way.schedule is None]
    ranges = [way for way in ways if way.schedule is not None]
    for group, style, palette in ((claims, "-", "tab10"), (ranges, "--", "Dark2")):
        for i, way in enumerate(group):
            found, color = efficiencies(way, TASK_S, fabric, tasks), plt.get_cmap(palette)(i)
            right.plot(*found, style, marker=".", label=str(way), color=color)
    right.set_title(f"tasks of {TIMES_S[TASK_S]}, by the way to claim")

    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlim(WORKERS[0], WORKERS[-1])
        axes.set_xlabel("workers")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda workers, _: f"{workers:,.0f}"))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower left", framealpha=0.95)
    left.set_ylim(0, 1.02)
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set_ylabel("part of the workers' time that is work")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def efficiencies(
    way: Way, task_s: float, fabric: Fabric, tasks: int
) -> tuple[list[int], list[float]]:
    """Return numbers of workers that claim in one way, and which part of their time is work."""
    numbers = [workers for workers in WORKERS if workers <= way.most_workers]
    return numbers, [simulate(way, n, task_s, fabric, tasks).efficiency for n in numbers]
