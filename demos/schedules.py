"""Share uneven items out under each schedule of map, and see which worker took which, and when.

    workpool run -w 4 demos/schedules.py
    workpool run -w 4 demos/schedules.py --plot schedules.png       needs matplotlib
    mpiexec -n 8 python -m workpool demos/schedules.py --items 5000 --seconds 4

Most items are short, a few take a hundred times as long, and around two thirds of the way all are
longer. Nobody knows that in advance. The schedules differ in how many items a worker takes at a
time:

static     an equal part of all for each worker: whoever has the long ones ends last
self       one: nobody waits for long, but every item costs a claim
guided     an equal part of what is left: the first parts are large, and may be too large
factoring  half of that, the same for each worker in turn
trapezoid  fewer each time, from half a static part down to one
adaptive   as many as take two milliseconds by the worker's own measure, fewer towards the end

An item is a wait, of which the last tenth of a millisecond is spent computing. A waiting worker is
as busy as a computing one and needs no core, so this shows the same with more workers than cores.
Each item returns which process ran it, and from when to when by the clock of the host: all workers
must be on one. What a worker takes at a time shows as a stretch of items; two stretches that touch
count as one. Efficiency is work over workers times wall.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workpool import WorkPool

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEDULES = ("static", "self", "guided", "factoring", "trapezoid", "adaptive")
SPIN_S = 1e-4
"""The end of a wait that is not slept: to wake up takes about as long, and is never exact."""


class Record(NamedTuple):
    """What became of an item."""

    item: int
    value: int
    process: int
    begun_s: float
    ended_s: float


class Run(NamedTuple):
    """All items under one schedule."""

    schedule: str
    records: list[Record]
    begun_s: float
    wall_s: float


# The task. It runs on a worker.


def wait(item: int, cost_s: float) -> tuple[int, int, int, float, float]:
    """Wait; return the fields of a record: its class would travel with every chunk."""
    begun_s = time.monotonic()
    if cost_s > SPIN_S:
        time.sleep(cost_s - SPIN_S)
    while (ended_s := time.monotonic()) < begun_s + cost_s:
        pass
    return item, value(item), os.getpid(), begun_s, ended_s


def value(item: int) -> int:
    """Return what an item computes."""
    return pow(item, 65_537, 1_000_003)


# The driver.


def main(words: Sequence[str] | None = None) -> int:
    """Run all schedules, show them, check them, and return the exit status."""
    options = arguments(words)
    costs_s = costs(options.items, options.seconds)
    with WorkPool() as pool:
        workers = pool.num_workers
        list(pool.map(wait, range(4 * workers), [2e-3] * 4 * workers))  # all are awake
        runs = [run(pool, schedule, costs_s) for schedule in SCHEDULES]
    if options.sabotage:
        first = runs[0].records
        first[0] = first[0]._replace(value=first[0].value + 1)

    show(runs, costs_s, workers)
    if options.plot:
        draw(options.plot, runs, costs_s, workers)
        print(f"\ndrawn: {options.plot}")
    return check(runs, len(costs_s))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--items", type=int, default=1500, help="of each schedule (1500)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of all items together (1.5)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw who took what")
    parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if not (1 <= options.items <= 100_000 and 0 < options.seconds <= 100):
        parser.error(
            f"--items {options.items} --seconds {options.seconds}: "
            "1 to 100000 items, up to 100 seconds"
        )
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot: matplotlib is not installed: pip install matplotlib")
    if options.plot and not options.plot.resolve().parent.is_dir():
        parser.error(f"--plot {options.plot}: no such directory")
    return options


def costs(items: int, seconds: float) -> NDArray[np.float64]:
    """Return how long each item takes: a heavy tail over a hill, the same in every run."""
    tail = np.random.default_rng(3).lognormal(sigma=1.0, size=items)
    hill = 1 + 80 * np.exp(-(((np.arange(items) / items - 0.65) / 0.1) ** 2))
    return tail * hill * seconds / (tail * hill).sum()


def run(pool: WorkPool, schedule: str, costs_s: NDArray[np.float64]) -> Run:
    """Have all items done under one schedule."""
    begun_s = time.monotonic()
    found = list(pool.map(wait, range(len(costs_s)), costs_s.tolist(), schedule=schedule))
    wall_s = time.monotonic() - begun_s
    return Run(schedule, [Record(*fields) for fields in found], begun_s, wall_s)


# What is printed.


def stretches(records: Sequence[Record]) -> list[list[Record]]:
    """Return the items that one worker did one after another."""
    found = groupby(records, key=lambda record: record.process)
    return [list(group) for _, group in found]


def show(runs: Sequence[Run], costs_s: NDArray[np.float64], workers: int) -> None:
    """Print a line for each schedule."""
    least_ms, most_ms = costs_s.min() * 1e3, costs_s.max() * 1e3
    crew = f"{workers} workers" if workers > 1 else "1 worker"
    print(f"{len(costs_s)} items of {least_ms:.3f} to {most_ms:.1f} ms, on {crew};")
    print(f"{costs_s.sum():.2f} s of work, so {costs_s.sum() / workers:.2f} s at the least\n")
    print("             wall s   efficiency   stretches   largest   idle at the end, mean ms")
    for each in runs:
        found = stretches(each.records)
        print(
            f"{each.schedule:<12}{each.wall_s:>7.3f}{costs_s.sum() / workers / each.wall_s:>13.1%}"
            f"{len(found):>12}{max(map(len, found)):>10}{idle_s(each) * 1e3:>27.1f}"
        )


def lanes(each: Run) -> list[list[Record]]:
    """Return what each worker did, in the order of time; the one that ends last comes first."""
    processes = {record.process for record in each.records}
    found = [[r for r in each.records if r.process == process] for process in processes]
    for lane in found:
        lane.sort(key=lambda record: record.begun_s)
    return sorted(found, key=lambda lane: lane[-1].ended_s, reverse=True)


def idle_s(each: Run) -> float:
    """Return the mean time from a worker's last item to the end of the run."""
    return each.begun_s + each.wall_s - float(np.mean([lane[-1].ended_s for lane in lanes(each)]))


