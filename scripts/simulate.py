"""Where one counter saturates: a discrete-event simulation of claims at a repository.

    python scripts/simulate.py                       tables: from 2 to 100,000 workers
    python scripts/simulate.py --plot claims.png     and a picture; needs matplotlib
    python scripts/simulate.py --fabric slingshot
    python scripts/simulate.py --latency-us 17 --service-us 2       any other fabric
    python scripts/simulate.py --measure             this host, by what `workpool info` measures
    python scripts/simulate.py --check               beside real runs of 2 to 16 ranks here

The model has two figures. Atomics at one address are served one after another: each one takes the
*service time*, and meanwhile nobody else is served. The origin waits for the *latency* (to the
counter and back, the service included), and for those who came before it. A worker claims, works,
and claims again. The times of tasks lie evenly between a half and one and a half of their mean. A
run begins with all workers asking at once and ends with the last task; both count, and at the end
a worker with a large batch or chunk works on while others have nothing left.

Two bounds hold for any such system (P. J. Denning and J. P. Buzen, "The Operational Analysis of
Queueing Network Models", ACM Computing Surveys 10(3), 1978): the workers do at most
workers / (task + latency) tasks in a second, and the counter gives out at most 1 / service. Where
they cross, the counter is saturated. What moves that point:

    batch K         one atomic takes K tickets
    range           the tickets are chunks of a range descriptor, sized by workpool.schedule
    nodes of C      C workers share a window of their node: one of them fetches tickets for all
    R repositories  each with a share of the workers and of the tasks

Every case is simulated by waves of claims, as arrays; the smaller ones event by event as well, and
the two must agree to the last digits. But an adaptive range, whose chunks depend on what each
worker has measured, is simulated event by event only, for up to 20,000 workers: by the runtime's
own code, which takes longer chunks where it waits longer for them, and looks how many are left
before it takes a share of the last ones.

Fabrics:

host        MPICH 5.0 in the shared memory of one host, by mpi4py: 1.4 us from call to answer. The
            counter itself is faster than two cores can ask: two origins together had an answer
            every 0.26 us (Open MPI 5.0), which is taken for the service time. Also the windows of
            nodes cost this much.
infiniband  One counter on a Connect-IB adapter serves 2.24 million fetch-and-adds in a second,
            because the adapter locks the address for a read and a write over PCIe; counters at
            random addresses 52 million; ConnectX-3 serves all addresses one after another, 2.7
            million (A. Kalia, M. Kaminsky and D. G. Andersen, "Design Guidelines for High
            Performance RDMA Systems", USENIX ATC 2016). Latency of a fetch-and-add on an mlx5
            adapter: 1.33 us (OpenUCX, log of its performance test in issue 350, 2015).
slingshot   Latency of a fetching 64-bit sum: 2.57 us (Hewlett Packard Enterprise, manual page
            cxi_atomic_lat(1), 2025). No rate at one address was found. At 4,096 addresses, without
            answers, a Cassini adapter serves 67.6 million 128-bit compare-and-swaps in a second,
            both directions together (manual page cxi_atomic_bw(1), 2025): one takes 30 ns or more.

Not in the model: the driver, which publishes and collects one task after another; the two
compare-and-swaps of a task's own row, at an address of its own; payloads; other traffic.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from simulation import runs
from simulation.model import FABRICS, HOST, Fabric, Way, batches, by_events, saturation, simulate

from workpool.schedule import Schedule

TASK_TIMES_S = (10e-6, 100e-6, 1e-3, 10e-3, 100e-3, 1.0, 10.0)
WORKERS = (2, 16, 128, 1_000, 10_000, 100_000)
TASKS = 64  # for each worker
FEW = (2, 16, 128)  # workers: few enough to be simulated event by event
RANKS = (1, 2, 4, 8, 16)  # of the real runs

ONE_BY_ONE = Way()
CLAIMS = (
    ONE_BY_ONE,
    Way(batch=16),
    Way(repositories=16),
    Way(cores=64),
    Way(cores=64, repositories=16),
    Way(cores=64, batch=16),
)
RANGES = tuple(Way(schedule=schedule) for schedule in Schedule if schedule is not Schedule.SELF)


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables and return the exit status."""
    options = arguments(words)
    if options.check:
        check_claims()
        check_waits()
        return 0
    begun = time.perf_counter()
    name, fabric = chosen(options)
    show_saturation(FABRICS | {name: fabric})
    print(
        f"\nBelow: {name}, latency {fabric.latency_s * 1e6:.3g} us, service "
        f"{fabric.service_s * 1e6:.3g} us; {options.tasks} tasks for each worker.\n"
    )
    show_workers(fabric, options.tasks)
    show_ways(fabric, options.tasks)
    agreed = agree(fabric, options.tasks)
    if options.plot:
        from simulation.picture import draw

        draw(options.plot, name, fabric, options.tasks, CLAIMS + RANGES)
        print(f"drawn: {options.plot}")
    print(f"\n{time.perf_counter() - begun:.1f} s")
    return 0 if agreed else 1


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fabric", choices=FABRICS, default="infiniband", help="(infiniband)")
    parser.add_argument("--latency-us", type=float, metavar="US", help="not that of the fabric")
    parser.add_argument("--service-us", type=float, metavar="US", help="not that of the fabric")
    parser.add_argument("--measure", action="store_true", help="the latency of this host")
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"for each worker ({TASKS})")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw a picture")
    parser.add_argument("--check", action="store_true", help="compare with real runs")
    options = parser.parse_args(words)
    if options.tasks < 1:
        parser.error(f"--tasks {options.tasks}: at least 1")
    _, (latency_s, service_s) = given(options)
    if not 0 < service_s <= latency_s:
        parser.error(
            f"service {service_s * 1e6:g} us, latency {latency_s * 1e6:g} us: "
            "the service is a part of the latency, and not 0"
        )
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot: matplotlib is not installed: pip install matplotlib")
    if options.plot and not options.plot.parent.is_dir():
        parser.error(f"--plot {options.plot}: no such directory")
    return options


