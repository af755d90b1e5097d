"""Many short tasks with known results and an accumulator, while something kills what runs them.

    victim.py SEED TASKS REPORT [deaths]

A thread of the driver stops worker ranks for longer than their lease and lets them go on, kills the
child processes in which half of the tasks run, and with ``deaths`` kills up to half of the ranks.
Workers take tasks by pointer where the seed is even, by counter where it is odd.
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
from pathlib import Path

from workpool import Accumulator, WorkPool

LEASE_S = 0.5
CLAIMS = ("pointer", "counter")


def task(sums: Accumulator, n: int) -> int:
    """Return the square of a number, and count."""
    sums.add([1, n])
    if n % 500 == 0:
        time.sleep(0.02)
    return n * n


def who() -> int:
    """Return whose process this is, and leave the others time to answer as well."""
    time.sleep(0.02)
    return os.getpid()


class Chaos(threading.Thread):
    """Does harm until it is stopped."""

    def __init__(self, seed: int, ranks: list[int], deaths: bool) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter(kills=0, stops=0, deaths=0)
        self._random = random.Random(seed)
        self._ranks = ranks
        self._may_die = len(ranks) // 2 if deaths else 0
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
        if self.counts["deaths"] < self._may_die:
            rank = self._ranks.pop(self._random.randrange(len(self._ranks)))
            if send(rank, signal.SIGKILL):
                self.counts["deaths"] += 1


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
    claim = CLAIMS[seed % 2]
    with WorkPool(lease_s=LEASE_S, claim=claim) as pool:
        ranks: set[int] = set()
        while len(ranks) < pool.num_workers:
            ranks.update(future.result() for future in [pool.submit(who) for _ in range(20)])
        sums = pool.accumulator((2,), "int64")
        isolated = pool.with_options(isolate=True, retries=100)
        chaos = Chaos(seed, sorted(ranks), deaths)
        chaos.start()
        views = (pool, isolated)
        futures = [views[n % 2].submit(task, sums, n) for n in numbers]
        squares = list(pool.map(pow, numbers, [2] * tasks))
        wrong: Counter[str] = Counter()
        ended = []
        for n, future in zip(numbers, futures, strict=True):
            error = future.exception()
            if error is not None:
                wrong[type(error).__name__] += 1
                continue
            ended.append(n)
            wrong["wrong result"] += future.result() != n * n
        chaos.stop()
        wrong["wrong item"] += sum(a != n * n for n, a in zip(numbers, squares, strict=True))
        counted = sums.value().tolist()
        expected = [len(ended), sum(ended)]  # a task that has failed adds nothing
        if counted != expected:
            wrong[f"accumulated {counted} instead of {expected}"] += 1
        stats = pool.stats()
    # A task that has brought down three processes is given up: killed by chance, not wrong.
    given_up = wrong.pop("WorkerCrashed", 0)
    found = {
        "claim": claim,
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
