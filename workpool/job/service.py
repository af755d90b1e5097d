"""A worker's part in a job: serve the tables that are open, and come when the driver calls."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from ..clock import sleep
from ..errors import ResourceError
from ..members import doorbell
from ..members.doorbell import Doorbell
from ..members.liveness import Liveness
from ..serializer import leave_script
from ..system.status import launched
from ..system.streams import flush_last, report_failure, say
from .control import Callee, Choice, Order
from .survival import STUCK, Sentry, abort, exit_at_once, orphaned, survives
from .together import meet, open_window

if TYPE_CHECKING:
    from mpi4py import MPI

    from .. import rma
    from ..worker.worker import Worker


_orders: _Orders | None = None  # of the job of which this process is a worker by now


def workers_comm() -> MPI.Intracomm | None:
    """Return the communicator of all who serve the pool whose task runs here; None if none does."""
    return None if _orders is None else _orders.comm()


def launch(group: rma.Group) -> int:
    """Be a worker, and nothing else; return the exit status."""
    with open(os.devnull, "rb") as nothing:  # MPICH's never ends: who reads it waits for ever
        os.dup2(nothing.fileno(), 0)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A task's print is seen at once, and whole lines of it.
            stream.reconfigure(line_buffering=True, write_through=False)
    leave_script()
    with suppress(Exception):  # there is no standard error
        faulthandler.enable()  # shows which task it was
    signal.signal(signal.SIGINT, lambda signum, frame: None)  # Ctrl-C is the driver's matter
    serve(group, survives())
    flush_last()
    return 0


def serve(group: rma.Group, survive: bool = False) -> None:
    """Be a worker of the job until its driver ends it.

    Notes
    -----
    A failure of the worker's own loop ends the whole job with status 1 and its traceback; where the
    job outlives its workers, this one alone.
    """
    from .. import rma

    global _orders
    rma.at_finalize(None, lambda: _refuse_finalize(group))
    outer = _orders
    try:
        _serve(group, survive)
        _orders = outer
        rma.at_finalize(None)
    except BaseException:
        so = ["it alone is lost"] if survive else []
        report_failure(f"worker rank {group.outer(group.rank)} failed", *so)
        abort(group, 1)


def _serve(group: rma.Group, survive: bool) -> None:
    global _orders
    from ..worker.worker import Worker  # which the driver's rank does without

    carries = survive or not group.one_host
    where = group.rank, group.outer(group.rank), os.uname().nodename
    worker = Worker(*where, carries=carries, check=orphaned())
    orders = _orders = _Orders(group, worker)
    liveness = meet(group)
    bell = Doorbell(doorbell.name(liveness.members[group.rank]))
    rest = bell.sleep if liveness.near(0) else sleep
    sentry = _sentry(group, liveness, orders.control) if survive else None
    worker.serve(orders.obey, rest)
    bell.close()
    if sentry is not None:
        sentry.stop()
        orders.control.report_done(leave=True)  # no more: a collective call may wait for the dead
    else:
        orders.free()
        group.close()


class _Orders:
    """Carries out what the driver calls its workers together for.

    Parameters
    ----------
    group : rma.Group
        Collective.
    worker : Worker
    """

    def __init__(self, group: rma.Group, worker: Worker) -> None:
        self.control = Callee(group)
        self._group = group
        self._worker = worker
        self._windows: dict[Choice, rma.Window] = {}
        self._comms: dict[Hashable, MPI.Intracomm] = {}  # by the choice as well

    def comm(self) -> MPI.Intracomm:
        """Return the communicator of all who serve the pool whose task runs here."""
        return self._comms[self._worker.serving]

    def obey(self) -> bool:
        """Come if the driver calls, and do what it says; return whether the job goes on."""
        match self.control.look():
            case None:
                return True
            case Order("leave"):
                return False
            case Order("open", Choice() as choice):
                self._open(choice)
            case Order("close", Choice() as choice):
                self._worker.detach(choice)
                self._windows.pop(choice).close()
                if choice in self._comms:
                    self._group.free(self._comms.pop(choice))
            case Order("stay"):
                with suppress(ValueError):  # not the main thread: whose program has its own plans
                    signal.signal(signal.SIGTERM, lambda signum, frame: None)  # the driver's matter
        self.control.report_done()
        return True

    def _open(self, choice: Choice) -> None:
        try:
            window = self._windows[choice] = open_window(self._group, choice)
        except ResourceError:
            return  # the driver tells the user
        if self._group.rank <= choice.workers:
            self._comms[choice] = self._group.first(choice.workers)
            geometry = choice.geometry()
            self._worker.attach(choice, window, geometry, choice.claim, choice.lease_s)

    def free(self) -> None:
        """Free every window.  Collective."""
        for window in self._windows.values():
            window.close()
        for comm in self._comms.values():
            self._group.free(comm)
        self.control.window.close()


def _sentry(group: rma.Group, liveness: Liveness, control: Callee) -> Sentry:
    """Start looking whether the driver lives, and who else does where it cannot see that."""

    def report_dead() -> None:
        for member in () if liveness.near(0) else liveness.dead():
            control.report_dead(member)

    def leave(why: str) -> NoReturn:
        if liveness.state(0) != "dead" or not launched():  # else the launcher tells of that
            say(f"worker rank {group.outer(group.rank)} leaves: {why}")
        exit_at_once(1)

    sentry = Sentry(
        liveness,
        group.answers,
        lambda: "the driver has died" if liveness.state(0) == "dead" else "",
        leave,
        report_dead,
        2 * STUCK,  # the driver is the first to say what is wrong, if it is stuck as well
    )
    sentry.start()
    return sentry


def _refuse_finalize(group: rma.Group) -> NoReturn:
    """End the job, or this rank of it, with a message: MPI's end would wait for it for ever."""
    from .. import rma

    where = f"a task (worker rank {group.outer(group.rank)})"
    say(rma.HANGS.format(where=where, what="worker" if survives() else "job"))
    abort(group, 1)