def given(options: argparse.Namespace) -> tuple[str, Fabric]:
    """Return the fabric of the command line."""
    fabric = FABRICS[options.fabric]
    if options.latency_us is None and options.service_us is None:
        return options.fabric, fabric
    latency_s = fabric.latency_s if options.latency_us is None else options.latency_us * 1e-6
    service_s = fabric.service_s if options.service_us is None else options.service_us * 1e-6
    return "as given", Fabric(latency_s, service_s)


def chosen(options: argparse.Namespace) -> tuple[str, Fabric]:
    """Return the fabric of the command line, or what is measured here."""
    if not options.measure:
        return given(options)
    latency_s = runs.fetch_add_s()
    return "measured", Fabric(latency_s, min(latency_s, HOST.service_s))


# --- tables ---------------------------------------------------------------------------------------


def show_saturation(fabrics: dict[str, Fabric]) -> None:
    """Print how many workers saturate one counter."""
    print("Workers that saturate one counter, (task + latency) / service, by the time of a task")
    print(f"{'':<18}" + "".join(f"{duration(task_s):>9}" for task_s in TASK_TIMES_S) + "  claims/s")
    for name, fabric in fabrics.items():
        cells = [short(saturation(ONE_BY_ONE, task_s, fabric)) for task_s in TASK_TIMES_S]
        print(f"{name:<18}" + "".join(f"{c:>9}" for c in (*cells, short(1 / fabric.service_s))))


def show_workers(fabric: Fabric, tasks: int) -> None:
    """Print how busy the workers are if each claims its tasks one by one."""
    print("Part of the workers' time that is work: one claim for each task, one counter")
    print(f"{'workers':<18}" + "".join(f"{duration(task_s):>9}" for task_s in TASK_TIMES_S))
    for workers in WORKERS:
        found = [simulate(ONE_BY_ONE, workers, task_s, fabric, tasks) for task_s in TASK_TIMES_S]
        print(f"{workers:<18,}" + "".join(f"{each.efficiency:>9.1%}" for each in found))


