"""Tasks, a map and a reduce with known results, while something kills what runs them.

    victim.py SEED TASKS REPORT [deaths]

What they read of the script changes from one submit to another, and all but the map add to an
accumulator.  A thread of the driver stops worker ranks for longer than their lease and lets them go
on, kills the child processes in which half of the tasks run, and with ``deaths`` kills up to half
of the ranks, one of them where it restores the function of the map.  Workers take tasks by pointer
where the seed is even, by counter where it is odd, and items by each of the schedules in turn.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chaoslab import trap
from workpool import Accumulator, WorkPool
from workpool.job import entry
from workpool.schedule import Schedule

LEASE_S = 0.5
CLAIMS = ("pointer", "counter")

#: Tasks that are submitted between two changes of what they read.
STEADY = 100


@dataclass
class Scale:
    """By what results are multiplied."""

    by: int


# What tasks read of the script: the one is known by its attribute, the other by its bytes.
scale = Scale(1)
offsets = np.zeros(16, int)


def change(n: int) -> None:
    """Change what tasks read, as always before the n-th is submitted."""
    scale.by = 1 + n // STEADY % 7
    offsets[n // STEADY % len(offsets)] += 1


def computed(n: int) -> int:
    """Return what follows from a number, and from what tasks read."""
    return scale.by * n + int(offsets[n % len(offsets)])


def task(sums: Accumulator, n: int) -> int:
    """Return what follows from a number, and count."""
    sums.add([1, n])
    if n % 500 == 0:
        time.sleep(0.02)
    return computed(n)


def trapped(n: int) -> int:
    """Return what follows from a number, if the worker has not died of this function."""
    return trap.passed(computed(n))


def who() -> int:
    """Return whose process this is, and leave the others time to answer as well."""
    time.sleep(0.02)
    return os.getpid()


class Chaos(threading.Thread):
    """Does harm until it is stopped."""

    def __init__(self, seed: int, ranks: list[int], may_die: int) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter(kills=0, stops=0, deaths=0)
        self._random = random.Random(seed)
        self._ranks = ranks
        self._may_die = may_die
        self._over = threading.Event()

    def run(self) -> None:
        acts = [self._kill_child, self._kill_child, self._stop_rank]
        if self._may_die:
            acts.append(self._kill_rank)
        while not self._over.wait(self._random.uniform(0.02, 0.3)):
            self._random.choice(acts)()

    def stop(self) -> None:
        """End it, with every rank that lives running."""
        self._over.set()
        self.join()

    def _kill_child(self) -> None:
        rank = self._random.choice(self._ranks)
        for child in children(rank):
            if send(child, signal.SIGKILL):
                self.counts["kills"] += 1

    def _stop_rank(self) -> None:
        rank = self._random.choice(self._ranks)
        if not send(rank, signal.SIGSTOP):
            return
        self.counts["stops"] += 1
        time.sleep(self._random.choice([0.05, LEASE_S / 2, 2 * LEASE_S]))
        send(rank, signal.SIGCONT)

    def _kill_rank(self) -> None:
        """Kill a rank, but not while it holds a lock of Open MPI's, which nobody could unlock."""
        if self.counts["deaths"] == self._may_die:
            return
        rank = self._random.choice(self._ranks)
        if "OMPI_COMM_WORLD_RANK" in os.environ:
            while not stands_still(rank):
                send(rank, signal.SIGSTOP)
                time.sleep(0.001)
            if not answers():
                send(rank, signal.SIGCONT)
                return
        self._ranks.remove(rank)
        self.counts["deaths"] += send(rank, signal.SIGKILL)


def answers() -> bool:
    """Return whether the window can be used: no process that stands still has locked it."""
    window = entry.current().tables.drivers[0].window
    asking = threading.Thread(target=window.load, args=[0], daemon=True)
    asking.start()
    asking.join(1)
    return not asking.is_alive()


def stands_still(process: int) -> bool:
    """Return whether a process is stopped, or gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "TXZ"
    except OSError:
        return True


def send(process: int, signum: int) -> bool:
    """Send a signal to a process that we have started; whether it was there."""
    try:
        os.kill(process, signum)
    except ProcessLookupError:
        return False
    return True


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def main(seed: int, tasks: int, report: Path, deaths: bool) -> None:
    """Run the tasks and account for each."""
    numbers = range(tasks)
    claim, schedule = CLAIMS[seed % 2], list(Schedule)[seed % len(Schedule)].name.lower()

    def counted(n: int) -> int:
        sums.add([1, n])
        return computed(n)

    with WorkPool(lease_s=LEASE_S, claim=claim) as pool:
        ranks: set[int] = set()
        while len(ranks) < pool.num_workers:
            ranks.update(future.result() for future in [pool.submit(who) for _ in range(20)])
        sums = pool.accumulator((2,), "int64")
        isolated = pool.with_options(isolate=True, retries=100)
        doomed = len(ranks) // 2 if deaths else 0
        caught = min(doomed, 1)
        if caught:
            trap.SET.touch()
        chaos = Chaos(seed, sorted(ranks), doomed - caught)
        chaos.start()
        views = (pool, isolated)
        futures, expected = [], []
        for n in numbers:
            if n % STEADY == 0:
                change(n)
            futures.append(views[n % 2].submit(task, sums, n))
            expected.append(computed(n))
        items = pool.map(trapped, numbers, schedule=schedule)
        folded = pool.reduce(counted, numbers, schedule=schedule)
        right = [computed(n) for n in numbers]
        wrong: Counter[str] = Counter()
        wrong["wrong item"] += sum(a != b for a, b in zip(items, right, strict=True))
        wrong["wrong fold"] += folded != sum(right)
        ended = []
        for n, future in zip(numbers, futures, strict=True):
            error = future.exception()
            if error is not None:
                wrong[type(error).__name__] += 1
                continue
            ended.append(n)
            wrong["wrong result"] += future.result() != expected[n]
        chaos.stop()
        chaos.counts["deaths"] += caught
        wrong["trap that nobody sprang"] += trap.SET.exists()
        accumulated = sums.value().tolist()
        added = [len(ended) + tasks, sum(ended) + sum(numbers)]  # a failed task adds nothing
        if accumulated != added:
            wrong[f"accumulated {accumulated} instead of {added}"] += 1
        stats = pool.stats()
    # A task that has brought down three processes is given up: killed by chance, not wrong.
    given_up = wrong.pop("WorkerCrashed", 0)
    found = {
        "claim": claim,
        "schedule": schedule,
        "tasks": tasks,
        "isolated": tasks // 2,
        **chaos.counts,
        "evicted": sum(each.evicted for each in stats),
        "crashed": given_up,
        "outcome": ", ".join(f"{what}: {n}" for what, n in wrong.items() if n) or "right",
    }
    report.write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] == ["deaths"])
