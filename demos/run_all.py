"""Run the demos one after another, and print a line for each: what it shows, its check, its time.

    sh scripts/demos                        all of them, on 4 ranks
    sh scripts/demos --mpi openmpi -n 8
    sh scripts/demos 13_counter pi          these only

The exit status is 1 if a check fails; what that demo printed follows its line.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from workpool.launch import mpiexec

HERE = Path(__file__).resolve().parent
ARGUMENTS = {"code_census": ("--check", str(HERE.parent / "workpool"))}  # a few files are enough
PATIENCE_S = 120


def demos() -> list[Path]:
    """Return the programs in the order of the path through them."""
    pool = ("code_census", "pi", "mandelbrot", "schedules", "sweep", "serve")
    return [*sorted(HERE.glob("rma/[0-9]*.py")), *(HERE / f"{name}.py" for name in pool)]


def main(words: Sequence[str] | None = None) -> int:
    """Run the demos and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", type=int, default=4, metavar="RANKS", help="2 to 64 (4)")
    parser.add_argument("names", nargs="*", metavar="name", help="as 13_counter (all)")
    options = parser.parse_args(words)
    known = {path.stem: path for path in demos()}
    wrong = [name for name in options.names if name not in known]
    if wrong or not 2 <= options.n <= 64:
        parser.error(f"no demo {wrong[0]}: {', '.join(known)}" if wrong else "-n: 2 to 64 ranks")

    print(f"{mpiexec.library().version}, {options.n} ranks\n", flush=True)
    failed = left_out = 0
    for name in options.names or known:
        shown = (ast.get_docstring(ast.parse(known[name].read_text())) or "").partition("\n")[0]
        print(f"{name:<20} ", end="", flush=True)
        begun = time.perf_counter()
        status, output = run(known[name], options.n)
        took_s = time.perf_counter() - begun
        few = status == 2 and "ranks" in output  # not what it is made for: it says so
        verdict = "right" if not status else "none" if few else f"FAILED, status {status}"
        print(f"{verdict:<6} {took_s:5.1f} s  {shown}", flush=True)
        if status:
            failed += not few
            left_out += few
            print(output)
    note = f", {left_out} cannot be shown on so few ranks" if left_out else ""
    print(f"\n{failed} failed{note}" if failed else f"\nall checks are right{note}")
    return 1 if failed else 0


def run(path: Path, ranks: int) -> tuple[int, str]:
    """Run one demo; return its status and what it printed."""
    found = mpiexec.find()
    if path.parent == HERE:
        words = ["-m", "workpool", str(path), *ARGUMENTS.get(path.stem, ())]
    else:
        words = [str(path)]
    command = mpiexec.command_line(found, ranks, [sys.executable, *words])
    with tempfile.TemporaryDirectory() as place:  # for what it writes
        try:
            done = subprocess.run(
                command,
                cwd=place,
                env=mpiexec.environment(found.kind, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired as late:
            return 124, f"not ended in {PATIENCE_S} s\n{(late.stdout or b'').decode()}"
    return done.returncode, done.stdout.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
