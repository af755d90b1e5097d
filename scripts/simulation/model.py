"""Claims at one counter: bounds in closed form, and two simulations that must agree.

``by_events`` takes one event after another from a heap: it is short and surely right. ``by_waves``
takes all claims at once that nothing still to come can overtake, as arrays: it is fast enough for
100,000 workers. An adaptive range is simulated by events only. What is modelled, and with which
figures, is said in ``simulate.py``.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workpool.schedule import Schedule, chunk, tickets
from workpool.worker.ranges import Pace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Fabric(NamedTuple):
    """What an atomic at one address costs: its origin, and the counter."""

    latency_s: float  # from request to answer when nobody else asks, the service included
    service_s: float  # while nobody else is served

    @property
    def leg_s(self) -> float:
        """From the origin to the counter, or back."""
        return (self.latency_s - self.service_s) / 2


HOST = Fabric(1.4e-6, 0.26e-6)
FABRICS = {
    "host": HOST,
    "infiniband": Fabric(1.33e-6, 1 / 2.24e6),
    "slingshot": Fabric(2.57e-6, 2 / 67.6e6),
}


class Way(NamedTuple):
    """How workers come to their tasks."""

    batch: int = 1  # tickets of one claim
    cores: int = 1  # workers that share a window of their node, and its claims
    repositories: int = 1
    schedule: Schedule | None = None  # of a range: without, tickets are tasks

    def __str__(self) -> str:
        if self.schedule is not None:
            return f"range, {self.schedule.name.lower()}"
        words = [f"batch {self.batch}"] * (self.batch > 1)
        words += [f"nodes of {self.cores}"] * (self.cores > 1)
        words += [f"{self.repositories} repositories"] * (self.repositories > 1)
        return ", ".join(words) or "one by one"

    @property
    def most_workers(self) -> float:
        """With how many it can be simulated in a few seconds."""
        return 20_000 if self.schedule is Schedule.ADAPTIVE else math.inf

    def fitted(self, workers: int) -> Way:
        """Return the same for so few workers."""
        repositories = min(self.repositories, workers)
        return self._replace(
            repositories=repositories, cores=min(self.cores, workers // repositories)
        )


# --- bounds ---------------------------------------------------------------------------------------


def supply(way: Way, fabric: Fabric) -> float:
    """Return how many tasks in a second the counters can give out; not for ranges."""
    return way.repositories * way.batch * way.cores / fabric.service_s


def cycle_s(way: Way, task_s: float, fabric: Fabric) -> float:
    """Return how long a worker is busy with one task and its share of claiming it."""
    if way.cores > 1:
        return task_s + HOST.latency_s
    return task_s + fabric.latency_s / way.batch


def saturation(way: Way, task_s: float, fabric: Fabric) -> float:
    """Return how many workers ask for as much as the counters can give."""
    return supply(way, fabric) * cycle_s(way, task_s, fabric)


# --- by waves -------------------------------------------------------------------------------------


class Workers:
    """Claimants that take `batch` tickets at a time and work them off alone."""

    def __init__(self, number: int, times_s: Floats, batch: int) -> None:
        self.number = number
        self.takes = batch  # at a time
        self.total = len(times_s)
        self.end_s = 0.0
        #: From the answer to the next request, at the least.
        self.least_s = batch * float(times_s.min())
        self._until_s = np.concatenate(([0.0], np.cumsum(times_s)))

    def work(self, who: Integers, first: Integers, stop: Integers, answer_s: Floats) -> Floats:
        """Work off the tickets from `first` to `stop`; return when each one asks again."""
        done_s = answer_s + self._until_s[stop] - self._until_s[first]
        self.end_s = max(self.end_s, float(done_s[stop > first].max(initial=0)))
        return done_s


class Nodes:
    """Claimants that fetch tickets for all their cores, which then claim them on the node."""

    def __init__(self, number: int, times_s: Floats, cores: int, batch: int) -> None:
        self.number = number
        self.takes = cores * batch
        self.total = len(times_s)
        self.end_s = 0.0
        self.least_s = float(times_s.min())  # no core takes two of a block before that
        self._times_s = times_s
        self._idle_s = np.zeros((number, cores))  # since when
        self._gate_s = np.zeros(number)  # when the node's own counter serves again

    def work(self, who: Integers, first: Integers, stop: Integers, answer_s: Floats) -> Floats:
        idle_s, gate_s, node = self._idle_s[who], self._gate_s[who], np.arange(len(who))
        for ticket in first + np.arange(self.takes)[:, np.newaxis]:
            core = idle_s.argmin(axis=1)
            there = ticket < stop
            start_s = np.maximum(np.maximum(idle_s[node, core], answer_s), gate_s)
            gate_s = np.where(there, start_s + HOST.service_s, gate_s)
            done_s = start_s + HOST.latency_s + self._times_s[np.minimum(ticket, self.total - 1)]
            idle_s[node, core] = np.where(there, done_s, idle_s[node, core])
            self.end_s = max(self.end_s, float(done_s[there].max(initial=0)))
        self._idle_s[who], self._gate_s[who] = idle_s, gate_s
        asks_s: Floats = idle_s.min(axis=1)
        return asks_s


def by_waves(claimants: Workers | Nodes, fabric: Fabric) -> float:
    """Return when the last task ends.

    Who is served now asks again at the earliest after the latency and `least_s`: the requests that
    reach the counter until then are one wave.
    """
    at_s = np.full(claimants.number, fabric.leg_s)  # when each request is at the counter, in order
    who = np.arange(claimants.number)
    given, free_s = 0, 0.0
    while given < claimants.total:
        horizon_s = max(at_s[0], free_s) + fabric.latency_s + claimants.least_s
        size = int(np.searchsorted(at_s, horizon_s, "right"))
        now = who[:size]
        stop = given + claimants.takes * np.arange(1, size + 1)
        given = int(stop[-1])
        # Each starts when it is there and the one before is served: a running maximum.
        served_s = fabric.service_s * np.arange(size)
        start_s = np.maximum(np.maximum.accumulate(at_s[:size] - served_s), free_s) + served_s
        free_s = float(start_s[-1]) + fabric.service_s
        first, stop = np.minimum((stop - claimants.takes, stop), claimants.total)
        answer_s = start_s + fabric.service_s + fabric.leg_s
        asks_s = claimants.work(now, first, stop, answer_s) + fabric.leg_s
        at_s = np.concatenate((at_s[size:], asks_s))
        order = at_s.argsort(kind="stable")
        at_s, who = at_s[order], np.concatenate((who[size:], now))[order]
    return claimants.end_s


# --- event by event -------------------------------------------------------------------------------

#: How long what the counter gives next takes; None when nothing is left.
Work = Callable[[], float | None]


def batches(times_s: Sequence[float], batch: int) -> Work:
    """Return the work of claims of so many tickets."""
    left = deque(times_s)

    def work() -> float | None:
        mine = [left.popleft() for _ in range(min(batch, len(left)))]
        return math.fsum(mine) if mine else None

    return work


def by_events(workers: int, work: Work, fabric: Fabric) -> float:
    """Return when the last task ends."""
    requests = [(fabric.leg_s, worker) for worker in range(workers)]
    free_s = end_s = 0.0
    while True:
        at_s, worker = heapq.heappop(requests)
        start_s = max(at_s, free_s)
        free_s = start_s + fabric.service_s
        work_s = work()
        if work_s is None:
            return end_s
        done_s = start_s + fabric.service_s + fabric.leg_s + work_s
        end_s = max(end_s, done_s)
        heapq.heappush(requests, (done_s + fabric.leg_s, worker))


def by_adaptive_events(workers: int, times_s: Floats, fabric: Fabric) -> float:
    """Return when the last task of an adaptive range ends: the runtime's own ``Pace`` decides.

    A look at how many items are left is an atomic like a claim.
    """
    total = len(times_s)
    until_s = [0.0, *np.cumsum(times_s).tolist()]
    paces = [Pace() for _ in range(workers)]
    seen, before = [total] * workers, [0] * workers  # `before` is 0 where a turn begins
    asked_s, over_s = [0.0] * workers, [0.0] * workers
    wanted = [1] * workers  # 0: it looks
    requests = [(fabric.leg_s, worker) for worker in range(workers)]
    free_s = end_s = 0.0
    first = 0

    def share(worker: int, left: int | None = None) -> int:
        """Return how many items it takes next; 0 if it has to look how many are `left`."""

        def look() -> int:
            if left is None:
                raise LookupError
            return left

        try:
            return paces[worker].share(0, total, seen[worker], workers, before[worker], look)
        except LookupError:
            return 0

    while first < total:
        at_s, worker = requests[0]
        free_s = max(at_s, free_s) + fabric.service_s
        answer_s = free_s + fabric.leg_s
        if not wanted[worker]:
            wanted[worker] = share(worker, left=total - first)
            heapq.heapreplace(requests, (answer_s + fabric.leg_s, worker))
            continue
        stop = min(first + wanted[worker], total)
        work_s = until_s[stop] - until_s[first]
        done_s = answer_s + work_s
        end_s = max(end_s, done_s)
        paces[worker].measured(0, stop - first, work_s, answer_s - asked_s[worker])
        first = stop
        seen[worker], before[worker], asked_s[worker] = total - stop, wanted[worker], done_s
        if done_s >= over_s[worker]:
            before[worker], over_s[worker] = 0, done_s + paces[worker].turn_s(0)
        wanted[worker] = share(worker)
        heapq.heapreplace(requests, (done_s + fabric.leg_s, worker))
    return end_s


def by_node_events(
    nodes: int, cores: int, batch: int, times_s: Sequence[float], fabric: Fabric
) -> float:
    """Return when the last task ends, if the workers of a node share what one of them fetches."""
    left = deque(times_s)
    stocks: list[deque[float]] = [deque() for _ in range(nodes)]
    fetched: list[list[float]] = [[] for _ in range(nodes)]
    waiting: list[deque[int]] = [deque() for _ in range(nodes)]
    gate_s = [0.0] * nodes
    free_s = end_s = 0.0
    # A worker asks its node; a node's request is at the repository; a node has its answer.
    events = [(0.0, node, "ask", core) for node in range(nodes) for core in range(cores)]
    heapq.heapify(events)

    def begin(now_s: float, node: int, core: int) -> None:
        nonlocal end_s
        start_s = max(now_s, gate_s[node])
        gate_s[node] = start_s + HOST.service_s
        done_s = start_s + HOST.latency_s + stocks[node].popleft()
        end_s = max(end_s, done_s)
        heapq.heappush(events, (done_s, node, "ask", core))

    while events:
        now_s, node, event, core = heapq.heappop(events)
        if event == "ask" and stocks[node]:
            begin(now_s, node, core)
        elif event == "ask":
            if not waiting[node]:  # the first to find nothing fetches for all
                heapq.heappush(events, (now_s + fabric.leg_s, node, "fetch", core))
            waiting[node].append(core)
        elif event == "fetch":
            start_s = max(now_s, free_s)
            free_s = start_s + fabric.service_s
            fetched[node] = [left.popleft() for _ in range(min(cores * batch, len(left)))]
            if fetched[node]:
                answer_s = start_s + fabric.service_s + fabric.leg_s
                heapq.heappush(events, (answer_s, node, "answer", core))
        else:
            stocks[node].extend(fetched[node])
            for _ in range(min(len(waiting[node]), len(stocks[node]))):
                begin(now_s, node, waiting[node].popleft())
    return end_s


# --- one run --------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a run."""

    rate: float  # tasks in a second
    efficiency: float  # the part of the workers' time that is work


