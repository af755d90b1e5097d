"""The crew of a job of one rank: one worker, which is a thread beside the driver's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from ..driver.progress import progress_until
from ..members.doorbell import Doorbell, Doorbells
from ..serializer import stay_in_script
from ..system.streams import VitalThread
from ..whole import whole
from .control import Order
from .tables import Tables


class Alone:
    """Has a worker beside the driver, which is called as a ``Crew`` is.

    Parameters
    ----------
    host : str
        The name of our host, for messages.
    bell : Doorbell
        That wakes the worker.
    bells : Doorbells
        Rings it.
    tables : Tables
    """

    def __init__(self, host: str, bell: Doorbell, bells: Doorbells, tables: Tables) -> None:
        from ..worker.worker import Worker  # which a driver of other ranks does without

        stay_in_script()
        self._worker = Worker(1, 0, host)
        self._bell = bell
        self._bells = bells
        self._tables = tables
        self._asked: SimpleQueue[tuple[Callable[[], None], threading.Event]] = SimpleQueue()
        self._stopped = False
        self._thread = VitalThread("worker", self._serve, "the worker thread")
        # Both threads now: from Python 3.12 on none can be started once the script has come to its
        # end, and that may be before the worker's own first step.
        self._worker.heart.start()
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether it is the worker that asks."""
        return self._thread is threading.current_thread()

    def call(self, order: Order, part: Callable[[], None]) -> None:
        """Have the worker carry out an order between two tasks, and do our part of it.

        While the worker is busy, the wait for it may be interrupted: then nothing is done.
        """
        drivers = self._tables.drivers
        try:
            if order.what == "close":
                detached = self._ask(lambda: self._worker.detach(order.choice))
                progress_until(drivers, detached.is_set)
            elif order.what == "leave":
                self._ask(self._stop)
                # It leaves nothing behind: neither its heart nor the child process.
                progress_until(drivers, lambda: not self._thread.is_alive())
            part()
        finally:
            self._serve_if_open(order)

    def close(self) -> None:
        """Do nothing: a crew of ranks has a window to free."""

    @whole
    def _serve_if_open(self, order: Order) -> None:
        """Have a table served that was opened, or that was not closed after all."""
        choice, worker = order.choice, self._worker
        if choice is not None and choice in self._tables:
            driver = self._tables[choice]
            parts = choice, driver.window, driver.geometry, choice.claim, choice.lease_s
            driver.task_thread = self._thread.ident
            self._ask(lambda: worker.attach(*parts))

    def _ask(self, action: Callable[[], None]) -> threading.Event:
        """Have the worker do something between two tasks; the event says when it has."""
        done = threading.Event()
        self._asked.put((action, done))
        self._bells.ring_all()
        return done

    # --- the worker's own ---------------------------------------------------------------------

    def _serve(self) -> None:
        self._worker.serve(self._obey, self._bell.sleep)
        self._bell.close()

    def _obey(self) -> bool:
        while not self._asked.empty():
            action, done = self._asked.get()
            action()
            done.set()
        return not self._stopped

    def _stop(self) -> None:
        self._stopped = True
