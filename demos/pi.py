"""Estimate pi by throwing darts: tasks add their hits to numbers in the repository's window.

    workpool run -w 4 demos/pi.py                                256 million darts
    mpiexec -n 5 python -m workpool demos/pi.py --tasks 64 --seed 7
    python demos/pi.py                                           one process

A dart falls anywhere in the unit square, and with probability pi/4 inside the quarter circle. Each
task throws its darts and adds two integers to an accumulator, hits and darts; it returns nothing.
The driver looks at the totals while tasks run: four times as many darts halve the error, no more.

A parallel computation with random numbers can still be repeated exactly. SeedSequence.spawn gives
every task a stream of its own, so a result depends on the task and not on the worker that ran it,
and sums of integers do not depend on their order. The check throws all darts again, in this process
alone, and wants the same number of hits; then it wants pi within five standard errors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import as_completed

import numpy as np

from workpool import Accumulator, WorkPool

BATCH = 1 << 14
"""Darts thrown at once: their coordinates stay in the cache."""


# The task. It runs on a worker.


def throw(totals: Accumulator, stream: np.random.SeedSequence, darts: int) -> None:
    """Add the hits among some darts, and the darts."""
    totals.add([hits(stream, darts), darts])


def hits(stream: np.random.SeedSequence, darts: int) -> int:
    """Return how many darts of a stream of random numbers fall inside the quarter circle."""
    generator = np.random.Generator(np.random.SFC64(stream))
    inside = 0
    for first in range(0, darts, BATCH):
        x, y = generator.random((2, min(BATCH, darts - first)))
        inside += int(np.count_nonzero(x * x + y * y < 1.0))
    return inside


# The driver.


def main(words: Sequence[str] | None = None) -> int:
    """Estimate pi, check the estimate, and return the exit status."""
    options = arguments(words)
    streams = np.random.SeedSequence(options.seed).spawn(options.tasks)

    with WorkPool() as pool:
        totals = pool.accumulator((2,), "int64", op="sum")
        print(f"{options.tasks:,} tasks of {options.darts:,} darts on {pool.num_workers} workers\n")
        print(f"{'tasks done':>10}{'darts':>14}{'estimate':>12}{'off by':>12}{'one sigma':>12}")
        begun = time.perf_counter()
        futures = [pool.submit(throw, totals, stream, options.darts) for stream in streams]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()  # raises what the task raised
            if done & (done - 1) == 0 and done < options.tasks:  # after 1, 2, 4, 8 ... tasks
                show(done, *totals.value())  # with what other tasks have added by now
        pool_s = time.perf_counter() - begun
        if options.sabotage:
            totals.add([1, 0])  # a hit that no dart made
        inside, darts = (int(total) for total in totals.value())
    show(options.tasks, inside, darts)

    begun = time.perf_counter()
    serial = sum(hits(stream, options.darts) for stream in streams)
    serial_s = time.perf_counter() - begun
    off = abs(4 * inside / darts - math.pi)
    print(f"\n{pool_s:.2f} s in the pool, {serial_s:.2f} s in one process")
    claims = {
        f"{serial:,} hits serially, {inside:,} in the window": inside == serial,
        f"{darts:,} darts were counted": darts == options.tasks * options.darts,
        "pi is within five standard errors": off <= 5 * standard_error(darts),
    }
    for claim, holds in claims.items():
        print(f"check: {claim}: {'yes' if holds else 'WRONG'}")
    return 0 if all(claims.values()) else 1


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--darts", type=int, default=1_000_000, help="of each task")
    parser.add_argument("--tasks", type=int, default=256, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.tasks < 1 or options.darts < 1:
        parser.error(f"--tasks {options.tasks} --darts {options.darts}: both are 1 at least")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: it cannot be negative")
    return options


def standard_error(darts: int) -> float:
    """Return that of the estimate: four times that of a share of pi/4."""
    return math.sqrt(math.pi * (4 - math.pi) / darts)


def show(done: int, inside: int, darts: int) -> None:
    """Print a line of the table."""
    estimate, sigma = 4 * inside / darts, standard_error(darts)
    off = estimate - math.pi
    print(f"{done:>10}{darts:>14,}{estimate:>12.6f}{off:>+12.1e}{sigma:>12.1e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
