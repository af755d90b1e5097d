"""Kill a job with a journal at random moments, and start it again, until all is done.

    python scripts/chaos_journal.py [--kills 30] [--workers 2] [--seed N]

Each run is SIGKILLed: its driver, a worker, its launcher, or every process at once.  After the last
kill it may end by itself.  Then every result must be right and in the journal exactly once, and no
task may have run again whose result was in the journal before.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from pickle import loads

TASKS = 2000
ITEMS = 4000
VICTIMS = ("driver", "worker", "launcher", "everything")

DRIVER = f"""\
import time
from workpool import WorkPool

def work(n):
    with open("ran", "ab", buffering=0) as ran:
        ran.write(b"%d\\n" % n)
    time.sleep(0.001)
    return n, "x" * (n % 300)

with WorkPool(journal="run.db", drain_s=2) as pool:
    print("open", flush=True)
    futures = [pool.submit(work, n) for n in range({TASKS})]
    for n, value in enumerate(pool.map(work, range({TASKS}, {TASKS + ITEMS})), {TASKS}):
        assert value == (n, "x" * (n % 300)), (n, value)
    for n, future in enumerate(futures):
        assert future.result() == (n, "x" * (n % 300)), (n, future.result())
    print("complete", flush=True)
"""


def main() -> int:
    """Do what the command line asks for; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    chance = random.Random(given.seed)
    print(f"seed {given.seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="workpool-chaos-") as name:
        place = Path(name)
        (place / "driver.py").write_text(DRIVER)
        kills = ends = again = 0
        while kills < given.kills or not ends:
            before = results(place)
            (place / "ran").unlink(missing_ok=True)
            victim = chance.choice(VICTIMS) if kills < given.kills else ""
            status, out = run(place, given.workers, victim, chance)
            found = results(place)
            ran = (place / "ran").read_text().split() if (place / "ran").exists() else []
            again += len(before) + len(ran) - len(found)
            if not before <= found or not found - before <= set(map(int, ran)):
                print(f"WRONG: {len(before)} results became {len(found)}, {len(ran)} tasks ran")
                return 1
            if wrong := before & set(map(int, ran)):
                print(f"WRONG: tasks ran again that were done: {sorted(wrong)[:9]} ...")
                return 1
            if not victim and (status or "complete" not in out):
                print(f"WRONG: status {status}: {out}")
                return 1
            kills += bool(victim)
            ends += not victim
            done = f"{len(found):>5} of {TASKS + ITEMS} done"
            print(f"{victim or 'nobody':<11}{done}, {len(ran):>5} tasks ran", flush=True)
            if victim and len(found) == TASKS + ITEMS:  # too early: from the start
                for path in place.glob("run.db*"):
                    path.unlink()
        if len(results(place)) != TASKS + ITEMS:
            print(f"WRONG: {len(results(place))} results in the end")
            return 1
    print(f"all right: {kills} kills, {again} tasks ran again, {time.monotonic() - begun:.0f} s")
    return 0


def run(place: Path, workers: int, victim: str, chance: random.Random) -> tuple[int, str]:
    """Run the job, and kill the victim after a while; return status and output."""
    mark = f"WORKPOOL_CHAOS={uuid.uuid4().hex}"
    command = [sys.executable, "-m", "workpool.launch.cli", "run", "-w", str(workers), "driver.py"]
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "WORKPOOL_CHAOS": mark.partition("=")[2]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = ""
    if victim:
        if chance.random() < 0.8:
            first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.4))
        processes = members(mark)
        ranks = sorted(pid for pid, words in processes.items() if words[1:3] == ["-m", "workpool"])
        doomed = {
            "driver": ranks[:1],
            "worker": ranks[1:2],
            "launcher": [process.pid],
            "everything": list(processes),
        }[victim] or [process.pid]
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    out = first + process.communicate(timeout=120)[0]
    give_up = time.monotonic() + 30
    while left := members(mark):
        if time.monotonic() > give_up:
            raise SystemExit(f"WRONG: left behind: {left}")
        time.sleep(0.02)
    return process.returncode, out


def members(mark: str) -> dict[int, list[str]]:
    """Return the command lines of the job's processes, by process id."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or somebody else's
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(entry.name)] = words
    return found


def results(place: Path) -> set[int]:
    """Return which tasks have results in the journal; each must be right and there once."""
    path = place / "run.db"
    if not path.exists() or not path.stat().st_size:
        return set()
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT listed, value FROM records").fetchall()
    except sqlite3.OperationalError:  # killed before there was a table
        rows = []
    connection.close()
    values = [value for listed, raw in rows for value in (loads(raw) if listed else [loads(raw)])]
    found = {n for n, _ in values}
    if len(values) != len(found) or values != [(n, "x" * (n % 300)) for n, _ in values]:
        raise SystemExit(f"WRONG: {len(values)} results of {len(found)} tasks, or their values")
    return found


if __name__ == "__main__":
    sys.exit(main())
