"""What every program of this directory does at its start and at its end.

demo = Demonstration(__doc__, least=2)
demo.parser.add_argument("--items", type=int, default=1000, help="...")
options = demo.begin()
...
demo.check("what was shown", all_is_well)  # on every rank
sys.exit(demo.end("workpool/..., where the same idea does its work"))
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from mpi4py import MPI

__all__ = ["Demonstration", "median_us", "mpi_name", "wait_until"]

MOST_RANKS = 64
ROUNDS = 5  # of which `median_us` takes the median


class Demonstration:
    """One demonstration on the ranks of a communicator.

    Parameters
    ----------
    doc : str
        The program's docstring; its first line is printed at the start.
    least : int
        How few ranks it can be run on.

    Attributes
    ----------
    comm : MPI.Intracomm
        ``MPI.COMM_WORLD``.
    rank, size : int
    sabotage : bool
        Asks the program to break its own data: its check must find that.
    """

    def __init__(self, doc: str, least: int = 2) -> None:
        self.comm = MPI.COMM_WORLD
        self.rank = self.comm.Get_rank()
        self.size = self.comm.Get_size()
        self.sabotage = False
        self.parser = _Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
        self.parser.silent = self.rank > 0
        self._title = doc.partition("\n")[0]
        self._ranks = range(least, MOST_RANKS + 1)
        self._failures = 0
        sys.excepthook = _end_all

    def begin(self, words: list[str] | None = None) -> Any:
        """Return the arguments; print the title, or leave with status 2 if something is wrong."""
        options = self.parser.parse_args(words)
        self.sabotage = options.sabotage
        if self.size not in self._ranks:
            first = self._ranks[0]
            self.parser.error(
                f"runs on {first} to {MOST_RANKS} ranks, not {self.size}: mpiexec -n {first}"
            )
        self.say(f"{self._title}\n({self.size} ranks, {mpi_name()})\n")
        return options

    def say(self, text: str = "") -> None:
        """Print on rank 0."""
        if self.rank == 0:
            print(text, flush=True)

    def say_each(self, text: str) -> None:
        """Print the text of every rank that has one, in the order of the ranks.  Collective."""
        for each in self.comm.gather(text) or []:
            if each:
                self.say(each)

    def meet(self) -> None:
        """Wait for every rank, asleep: the cores are for those still at work.  Collective.

        A rank that waits here looks into MPI every 0.2 ms or so, so it is a target that answers.
        """
        wait_until(self.comm.Ibarrier().Test, "the other ranks", 0.2e-3, limit_s=600)

    def check(self, claim: str, right: object) -> bool:
        """Print whether a claim holds on every rank.  Collective."""
        wrong = [rank for rank, each in enumerate(self.comm.allgather(bool(right))) if not each]
        self._failures += bool(wrong)
        self.say(f"check: {claim}: {f'WRONG on ranks {wrong}' if wrong else 'yes'}")
        return not wrong

    def end(self, where: str) -> int:
        """Name the piece of workpool with the same idea; return the exit status."""
        self.say(f"\nin workpool: {where}")
        return 1 if self._failures else 0


def median_us(call: Callable[[], object], calls: int) -> float:
    """Return the microseconds of one call: the median of several rounds, after a warm-up."""
    times = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begun) / calls * 1e6)
    return statistics.median(times[1:])


def wait_until(
    met: Callable[[], object], what: str, longest_s: float = 1e-3, limit_s: float = 60
) -> None:
    """Look until a condition is met: a few times at once, then between sleeps that get longer.

    Raises
    ------
    TimeoutError
        If it is not met within `limit_s`.
    """
    begun = time.perf_counter()
    looks, pause_s = 0, 50e-6
    while not met():
        looks += 1
        if looks < 20:
            os.sched_yield()
            continue
        if time.perf_counter() - begun > limit_s:
            raise TimeoutError(f"waited {limit_s:g} s for {what}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)


def mpi_name() -> str:
    """Return name and version of the MPI library."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and on one rank for all."""

    silent = False

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if not self.silent:
            super()._print_message(message, file)


def _end_all(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """End every rank when one fails: the others would wait for it for ever."""
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)
