"""Count what Python code is made of: parse every file of a directory, one task for each.

    mpiexec -n 5 python -m workpool demos/code_census.py               the standard library
    mpiexec -n 5 python -m workpool demos/code_census.py ~/src         any other directory
    mpiexec -n 5 python -m workpool demos/code_census.py --check       compared with a serial run

Two kinds of result come back from the same tasks. What belongs to one file (its lines, its longest
function) is the task's return value, in the order of the files. What belongs to all of them, how
often each type of syntax node occurs, is never sent: every task adds its counts to an accumulator,
which is memory in the repository's window, and the driver reads the totals once at the end.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import repeat, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workpool import Accumulator, WorkerStats, WorkPool

NODE_TYPES = sorted(
    {kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)},
    key=lambda kind: kind.__name__,
)
"""What the elements of the histogram count, in order."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

BLOCKS = {kind for kind in ast.stmt.__subclasses__() if {"body", "cases"} & {*kind._fields}}
"""Statements that hold other statements: def, class, if, for, while, with, try, match."""


class Figures(NamedTuple):
    """What one file amounts to; `failure` says why it could not be parsed."""

    path: str
    lines: int = 0
    functions: int = 0
    classes: int = 0
    nesting: int = 0
    longest: tuple[int, str] = (0, "")
    common: tuple[str, ...] = ()
    failure: str = ""


# The task. It runs on a worker; the histogram is the accumulator that all tasks share.


def census(path: str, histogram: Accumulator) -> Figures:
    """Parse one file; return its figures, and add its node types to the histogram."""
    try:
        source = Path(path).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old code has invalid escapes and the like
            tree = ast.parse(source, path)  # finds the encoding by itself
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Figures(path, failure=f"{type(error).__name__} {error}".strip())

    kinds: Counter[type[ast.AST]] = Counter()
    nesting, longest = 0, (0, "")
    blocks: list[tuple[int, ast.AST]] = [(0, tree)]  # a stack: deep trees need no recursion
    while blocks:
        depth, block = blocks.pop()
        nesting = max(nesting, depth)
        waiting = [block]
        while waiting:
            node = waiting.pop()
            kind = type(node)
            kinds[kind] += 1
            if kind in FUNCTIONS:
                longest = max(longest, (node.end_lineno - node.lineno + 1, node.name))
            for child in ast.iter_child_nodes(node):
                if type(child) in BLOCKS and not is_elif(node, child):
                    blocks.append((depth + 1, child))
                elif not isinstance(child, ast.expr_context):  # a mark on a name, not syntax
                    waiting.append(child)

    histogram.add([kinds[kind] for kind in NODE_TYPES])
    return Figures(
        path,
        lines=len(source.splitlines()),
        functions=sum(kinds[kind] for kind in FUNCTIONS),
        classes=kinds[ast.ClassDef],
        nesting=nesting,
        longest=longest,
        common=tuple(kind.__name__ for kind, _ in kinds.most_common(3)),
    )


def is_elif(node: ast.AST, child: ast.AST) -> bool:
    """Return whether `child` is an ``elif`` of `node`: the tree has it as an ``if`` inside."""
    both = isinstance(node, ast.If) and isinstance(child, ast.If)
    return both and child in node.orelse and child.col_offset == node.col_offset


# The driver.


