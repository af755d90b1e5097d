"""Draw a piece of the Mandelbrot set: one task for each row, at very different costs.

    workpool run -w 4 demos/mandelbrot.py                      writes mandelbrot.png
    mpiexec -n 5 python -m workpool demos/mandelbrot.py --width 1500 --output big.png
    python demos/mandelbrot.py --center=-0.7453+0.1127j --span 0.0065 --iterations 1000 --check

A point c of the plane belongs to the set if z -> z*z + c, begun at 0, stays small for ever. Most
points are gone after a few rounds; those inside take every round that they are given. So a row
across the set costs many times a row beside it. Equal blocks of rows would leave most workers
waiting for one, and nobody knows in advance which. Here each worker takes the next row when it has
finished one, and all end together.

The check draws rows again in this process: every eighth, or all of them with --check.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
import zlib
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workpool import WorkerStats, WorkPool

SAMPLES = 2
"""Points of the plane for each pixel, across and down."""

RADIUS = 1e3
"""Where a point counts as gone; 2 would do for the set, more gives smooth colors."""


class View(NamedTuple):
    """What is drawn; `span` is the width of the picture in the plane."""

    center: complex
    span: float
    width: int
    height: int
    iterations: int


class Row(NamedTuple):
    """A drawn row: red, green and blue of its pixels, and the processor time that it took."""

    pixels: NDArray[np.uint8]
    cost_s: float


# The task. It runs on a worker.


def draw(view: View, y: int) -> Row:
    """Draw one row of pixels."""
    begun = time.thread_time()
    across = (np.arange(SAMPLES * view.width) + 0.5) / SAMPLES - view.width / 2
    down = y + (np.arange(SAMPLES) + 0.5) / SAMPLES - view.height / 2
    points = view.center + view.span / view.width * (across - 1j * down[:, np.newaxis])
    colors = colored(rounds(points.ravel(), view.iterations))
    mean = colors.reshape(SAMPLES, view.width, SAMPLES, 3).mean(axis=(0, 2))
    return Row(np.rint(255 * mean).astype(np.uint8), time.thread_time() - begun)


def rounds(c: NDArray[np.complex128], most: int) -> NDArray[np.float64]:
    """Return after how many rounds each point is gone, with a fraction; inf for those that stay."""
    found = np.full(c.shape, np.inf)
    place = np.arange(c.size)
    z = np.zeros_like(c)
    for i in range(most):
        if not z.size:
            break
        z *= z
        z += c
        gone = z.real**2 + z.imag**2 > RADIUS**2
        if gone.any():
            beyond = np.log(np.abs(z[gone])) / np.log(RADIUS)  # 1 to 2: how far it overshot
            found[place[gone]] = i + 2 - np.log2(beyond)
            place, z, c = place[~gone], z[~gone], c[~gone]
    return found


def colored(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return red, green and blue from 0 to 1: waves over the logarithm, black for the set."""
    inside = np.isinf(found)[:, np.newaxis]
    turns = 0.55 * np.log(np.where(inside, 1, found[:, np.newaxis])) + (0.3, 0.4, 0.5)
    return np.where(inside, 0, 0.5 + 0.5 * np.cos(2 * np.pi * turns))


# The driver.


def main(words: Sequence[str] | None = None) -> int:
    """Draw the picture, check it, and return the exit status."""
    options = arguments(words)
    width, height = options.width, 2 * options.width // 3
    view = View(options.center, options.span, width, height, options.iterations)

    with WorkPool() as pool:
        begun = time.perf_counter()
        rows = list(pool.map(draw, repeat(view), range(height)))
        wall_s = time.perf_counter() - begun
        stats = pool.stats()
    picture = np.array([row.pixels for row in rows])
    if options.sabotage:
        picture[0, 0] += 1  # one pixel
    options.output.write_bytes(png(picture))

    print(f"{options.output}: {width} x {height} pixels")
    report_rows([row.cost_s for row in rows])
    report_work(stats, [row.cost_s for row in rows], wall_s)
    return check(view, picture, range(0, height, 1 if options.check else 8))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--width", type=int, default=720, help="in pixels; 3:2 is the shape")
    parser.add_argument("--center", type=complex, default=0.2926 + 0.0142j, help="of the view")
    parser.add_argument("--span", type=float, default=0.0072, help="width of the view in the plane")
    parser.add_argument("--iterations", type=int, default=1200, help="given to points inside")
    parser.add_argument("--output", type=Path, default="mandelbrot.png", help="the file to write")
    parser.add_argument("--check", action="store_true", help="of all rows, not of some")
    parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.width < 2 or options.iterations < 1:
        parser.error(f"--width {options.width} --iterations {options.iterations}: 2 and 1 at least")
    if not (abs(options.center) <= 2 and 0 < options.span <= 8):
        parser.error(f"--center {options.center} --span {options.span}: far from the set")
    try:
        options.output.open("ab").close()  # now, not after all the work
    except OSError as error:
        parser.error(f"--output {options.output}: {error.strerror}")
    return options


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture in the PNG format: three chunks, each with its length and its checksum."""
    height, width, _ = pixels.shape
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # in front of each row: no filter

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of each color
    chunks = (
        chunk(b"IHDR", header),
        chunk(b"IDAT", zlib.compress(rows.tobytes())),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


# What is printed.


def report_rows(costs_s: Sequence[float]) -> None:
    """Print what the rows cost, from the top of the picture to its bottom."""
    print("\nrows              ms each")
    bands = np.array_split(np.array(costs_s) * 1e3, min(15, len(costs_s)))
    dearest = max(band.mean() for band in bands)
    first = 0
    for band in bands:
        bar = "#" * round(50 * band.mean() / dearest)
        print(f"  {first:>5} to {first + len(band) - 1:<5}{band.mean():>8.2f}  {bar}")
        first += len(band)


def report_work(stats: Sequence[WorkerStats], costs_s: Sequence[float], wall_s: float) -> None:
    """Print what each worker did, and how evenly the work fell."""
    print("\nworker     rows    busy s   of wall")
    for worker in stats:
        share = worker.busy_s / wall_s
        print(f"  rank {worker.rank:<3}{worker.tasks:>5}{worker.busy_s:>10.2f}{share:>10.0%}")
    blocks_s = [block.sum() for block in np.array_split(costs_s, len(stats))]
    print(f"{wall_s:.2f} s for {sum(costs_s):.2f} s of processor time")
    print("evenness (mean of the workers' times over the longest):")
    print(f"{evenness([worker.busy_s for worker in stats]):>6.0%} here, row by row")
    print(f"{evenness(blocks_s):>6.0%} if each worker had an equal block of rows")


def evenness(times_s: Sequence[float]) -> float:
    """Return the mean of some times over the longest: 1 if all are equal."""
    return float(np.mean(times_s) / max(*times_s, 1e-9))


def check(view: View, picture: NDArray[np.uint8], sample: Sequence[int]) -> int:
    """Draw rows again, here; return 1 if any is not as it is in the picture."""
    wrong = [y for y in sample if not np.array_equal(draw(view, y).pixels, picture[y])]
    verdict = f"WRONG in rows {', '.join(map(str, wrong))}" if wrong else "yes"
    print(f"\ncheck: {len(sample)} rows are the same when one process draws them: {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