def check(runs: Sequence[Run], items: int) -> int:
    """Compare everything with a serial run; return 1 if anything is wrong."""
    expected = [(item, value(item)) for item in range(items)]
    status = 0
    print()
    for each in runs:
        right = [record[:2] for record in each.records] == expected
        alone = all(
            one.ended_s <= other.begun_s for lane in lanes(each) for one, other in pairwise(lane)
        )
        status |= not (right and alone)
        verdict = "yes" if right and alone else "WRONG"
        print(f"check: {each.schedule}: every item once, with the value of a serial run: {verdict}")
    return status


# The picture.


def draw(path: Path, runs: Sequence[Run], costs_s: NDArray[np.float64], workers: int) -> None:
    """Draw a lane for each worker under each schedule, every item in the color of its number."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    items, colors = len(costs_s), plt.get_cmap("turbo")
    lane = 0.14 + 0.5 / workers  # inches
    heights = [1.0] + [0.35 + lane * workers] * len(runs)
    figure, (top, *panels) = plt.subplots(
        len(heights), 1, figsize=(10, sum(heights) + 1), height_ratios=heights, layout="constrained"
    )
    top.bar(range(items), costs_s * 1e3, width=1, color=colors(np.arange(items) / items))
    top.set_xlim(-0.5, items - 0.5)
    top.set_yscale("log")
    top.set_ylabel("ms")
    title(top, "the items, and how long each one takes: its color below is that of its number")
    for panel, each in zip(panels, runs, strict=True):
        panel.axvspan(0, each.wall_s, color="0.85")  # what no item covers
        for y, records in enumerate(lanes(each)):
            panel.broken_barh(
                [(r.begun_s - each.begun_s, r.ended_s - r.begun_s) for r in records],
                (y - 0.45, 0.9),
                facecolors=colors(np.array([r.item for r in records]) / items),
            )
        work = costs_s.sum() / workers / each.wall_s
        count = len(stretches(each.records))
        title(panel, f"{each.schedule}: {each.wall_s:.2f} s, {work:.0%} work, {count} stretches")
        panel.set_xlim(0, max(other.wall_s for other in runs))
        panel.set_yticks([])
        panel.set_ylabel(f"{workers} workers" if workers > 1 else "1 worker")
        panel.tick_params(labelbottom=panel is panels[-1])
    panels[-1].set_xlabel("seconds; gray: a worker that does nothing")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def title(panel: Axes, text: str) -> None:
    """Put a line over a panel."""
    panel.set_title(text, loc="left", fontsize="medium")


if __name__ == "__main__":
    sys.exit(main())
