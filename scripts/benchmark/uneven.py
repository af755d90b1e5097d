"""Tasks that take very different times, as lists of seconds."""

from __future__ import annotations

import math
import random

#: Tasks for each worker, so that a pool is busy for about as long with any number of workers.
LOGNORMAL, ROWS, DWARFS, GIANTS = 1000, 250, 400, 4

MEAN_S, SIGMA = 1e-3, 1.5
ROW_S = 2e-3
DWARF_S, GIANT_S = 0.5e-3, 50e-3


def lognormal(workers: int, turn: int) -> list[float]:
    """Return log-normal times, others in each round."""
    chance = random.Random(turn)
    mu = math.log(MEAN_S) - SIGMA**2 / 2
    return [chance.lognormvariate(mu, SIGMA) for _ in range(LOGNORMAL * workers)]


def mandelbrot(workers: int) -> list[float]:
    """Return times in proportion to the rounds that the rows of a Mandelbrot picture take."""
    import numpy as np

    rows = ROWS * workers
    across, down = np.linspace(-2, 0.6, 64), np.linspace(-1.2, 1.2, rows)
    c = across + 1j * down[:, np.newaxis]
    z = np.zeros_like(c)
    rounds = np.zeros(rows)
    for _ in range(200):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        rounds += inside.sum(axis=1)
    times: list[float] = (rounds * (ROW_S / rounds.mean())).tolist()
    return times


def giants(workers: int) -> list[float]:
    """Return many short times, and at their end a few long ones."""
    return [DWARF_S] * (DWARFS * workers) + [GIANT_S] * (GIANTS * workers)
