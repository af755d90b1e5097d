"""The rows of the table: what is measured, of whom, and what the figures mean."""

from __future__ import annotations

from typing import NamedTuple

from .peers import BOUNDED, EXECUTORS, MPI_POOLS, POOLS

#: Whom workpool is compared with in columns of their own.
AGAINST = ("futures", "control")


class Figure(NamedTuple):
    """One number of a measurement: its name there, what the table calls it, and which is better."""

    name: str
    label: str
    more_is_better: bool = True

    def times_better(self, ours: float, theirs: float) -> float | None:
        """Return how many times better one value is than another."""
        better, worse = (ours, theirs) if self.more_is_better else (theirs, ours)
        return better / worse if worse else None


class Row(NamedTuple):
    """A block of the table: the figures that one kind of measurement yields.

    Parameters
    ----------
    name : str
        Of the measure.
    title : str
    figures : tuple of Figure
    peers : tuple of str
    workers : int, optional
        With how many it is measured; by default with as many as the user asks for.
    asked : bool
        Whether it is measured only when it is named.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    peers: tuple[str, ...]
    workers: int | None = None
    asked: bool = False


ROWS = {
    row.name: row
    for row in (
        Row(
            "submit",
            "100,000 no-op tasks defined in the script, first submit to last result",
            (Figure("rate", "tasks/s"),),
            (*EXECUTORS, "serial", "claims"),
        ),
        Row(
            "objects",
            "100,000 tasks that take an object of a class of the script and return another, and\n"
            "a map over as many; chunk sizes as below",
            (Figure("rate", "tasks/s"), Figure("map", "map /s")),
            EXECUTORS,
        ),
        Row(
            "reads",
            "100,000 tasks whose function reads 64 KiB of the script, and as many whose function\n"
            "is an argument of another",
            (Figure("array", "array /s"), Figure("argument", "argum. /s")),
            EXECUTORS,
        ),
        Row(
            "latency",
            "one task at a time, submit to result",
            (Figure("median", "us median", False), Figure("p99", "us 99th %", False)),
            (*EXECUTORS, "serial"),
            workers=1,
        ),
        Row(
            "pause",
            "one task after a second of nothing, submit to result",
            (Figure("median", "ms median", False),),
            EXECUTORS,
            workers=2,
        ),
        Row(
            "map",
            "a no-op over range(1_000_000), and over a list of as many floats;\n"
            "no chunk size for workpool, the best of 1, 10, 100, 1000 and 10,000 for others",
            (Figure("range", "range /s"), Figure("list", "floats /s")),
            (*POOLS, "serial"),
        ),
        Row(
            "generator",
            "map of a no-op over a generator of 1,000,000 items, 50,000 ahead at most;\n"
            "chunk sizes as above; growth is that of the driver's memory",
            (Figure("rate", "items/s"), Figure("growth", "MB growth", False)),
            BOUNDED,
        ),
        Row(
            "uneven",
            "parallel efficiency of map without tuning, sum of task times / (workers x wall):\n"
            "log-normal times of mean 1 ms and sigma 1.5; the rows of a Mandelbrot picture;\n"
            "50 ms giants after many dwarfs of 0.5 ms, and that time against the best chunksize=;\n"
            "tasks compute where each rank has a core, else they sleep",
            (
                Figure("lognormal", "% lognormal"),
                Figure("mandelbrot", "% Mandelbr."),
                Figure("giants", "% giants"),
                Figure("of the best", "% best time", False),
            ),
            POOLS,
        ),
        Row(
            "payload",
            "arrays of float64 there and back, times per second",
            tuple(Figure(name, name) for name in ("1 KiB", "64 KiB", "1 MiB", "64 MiB")),
            (*MPI_POOLS, "processes", "multiprocessing", "serial"),
        ),
        Row(
            "accumulator",
            "100,000 tasks that add 8 float64 to an accumulator, and their speed\n"
            "relative to the same tasks without",
            (Figure("rate", "tasks/s"), Figure("share", "% of speed")),
            ("workpool",),
        ),
        Row(
            "isolated",
            "no-op tasks in a child process of the worker: how much longer one at a time takes,\n"
            "submit to result, and 100,000 of them",
            (Figure("alone", "us more", False), Figure("rate", "tasks/s")),
            ("workpool",),
        ),
        Row(
            "idle",
            "share of a core used after 1 s without work: the driver, and the busiest worker",
            (Figure("driver", "% driver", False), Figure("worker", "% worker", False)),
            (*MPI_POOLS, "processes", "multiprocessing"),
            workers=4,
        ),
        Row(
            "start",
            "from the start of mpiexec, or of the script where there is none, to the first result",
            (Figure("time", "s", False),),
            POOLS,
            workers=4,
        ),
        Row(
            "queued",
            "1,000,000 futures queued (others: 100,000): the driver's memory for each, and the\n"
            "time to submit the second half of them relative to the first",
            (Figure("bytes", "bytes", False), Figure("linear", "2nd / 1st", False)),
            EXECUTORS,
            workers=1,
        ),
        Row(
            "big",
            "an argument and a result of 2.3 GB through an arena of 256 MiB, and how many copies\n"
            "of it are alive at the most in one process, itself included",
            (
                Figure("argument s", "s argument", False),
                Figure("argument copies", "copies", False),
                Figure("result s", "s result", False),
                Figure("result copies", "copies", False),
            ),
            ("workpool",),
            workers=1,
            asked=True,
        ),
    )
}
