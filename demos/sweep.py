"""Sweep two parameters of a forced oscillator: some points fail, and the others do not notice.

    workpool run -w 4 demos/sweep.py
    mpiexec -n 5 python -m workpool demos/sweep.py --columns 120 --rows 40
    mpiexec -n 5 python -m workpool demos/sweep.py --steps 200     shorter steps, fewer failures

The Duffing oscillator, x'' + 0.3 x' - x + x^3 = g cos(w t), is a ball in two valleys, pushed to
and fro. For each strength g and frequency w a task integrates it by the Runge-Kutta method of
fourth order and looks at it once in every period of the push. When it has come back to where it was
n periods before, the motion has period n, and the task ends; for chaotic motion it goes on to the
last period. So the costs differ, and nobody knows how before.

Each period has the same number of steps. Where the push is slow and strong these are too long: the
numbers overflow, and the task raises FloatingPointError. The exception arrives on the future of
this one point, with the remote traceback as its cause, and the sweep goes on.

The check: each point ended either well or by an exception; in the window, where each task adds a
visit to its own point, those that ended well count once and those that raised not at all; and
everything, exceptions too, is as it is when this process does it alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from typing import NamedTuple

import numpy as np

from workpool import Accumulator, WorkPool

FREQUENCIES = 0.1, 1.6
STRENGTHS = 0.25, 6.0
DAMPING = 0.3

PERIODS = 80
"""How many periods of the push chaotic motion is followed."""

LONGEST = 9
"""The longest period that is looked for."""

SYMBOLS = "#.23456789"
"""What the map shows for no period, for period 1, for period 2 ..."""

Cell = tuple[int, int]


class Push(NamedTuple):
    """The parameters of one point: g cos(w t)."""

    strength: float
    frequency: float


# The task. It runs on a worker.


def explore(visits: Accumulator, cell: Cell, push: Push, steps: int) -> int:
    """Return the period at one point; the visit counts only if this does not raise."""
    here = np.zeros(visits.shape, visits.dtype)
    here[cell] = 1
    visits.add(here)
    return period(push, steps)


def period(push: Push, steps: int) -> int:
    """Return after how many periods of the push the motion repeats itself, 0 if it does not."""
    x, v = 1.0, 0.0
    seen: list[tuple[float, float]] = []
    while len(seen) < PERIODS:
        x, v = one_period(push, steps, x, v)
        if not math.isfinite(x + v):
            raise FloatingPointError(f"overflow in period {len(seen) + 1}")
        seen.append((x, v))
        for n in range(1, min(LONGEST, len(seen) // 2) + 1):
            pairs = zip(seen[-n:], seen[-2 * n : -n], strict=True)
            if all(math.dist(now, before) < 1e-6 for now, before in pairs):
                return n
    return 0


def one_period(push: Push, steps: int, x: float, v: float) -> tuple[float, float]:
    """Return place and speed one period of the push later."""
    h = 2 * math.pi / push.frequency / steps

    def force(x: float, v: float, t: float) -> float:
        return x - x * x * x - DAMPING * v + push.strength * math.cos(push.frequency * t)

    for i in range(steps):
        t = i * h
        v1, a1 = v, force(x, v, t)
        v2, a2 = v + h / 2 * a1, force(x + h / 2 * v1, v + h / 2 * a1, t + h / 2)
        v3, a3 = v + h / 2 * a2, force(x + h / 2 * v2, v + h / 2 * a2, t + h / 2)
        v4, a4 = v + h * a3, force(x + h * v3, v + h * a3, t + h)
        x += h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
        v += h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return x, v


# The driver.


def main(words: Sequence[str] | None = None) -> int:
    """Make the sweep, check it, and return the exit status."""
    options = arguments(words)
    grid = pushes(options.rows, options.columns)
    periods: dict[Cell, int] = {}
    failures: dict[Cell, BaseException] = {}

    with WorkPool() as pool:
        visits = pool.accumulator((options.rows, options.columns), "int32", op="sum")
        begun = time.perf_counter()
        futures = {
            pool.submit(explore, visits, cell, push, options.steps): cell
            for cell, push in grid.items()
        }
        for future in as_completed(futures):
            error = future.exception()
            if error is None:
                periods[futures[future]] = future.result()
            else:
                failures[futures[future]] = error
        wall_s = time.perf_counter() - begun
        workers = pool.num_workers
    if options.sabotage:
        for cell in list(periods)[:1]:
            periods[cell] += 1

    report_map(grid, periods)
    report_failures(grid, failures)
    print(f"\n{len(grid):,} points on {workers} workers in {wall_s:.2f} s")
    return check(grid, periods, failures, visits.value(), options.steps)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--columns", type=int, default=72, help="frequencies of the push")
    parser.add_argument("--rows", type=int, default=20, help="strengths of the push")
    parser.add_argument("--steps", type=int, default=40, help="in each of its periods")
    parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if min(options.columns, options.rows, options.steps) < 1:
        parser.error(
            f"--columns {options.columns} --rows {options.rows} --steps {options.steps}: 1 at least"
        )
    return options


def pushes(rows: int, columns: int) -> dict[Cell, Push]:
    """Return the points of the grid, the strongest push in row 0."""
    strengths = np.linspace(*STRENGTHS, rows)[::-1].tolist()
    frequencies = np.linspace(*FREQUENCIES, columns).tolist()
    return {
        (i, j): Push(strength, frequency)
        for i, strength in enumerate(strengths)
        for j, frequency in enumerate(frequencies)
    }


# What is printed.


def report_map(grid: dict[Cell, Push], periods: dict[Cell, int]) -> None:
    """Print the period at every point."""
    print(f"period of the motion: . is 1, # none up to {LONGEST}, ! failed")
    print("strength", end="")
    for (row, column), push in grid.items():
        if column == 0:
            print(f"\n{push.strength:8.2f} ", end="")
        print(SYMBOLS[periods[row, column]] if (row, column) in periods else "!", end="")
    low, high = (f"{each:g}" for each in FREQUENCIES)
    print(f"\n\n         {low}{high:>{max(0, column + 1 - len(low))}} frequency")


def report_failures(grid: dict[Cell, Push], failures: dict[Cell, BaseException]) -> None:
    """Print what was raised, for which parameters and where."""
    print(f"\n{len(failures)} points failed" + (":" if failures else ""))
    shown = sorted(failures)[:10]
    for cell in shown:
        strength, frequency = grid[cell]
        cause = failures[cell].__cause__  # a RemoteTraceback
        place = f"rank {cause.rank} on {cause.host}"
        reason = described(failures[cell])
        print(f"  strength {strength:.2f} frequency {frequency:.2f}  {reason}  on {place}")
    if len(failures) > len(shown):
        print(f"  and {len(failures) - len(shown)} more")


def described(error: BaseException) -> str:
    """Return an exception as the last line of its traceback."""
    return f"{type(error).__name__}: {error}"


# The check.


def check(
    grid: dict[Cell, Push],
    periods: dict[Cell, int],
    failures: dict[Cell, BaseException],
    visits: np.ndarray,
    steps: int,
) -> int:
    """Account for every point, and compare it with a serial run; return 1 if any is wrong."""
    found = {**periods, **{cell: described(error) for cell, error in failures.items()}}
    once = sorted([*periods, *failures]) == sorted(grid)
    counted = all(visits[cell] == (cell in periods) for cell in grid)
    wrong = [cell for cell, push in grid.items() if found.get(cell) != alone(push, steps)]

    claims = {
        "each point ended once, well or by an exception": once,
        f"{visits.sum():,} visits count, one where a point ended well": counted,
        "one process finds the same at each point": not wrong,
    }
    for claim, holds in claims.items():
        print(f"check: {claim}: {'yes' if holds else 'WRONG'}")
    for cell in wrong[:10]:
        print(f"  {grid[cell]}: {found.get(cell)}, serially {alone(grid[cell], steps)}")
    return 0 if all(claims.values()) else 1


def alone(push: Push, steps: int) -> int | str:
    """Return what becomes of one point in this process."""
    try:
        return period(push, steps)
    except FloatingPointError as error:
        return described(error)


if __name__ == "__main__":
    sys.exit(main())