def simulate(
    way: Way, workers: int, task_s: float, fabric: Fabric, tasks: int, waves: bool = True
) -> Outcome:
    """Simulate a run of `tasks` for each worker, by waves or event by event."""
    way = way.fitted(workers)
    nodes = workers // (way.cores * way.repositories)  # whole ones
    workers = nodes * way.cores
    times_s = task_s * spread(workers * tasks)
    if way.schedule is Schedule.ADAPTIVE:  # each worker sees other figures: no waves
        end_s = by_adaptive_events(workers, times_s, fabric)
    else:
        claimed_s = times_s if way.schedule is None else chunks(way.schedule, workers, times_s)
        end_s = (waved if waves else stepped)(way, workers, claimed_s, fabric)
    rate = way.repositories * len(times_s) / end_s
    return Outcome(rate, float(times_s.sum()) / (workers * end_s))


def waved(way: Way, workers: int, times_s: Floats, fabric: Fabric) -> float:
    """Return the end of the run of one repository, by waves."""
    if way.cores > 1:
        return by_waves(Nodes(workers // way.cores, times_s, way.cores, way.batch), fabric)
    return by_waves(Workers(workers, times_s, way.batch), fabric)


def stepped(way: Way, workers: int, times_s: Floats, fabric: Fabric) -> float:
    """Return the end of the run of one repository, event by event."""
    if way.cores > 1:
        nodes = workers // way.cores
        return by_node_events(nodes, way.cores, way.batch, times_s.tolist(), fabric)
    return by_events(workers, batches(times_s.tolist(), way.batch), fabric)


def chunks(schedule: Schedule, workers: int, times_s: Floats) -> Floats:
    """Return how long each chunk of a range takes."""
    total = len(times_s)
    starts = [
        chunk(schedule, total, workers, ticket).start
        for ticket in range(tickets(schedule, total, workers))
    ]
    return np.add.reduceat(times_s, starts)


@functools.lru_cache(maxsize=2)
def spread(count: int) -> Floats:
    """Return the times of tasks over their mean: evenly from a half to one and a half."""
    return 0.5 + np.random.default_rng(1).random(count)