def show_ways(fabric: Fabric, tasks: int) -> None:
    """Print the same for every way to claim."""
    columns = list(product(WORKERS[-3:], TASK_TIMES_S[1:4]))
    print("\nThe same for other ways to claim")
    print(f"{'workers':<36}" + "".join(f"{workers:<24,}" for workers in WORKERS[-3:]).rstrip())
    print(f"{'time of a task':<30}" + "".join(f"{duration(task_s):>8}" for _, task_s in columns))
    for way in CLAIMS + RANGES:
        cells = [
            f"{simulate(way, workers, task_s, fabric, tasks).efficiency:.1%}"
            if workers <= way.most_workers
            else "-"
            for workers, task_s in columns
        ]
        print(f"{way!s:<30}" + "".join(f"{cell:>8}" for cell in cells))


def agree(fabric: Fabric, tasks: int) -> bool:
    """Print, and return, whether both simulations find the same."""
    ways = [way for way in CLAIMS + RANGES if way.schedule is not Schedule.ADAPTIVE]
    most, cases = 0.0, list(product(ways, FEW, TASK_TIMES_S[:3]))
    for way, workers, task_s in cases:
        waved = simulate(way, workers, task_s, fabric, tasks)
        stepped = simulate(way, workers, task_s, fabric, tasks, waves=False)
        most = max(most, abs(waved.rate / stepped.rate - 1))
    print(f"\nby waves and event by event: {len(cases)} runs differ by {most:.0e} at the most")
    return most < 1e-9


def duration(seconds: float) -> str:
    """Return a time with a unit."""
    if seconds >= 1:
        return f"{seconds:.0f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def short(number: float) -> str:
    """Return a number in a few digits."""
    if number >= 999_500:
        return f"{number / 1e6:.3g} M"
    return f"{number / 1e3:.3g} k" if number >= 9_999.5 else f"{number:,.0f}"


# --- real runs ------------------------------------------------------------------------------------

CLAIMS_NOTE = """
The simulation knows no caches, while two real origins pull one line to and fro. And it lets as many
origins run as there are cores, each to its end. Really an origin loses its core at any point, in
the middle of an atomic too, when the others wait for its lock; and one that runs for a slice of
time without the others finds the counter in its own cache."""

WAITS_NOTE = """
The time of a task is what the task measured. The simulation leaves out what a worker does between
two tasks besides claiming (Python, the report of a turn), and its wait for a core."""


def check_claims() -> None:
    """Compare the claims of real ranks with the simulation."""
    cores = len(os.sched_getaffinity(0))
    real = runs.claims(RANKS)
    alone_s = 1 / real[1]
    fabric = Fabric(alone_s, min(alone_s, HOST.service_s))
    print(f"Claims at one counter by ranks that do nothing else, on {cores} cores")
    print(
        f"(one origin alone: {alone_s * 1e6:.2f} us a claim, which is what the simulation takes)\n"
    )
    print("origins       real/s  simulated/s   ratio")
    for origins, rate in real.items():
        running = min(origins, cores)
        tasks = 2_000 * running
        simulated = tasks / by_events(running, batches([0.0] * tasks, 1), fabric)
        print(f"{origins:<8}{rate:>12,.0f}{simulated:>13,.0f}{rate / simulated:>8.2f}")
    print(CLAIMS_NOTE)


def check_waits() -> None:
    """Compare pools whose tasks wait with the simulation."""
    print("\nA pool whose tasks wait, one claim each: map(schedule='self')\n")
    print("workers    task ms       real/s  simulated/s   ratio")
    for workers in RANKS[1:]:
        for run in runs.waits(workers, TASKS, (1e-3, 10e-3)):
            end_s = by_events(workers, batches([run.task_s] * run.tasks, 1), HOST)
            row = f"{workers:<8}{run.task_s * 1e3:>10.2f}{run.tasks / run.wall_s:>13,.0f}"
            print(f"{row}{run.tasks / end_s:>13,.0f}{end_s / run.wall_s:>8.2f}")
    print(WAITS_NOTE)


if __name__ == "__main__":
    sys.exit(main())
