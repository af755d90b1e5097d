"""Jobs that outlive their workers: how they are started, what their drivers have, how they end."""

from __future__ import annotations

import os

from jobs import Ended, Job
from launching import run

#: Before each driver: `member(n)` is the process id of a member, `files()` are those in shared
#: memory, `each(pool, fn, n)` runs a task on each of n workers and returns the values by rank,
#: `strike(pool, signum, *members)` sends a signal to members when all workers are idle, `kill(n)`
#: kills one at any moment, but not while it holds a lock of Open MPI's, which nobody could unlock.
HEAD = """\
import os, signal, sys, threading, time
from workpool import WorkPool
from workpool.job import entry
from workpool.system.shared_memory import mpi_files

def member(n):
    return entry.current().liveness.members[n].pid

def files():
    print("files", *mpi_files(os.getpid()), flush=True)

def rank():
    return int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])

def visit(fn):
    time.sleep(0.05)
    return rank(), fn()

def each(pool, fn, n=3):
    found = {}
    while len(found) < n:
        found.update(f.result() for f in [pool.submit(visit, fn) for _ in range(2 * n)])
    return found

def strike(pool, signum, *members, workers=3):
    each(pool, os.getpid, workers)
    time.sleep(0.2)
    for n in members:
        os.kill(member(n), signum)

def answers():
    window = entry.current().tables.drivers[0].window
    asked = threading.Thread(target=window.load, args=[0], daemon=True)
    asked.start()
    asked.join(1)
    return not asked.is_alive()

def kill(n):
    while "OMPI_COMM_WORLD_RANK" in os.environ:
        os.kill(member(n), signal.SIGSTOP)
        while entry.current().liveness.state(n) != "stopped":
            time.sleep(0.001)
        if answers():
            break
        os.kill(member(n), signal.SIGCONT)
    os.kill(member(n), signal.SIGKILL)

def until_dead(*members):
    while any(entry.current().liveness.state(n) != "dead" for n in members):
        time.sleep(0.01)

"""


def survive(text: str, workers: int = 3) -> Job:
    """Start a job that outlives its workers."""
    return run("--survive", "-w", str(workers), "-c", HEAD + text)


def end(started: Job, limit_s: float = 40) -> Ended:
    """Wait for the end, and see that nothing is left in shared memory."""
    ended = started.wait(limit_s)
    for line in ended.out.splitlines():
        if line.startswith("files"):
            left = [path for path in line.split()[1:] if os.path.exists(path)]
            assert not left, f"{left} left behind, after {ended}"
    return ended


def deaths(ended: Ended) -> list[str]:
    """Return the lines about dead workers, without what is not the same in every run."""
    lines = [line for line in ended.err.splitlines() if "died" in line]
    return [f"{line.split(' on ')[0]} {line.partition(') ')[2]}" for line in lines]


#: A driver that waits while each of three workers runs a task.
BUSY = """
with WorkPool({options}) as pool:
    each(pool, os.getpid)
    futures = [pool.submit(time.sleep, 60) for _ in range(3)]
    while not all(future.running() for future in futures):
        time.sleep(0.01)
    files()
    print("busy", flush=True)
    futures[0].result()
"""