def main(words: Sequence[str] | None = None) -> int:
    """Run the census and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", nargs="?", default=sysconfig.get_path("stdlib"), type=Path)
    parser.add_argument("--check", action="store_true", help="compare with a serial run")
    options = parser.parse_args(words)
    try:
        paths = python_files(options.directory)
    except OSError as error:
        return complain(f"{options.directory}: {error.strerror}")
    if not paths:
        return complain(f"{options.directory}: no .py file in it")

    with WorkPool() as pool:
        histogram = pool.accumulator(shape=(len(NODE_TYPES),), dtype="int64", op="sum")
        started = time.perf_counter()
        files = list(pool.map(census, paths, repeat(histogram)))
        wall_s = time.perf_counter() - started
        counts = histogram.value()
        stats = pool.stats()

    report_files(options.directory, files)
    report_nodes(counts)
    report_work(stats, wall_s)
    return check(paths, files, counts, wall_s) if options.check else 0


def python_files(directory: Path) -> list[str]:
    """Return every .py file below `directory`, the largest first: no long task comes last."""
    os.listdir(directory)  # raises what is wrong with it, where rglob would just find nothing
    paths = (path for path in directory.rglob("*.py") if not path.is_dir())
    own = [path for path in paths if "site-packages" not in path.relative_to(directory).parts]
    return [str(path) for path in sorted(own, key=lambda path: (-path.lstat().st_size, path))]


def complain(message: str) -> int:
    """Say in one line what is wrong with the arguments."""
    print(f"code_census: {message}", file=sys.stderr)
    return 2


# What is printed.


def report_files(directory: Path, files: Sequence[Figures]) -> None:
    """Print totals, extremes, and what could not be parsed."""
    parsed = [file for file in files if not file.failure]
    failed = [file for file in files if file.failure]
    named = {file: str(Path(file.path).relative_to(directory)) for file in files}

    title(f"{directory}")
    print(f"{len(parsed):>10,} files parsed, {len(failed):,} not")
    for what in ("lines", "functions", "classes"):
        print(f"{sum(getattr(file, what) for file in parsed):>10,} {what}")

    title("Largest files", "lines", "functions", "classes", "mostly")
    for file in sorted(parsed, key=lambda file: -file.lines)[:10]:
        row(named[file], file.lines, file.functions, file.classes, *file.common[:1])

    title("Longest functions", "lines")
    for file in sorted(parsed, key=lambda file: file.longest, reverse=True)[:10]:
        if file.functions:
            row(f"{file.longest[1]} in {named[file]}", file.longest[0])

    title("Deepest nesting", "levels")
    for file in sorted(parsed, key=lambda file: -file.nesting)[:5]:
        row(named[file], file.nesting)

    if failed:
        title("Not parsed")
    for file in failed:
        print(f"  {named[file]}: {file.failure}")


def report_nodes(counts: np.ndarray) -> None:
    """Print the most common node types, with bars."""
    title("Most common syntax nodes", "", "", "count", "share")
    for index in np.argsort(-counts, kind="stable")[: min(15, np.count_nonzero(counts))]:
        share = counts[index] / counts.sum()
        bar = "#" * round(56 * counts[index] / counts.max())
        print(f"  {NODE_TYPES[index].__name__:<18} {bar:<57} {counts[index]:>9,} {share:>9.1%}")


def report_work(stats: Sequence[WorkerStats], wall_s: float) -> None:
    """Print what each worker did, and how evenly the work fell."""
    title("Workers", "tasks", "busy s", "of wall")
    for worker in stats:
        share = worker.busy_s / wall_s
        row(f"rank {worker.rank}", worker.tasks, f"{worker.busy_s:.2f}", f"{share:.0%}")
    busy_s = np.array([worker.busy_s for worker in stats])
    evenness = busy_s.mean() / max(busy_s.max(), 1e-9)
    print(f"  evenness {evenness:.0%} (mean of the busy times over their maximum)")
    busy = busy_s.sum() / wall_s
    print(f"  {wall_s:.2f} s in all: {busy:.2f} of {len(stats)} workers busy at a time")


def title(text: str, *columns: str) -> None:
    """Print a heading over columns of numbers."""
    print("\n" + (f"{text:<58}" + "".join(f"{column:>10}" for column in columns)).rstrip())


def row(text: str, *cells: object) -> None:
    """Print a line of a table."""
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    print(f"  {text[-56:]:<56}" + "".join(f"{text:>10}" for text in texts))


# The check: the same function, one file after another, in this process.


class Tally:
    """Stands for the accumulator in a serial run."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(NODE_TYPES), "int64")

    def add(self, counts: Sequence[int]) -> None:
        """Add counts."""
        self.counts += np.array(counts)


def check(paths: Sequence[str], files: Sequence[Figures], counts: np.ndarray, wall_s: float) -> int:
    """Compare with a serial run; name what differs, and return 1 if anything does."""
    tally = Tally()
    started = time.perf_counter()
    serial = [census(path, tally) for path in paths]
    serial_s = time.perf_counter() - started
    wrong = [
        f"serially {one}, in the pool {other}"
        for one, other in zip_longest(serial, files)
        if one != other
    ]
    wrong += [
        f"{kind.__name__}: serially {one:,}, in the pool {other:,}"
        for kind, one, other in zip(NODE_TYPES, tally.counts, counts, strict=True)
        if one != other
    ]
    print(f"\nChecked against a serial run: {len(wrong)} differences")
    for difference in wrong:
        print(f"  {difference}")
    gain = serial_s / wall_s
    print(f"  {serial_s:.2f} s serially, {wall_s:.2f} s in the pool: speed-up {gain:.2f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
