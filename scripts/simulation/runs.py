"""Real runs on this host, to compare a simulation with: ranks that claim, workers that wait.

Started by ``simulate.py --check``; each function below that starts an mpiexec has its counterpart,
which runs in the ranks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workpool.launch import mpiexec

ROUNDS = 5
ROUND_S = 0.2
PATIENCE_S = 120


class Waits(NamedTuple):
    """A run of tasks that wait."""

    workers: int
    tasks: int
    task_s: float  # as the tasks measured it
    wall_s: float


def fetch_add_s() -> float:
    """Return what `workpool info` measures for one completed ``fetch_add``."""
    command = [sys.executable, "-m", "workpool.launch.cli", "info"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    line = next(line for line in shown.stdout.splitlines() if line.startswith("fetch_add"))
    return float(line.split()[1]) * 1e-6


# --- claims ---------------------------------------------------------------------------------------


def claims(origins: Sequence[int]) -> dict[int, float]:
    """Return how many claims in a second so many origins make together at one counter."""
    words = [__file__, "claims", *map(str, origins)]
    rates: dict[str, float] = json.loads(started(1 + max(origins), words))
    return {int(number): rate for number, rate in rates.items()}


def claim(words: Sequence[str]) -> None:
    """Claim on every rank but the first, which holds the counter; print the rates."""
    from mpi4py import MPI  # noqa: TID251  # the bare calls are what is measured

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    win = MPI.Win.Allocate(8 if rank == 0 else 0, 8, comm=comm)
    win.Lock_all()
    one, ticket = np.ones(1, np.int64), np.zeros(1, np.int64)

    def rate() -> float:
        begun, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begun) < ROUND_S:
            for _ in range(100):
                win.Fetch_and_op(one, ticket, 0, 0, MPI.SUM)
                win.Flush(0)
            count += 100
        return count / elapsed

    rates: dict[str, list[float]] = {word: [] for word in words}
    for _ in range(ROUNDS):
        for word in words:
            comm.Barrier()
            mine = rate() if 1 <= rank <= int(word) else 0.0
            over = comm.Ibarrier()
            while not over.Test():
                time.sleep(0.002)  # leaves the cores to the others
            rates[word].append(comm.allreduce(mine))
    win.Unlock_all()
    win.Free()
    if rank == 0:
        print(json.dumps({word: statistics.median(found) for word, found in rates.items()}))


# --- waits ----------------------------------------------------------------------------------------


def waits(workers: int, tasks: int, times_s: Sequence[float]) -> list[Waits]:
    """Return runs of a pool whose tasks wait for so long, one claim each."""
    words = ["-m", "workpool", __file__, "waits", str(tasks), *map(str, times_s)]
    return [Waits(*found) for found in json.loads(started(1 + workers, words))]


def wait(task_s: float) -> float:
    """Wait; return how long it took."""
    begun = time.perf_counter()
    time.sleep(task_s)
    return time.perf_counter() - begun


def drive(words: Sequence[str]) -> None:
    """Have the workers of a pool wait; print the runs."""
    from workpool import WorkPool

    tasks, *times_s = map(float, words)
    found = []
    with WorkPool() as pool:
        total = int(tasks) * pool.num_workers
        list(pool.map(wait, [0.001] * total, schedule="self"))  # the workers have the code now
        for task_s in times_s:
            begun = time.perf_counter()
            took_s = list(pool.map(wait, [task_s] * total, schedule="self"))
            wall_s = time.perf_counter() - begun
            found.append(Waits(pool.num_workers, total, statistics.fmean(took_s), wall_s))
    print(json.dumps(found))


def started(ranks: int, words: Sequence[str]) -> str:
    """Run ranks of this Python; return what they print."""
    found = mpiexec.find()
    done = subprocess.run(
        mpiexec.command_line(found, ranks, [sys.executable, *words]),
        env=mpiexec.environment(found.kind, os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout


if __name__ == "__main__":
    {"claims": claim, "waits": drive}[sys.argv[1]](sys.argv[2:])
