"""Measure workpool and its peers, and print one table.

    sh scripts/bench                                  all rows, some 20 minutes
    sh scripts/bench --quick                          2 workers, less of everything, some 6 minutes
    sh scripts/bench --rows submit map --workers 2 --json bench.json --plot bench.png
    sh scripts/bench --mpi openmpi
    sh scripts/bench --workers 3 --rows submit payload --mpi-args "-hosts a,b"

Every measurement is a process or an MPI job of its own. In each round all pools have their turn,
one after another, so that what else the machine does falls on all of them alike.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workpool.launch import mpiexec

from . import chart, launch
from .peers import PEERS
from .request import Request
from .results import Results
from .rows import ROWS, Row
from .table import LEGEND, Table


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write, and return the exit status: 1 if a measurement failed."""
    options = arguments(words)
    rows = [ROWS[name] for name in options.rows]
    machine = surroundings()
    table = Table(rows, sys.stdout.isatty())
    results = Results()
    begun = time.monotonic()
    print("\n".join(f"{name:<9}{value}" for name, value in machine.items()), end="\n\n")
    print(table.head(), flush=True)
    for row in rows:
        measure(row, options, results)
        print(table.block(row, list(results.lines(row))), flush=True)
        for request, why in results.failures:
            if request.measure == row.name:
                name = PEERS[request.peer].name
                print(f"{name}, {request.workers} workers, failed: {why}", flush=True)
    print(LEGEND)
    print(f"{options.rounds} rounds, {time.monotonic() - begun:.0f} s", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report(machine, options, rows, results), indent=1))
    if options.plot:
        blocks = [(row, list(results.lines(row))) for row in rows]
        chart.draw(options.plot, blocks, f"{machine['MPI']}, {machine['machine']}")
    return 1 if results.failures else 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="bench",
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = [name for name, row in ROWS.items() if not row.asked]
    add = parser.add_argument
    add("--rows", nargs="+", metavar="NAME", help=f"{', '.join(ROWS)}", default=usual)
    add("--workers", nargs="+", type=int, metavar="N", help="numbers of workers (1 2 4)")
    add("--rounds", type=int, metavar="N", help="how often each is measured (3)")
    add("--quick", action="store_true", help="2 workers, 2 rounds, fewer tasks")
    add("--mpi-args", type=shlex.split, default=[], metavar="WORDS", help="options of mpiexec")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--plot", type=Path, metavar="FILE.png", help="draw a chart there")
    options = parser.parse_args(words)
    options.workers = options.workers or ([2] if options.quick else [1, 2, 4])
    options.rounds = options.rounds or (2 if options.quick else 3)
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"--rows {unknown[0]}: use some of {', '.join(ROWS)}")
    if min(*options.workers, options.rounds) < 1:
        parser.error("--workers, --rounds: numbers from 1 up")
    for path in filter(None, (options.json, options.plot)):
        try:
            path.open("ab").close()  # now, not after all the work
        except OSError as error:
            parser.error(f"{path}: {error.strerror}")
    return options


def measure(row: Row, options: argparse.Namespace, results: Results) -> None:
    """Measure a row: in every round each pool once with each number of workers."""
    for request in requests(row, options):
        announce(f"{row.name}, round {request.turn + 1}: {request.peer}, {request.workers} workers")
        try:
            results.measured.append((request, launch.measure(request, options.mpi_args)))
        except launch.Failed as failed:
            results.failures.append((request, str(failed)))
    announce("")


def announce(words: str) -> None:
    """Show what is being done, where somebody may be looking."""
    if sys.stderr.isatty():
        print(f"\r{words:<70}\r", end="", file=sys.stderr, flush=True)


def requests(row: Row, options: argparse.Namespace) -> Iterator[Request]:
    """Yield the measurements of a row in the order in which they are done."""
    several = [row.workers] if row.workers else options.workers
    seconds, share = (0.3, 0.25) if options.quick else (1.0, 1.0)
    for turn in range(options.rounds):
        for workers in several:
            # There and back, so that no pool always comes first.
            for peer in row.peers if turn % 2 == 0 else reversed(row.peers):
                if peer == "serial" and workers != several[0]:
                    continue  # it has no workers
                yield Request(row.name, peer, workers, turn, seconds, share)


def surroundings() -> dict[str, str]:
    """Return where this is measured."""
    names = ("workpool", "mpi4py", "schwimmbad", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return {
        "MPI": mpiexec.library().version.partition(",")[0],
        "Python": f"{platform.python_version()}, {versions}",
        "machine": f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}",
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def report(
    machine: dict[str, str], options: argparse.Namespace, rows: list[Row], results: Results
) -> dict[str, Any]:
    """Return everything, for JSON."""
    return {
        "machine": machine,
        "rounds": options.rounds,
        "quick": options.quick,
        "table": [line for row in rows for line in results.as_json(row)],
        "measurements": [
            {**request._asdict(), "figures": figures} for request, figures in results.measured
        ],
        "failures": [{**request._asdict(), "why": why} for request, why in results.failures],
    }


if __name__ == "__main__":
    sys.exit(main())
