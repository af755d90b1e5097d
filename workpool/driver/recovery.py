"""Takes back the tasks of workers that are gone; their pools decide what comes next."""

from __future__ import annotations

from collections import Counter

from ..loss import OF_THE_WORKER, Loss, Why
from ..members.leases import Leases
from ..serializer import Kind, task_name
from ..system.streams import say
from ..tasks import Batch, Finished
from .backlog import Backlog
from .collector import Collector
from .store import Store

_LOST = int(Kind.LOST)


class Recovery:
    """Takes back what one driver has lost.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    leases : Leases or None
        Of the workers; without, none is ever taken for gone.
    workers : int
    collector : Collector
        Gets what has become of the tasks.
    store : Store
    backlog : Backlog

    Attributes
    ----------
    evicted : collections.Counter
        Attempts that were taken back, by the member that had them.
    ran : dict of int to object
        By member that has died: the function of its task.
    """

    def __init__(
        self,
        leases: Leases | None,
        workers: int,
        collector: Collector,
        store: Store,
        backlog: Backlog,
    ) -> None:
        self.evicted: Counter[int] = Counter()
        self.ran: dict[int, object] = {}
        self._leases = leases
        self._workers = workers
        self._collector = collector
        self._published = collector.published
        self._store = store
        self._backlog = backlog
        self._deserted = False  # whether it was said that no worker answers
        self._said = False  # whether it was said that one is silent

    def put_off(self) -> None:
        """Put off the next look: all has ended, and of what comes now nobody runs anything yet."""
        self._deserted = False
        if self._leases is not None:
            self._leases.put_off()

    def look(self) -> None:
        """Take back what members run that are gone, if it is time; fail everything when all are."""
        leases = self._leases
        if leases is None or not leases.due():
            return
        if not (self._published.rows or self._backlog.outstanding):
            return
        owners = self._published.owners()
        workers = range(1, self._workers + 1)
        found = leases.gone(owners or workers)  # all of them if nobody runs anything: who is left?
        for member, gone in found.items():
            if member in owners:
                process = leases.peers.members[member]
                loss = Loss(Why(gone.value), process.rank, process.host, process.pid)
                self._take_back_from(member, owners[member], loss)
        dead = [member for member in workers if leases.peers.state(member) == "dead"]
        if near := set(filter(leases.peers.near, dead)):  # of others the last put may yet arrive
            self._published.free_rows(near)
        if not owners and len(dead) == self._workers:
            self._fail_all()
        elif owners or len(found) < self._workers:
            self._deserted = False
        elif not self._deserted:
            self._deserted = True
            say("every worker is stopped, silent or dead: what is left waits until one answers")

    def _take_back_from(self, member: int, batches: list[Batch], loss: Loss) -> None:
        """Void what a member that is gone was running, and hand that on to the pools."""
        for batch in batches:
            if loss.why is Why.DEAD and self._published.settle(batch, loss):
                continue  # it is DONE now, and collected as lost
            lost = self._published.take_back(batch)
            if not lost:
                continue
            self.evicted[member] += 1
            if loss.why is Why.DEAD:
                self.ran[member] = lost[0].function
            if loss.why is Why.SILENT and not self._said:
                self._said = True  # where all tasks are so long, each worker's first run is lost
                say(
                    f"worker rank {loss.rank} on {loss.host}: {OF_THE_WORKER[loss.why]}, so others "
                    f"run task {task_name(lost[0].function)}; where tasks keep the interpreter's "
                    "lock for so long, raise lease_s= (WORKPOOL_LEASE_S)"
                )
            try:
                content = loss.encoded()
                outcomes = [(task, _LOST, content) for task in lost]
                finished = Finished(lost[0].context, member, outcomes)
                self._collector.add(finished)
            except BaseException:  # no memory, no stack: nobody but us knows of them
                self._backlog.tasks.extendleft(task for task in reversed(lost) if not task.over)
                raise

    def _fail_all(self) -> None:
        """Fail what waits: there is nobody left to run it."""
        for batch in tuple(self._published.rows.values()):
            self._published.withdraw(batch)
        waiting = [task for task in self._backlog if not task.over]
        loss = Loss(Why.NOBODY).encoded()
        for task in waiting:
            self._store.leave(task)  # not for another attempt
            self._collector.add(Finished(task.context, 0, [(task, _LOST, loss)]))
