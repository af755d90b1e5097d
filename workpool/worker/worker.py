"""The worker's half: take, fetch, run, put the outcome, commit.  ``driver`` is the other half.

The same steps in the same order, facing each other::

    driver                                   worker
    prepare   task -> descriptor
    publish   rows READY            ------>  take      tickets -> offers
                                             claim     one compare-and-swap: mine to run
                                             fetch     context, code, payload: ``attempts``
                                             run       -> outcome
    collect   rows DONE             <------  commit    one compare-and-swap: ``commits``
    resolve   outcome -> future

A worker claims each row when it starts it, not when it takes the ticket: what it has taken and not
started stays READY, and an idle worker may have it.  So a long task in a batch holds up nobody, and
tasks that wait for each other do not deadlock as long as there are workers for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from .. import layout, verbs
from ..backoff import IDLE_S, SPIN_S, WAIT_S, Backoff, wake_on_time
from ..clock import monotonic, monotonic_ns, sleep
from ..layout import Geometry
from ..members.leases import Heart
from ..repository import CONTENDED, EMPTY, TAKERS, Claim, Claimant, Miss, Offer
from ..system.memory import keep_freed
from ..system.spares import spares
from .attempts import Attempts, Runners
from .commits import Commits
from .exchange import Exchange
from .runner import SPARES_NBYTES, Evicted

#: By how much each sleep of an idle worker is longer than the one before.  So each is a twentieth
#: of the time that the worker has been idle, and a task waits for no longer than that.
IDLE_GROWTH = 1.05

#: How often a busy worker looks for rows whose tickets were lost.
SWEEP_S = 10e-3

#: How often an idle one does, less and less often.
IDLE_SWEEP_S = 200e-3
SWEEP_GROWTH = 1.5
LONGEST_SWEEP_S = 1.0

#: How soon after its last task it does so first.  Where that takes long, as between hosts, so many
#: times as long as it takes: the next task may come at any moment, and would wait for its end.
SOON_S = 1e-3
SOON = 20

#: How often a worker looks whether the driver calls: while it is busy, and while it has nothing to
#: do, unless it sleeps for longer.
CONTROL_S = 50e-3
IDLE_CONTROL_S = 5e-3

#: Tickets taken by one atomic: at most so many, and at most so much expected work.
MOST_TICKETS = 32
TICKETS_S = 1e-3


class Worker:
    """Serves any number of tables, one task at a time.

    Parameters
    ----------
    member : int
        Who we are in the tables.
    rank : int
        Our MPI rank, for messages.
    host : str
        The name of our host, for messages.
    carries : bool
        Whether outcomes carry all contributions to accumulators, which the driver then adds.
    check : callable
        Called with each beat of the heart: ends this process if it is nobody's worker any more.

    Attributes
    ----------
    serving : object
        The table whose tasks run.
    """

    def __init__(
        self,
        member: int,
        rank: int,
        host: str,
        carries: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self.member = member
        self.carries = carries
        self.runners = Runners(rank, host)
        self.serving: Hashable = None
        self._services: dict[Hashable, _Service] = {}
        self._check = check
        self.heart = Heart(self._beat, self._watch)

    def attach(
        self, table: Hashable, window: verbs.Window, geometry: Geometry, method: str, lease_s: float
    ) -> None:
        """Serve one more table, taking tickets by ``"pointer"`` or ``"counter"``."""
        service = _Service(self, window, geometry, method)
        self._services = {**self._services, table: service}
        self.heart.keep(lease_s)

    def detach(self, table: Hashable) -> None:
        """Stop serving a table."""
        with self.heart.still:
            self._services = {t: s for t, s in self._services.items() if t != table}

    def _beat(self, rest_s: float) -> None:
        self._check()
        for service in self._services.values():
            service.beat(rest_s)

    def _watch(self) -> bool:
        services = self._services.values()
        watched = [service.attempts.watch() for service in services]  # `any` would skip some
        return any(watched)

    def serve(self, control: Callable[[], bool], sleep: Callable[[float], object] = sleep) -> None:
        """Run tasks until `control` says that it is over.

        Parameters
        ----------
        control : callable
            Called between tasks; returns False in the end.
        sleep : callable
            ``sleep(seconds)``, while there is nothing to do: returns True if somebody has ended it.
        """
        wake_on_time()
        keep_freed(SPARES_NBYTES)
        self.runners.own.begin()
        if not self.heart.is_alive():  # else whoever has started this thread has started both
            self.heart.start()
        self.runners.threads = threading.active_count()
        try:
            self._serve(control, Backoff(IDLE_S, growth=IDLE_GROWTH, sleep=sleep))
        finally:
            self.heart.stop()
            self.runners.leave()

    def _serve(self, control: Callable[[], bool], idle: Backoff) -> None:
        asked = 0.0
        while True:
            busy = False
            services = self._services
            seconds = SPIN_S / max(1, len(services)) if idle.spins else 0
            for table, service in services.items():
                self.serving = table
                busy |= service.work(seconds)
            now = monotonic()
            if now - asked > (CONTROL_S if busy else IDLE_CONTROL_S) or not self._services:
                asked = now
                spares.ease(now)
                if not control():
                    return
                if self._services is not services:
                    continue  # look at a new table before a sleep: its driver may have rung already
            if busy:
                idle.reset()
            elif idle.pause():  # whoever has woken us does not ring again soon: look at once
                idle.reset()
                asked = 0.0


class _Service:
    """One table, as its worker sees it."""

    def __init__(
        self, worker: Worker, window: verbs.Window, geometry: Geometry, method: str
    ) -> None:
        taker = TAKERS[method](window, geometry.members - 1)
        self._claimant = Claimant(window, geometry, worker.member, taker)
        self._exchange = Exchange(self._claimant)
        self.attempts = Attempts(worker.runners, worker.heart, self._claimant, self._exchange)
        own = worker.runners.own
        self._commits = Commits(self._claimant, self._exchange, own, worker.carries)
        self._contributions = own.contributions
        self._mean_s = TICKETS_S  # how long a row takes, over the last ones
        self._limit = 1  # tickets to take at once
        self._beat = 0
        self._swept = 0.0  # when we last looked behind the head
        self._sweep_s = IDLE_SWEEP_S / SOON  # what that takes, if nothing holds it up
        self._soon_s = SOON_S  # how soon we do so when we have become idle
        self._rest_s = 0.0  # how long after that we look there again, from when we are idle on
        self._busy = True  # whether there was work last time
        self._contended = Backoff(WAIT_S)

    def beat(self, rest_s: float) -> None:
        """Show that we live; called by the heart.  RMA cost: 1 compare_and_swap."""
        claimant = self._claimant
        disp = claimant.geometry.beat(claimant.member)
        beat = layout.next_beat(self._beat, rest_s)
        claimant.window.compare_and_swap(disp, self._beat, beat)  # nobody else writes it
        self._beat = beat

    # --- take ---------------------------------------------------------------------------------

    def work(self, seconds: float = 0) -> bool:
        """Take tickets and run what they give; return whether there was anything.

        Parameters
        ----------
        seconds : float
            For how long to go on looking before this says that there is nothing to do.
        """
        now = monotonic()
        idle = not self._busy and now - self._swept < self._rest_s
        if idle and self._claimant.quiet(seconds):
            return False  # all that an idle worker does each time it wakes
        limit = self._limit
        if idle:
            claim = self._claimant.seize(limit)
            if not isinstance(claim, Miss):
                self._attempt(claim, None)
                # The next task is likely to come alone as well: its row is looked at, no ticket.
                self._busy, self._rest_s = not self._claimant.knows_next, self._soon_s
                return True
            if claim is CONTENDED:
                self._swept = 0.0  # as below
        found = self._claimant.take(limit)
        if found is CONTENDED:
            self._contended.pause()
            return True
        self._contended.reset()
        if isinstance(found, Miss):
            if self._busy:
                self._busy, self._rest_s = False, self._soon_s
            if now - self._swept > self._rest_s:
                self._swept = now
                # Tickets die with a worker, and a living one may be busy with the first of many.
                offers = self._claimant.sweep(limit)
                self._sweep_s = min(self._sweep_s, monotonic() - now)
                self._soon_s = max(SOON_S, SOON * self._sweep_s)
                self._busy = self._run_all(offers)
                if not self._busy:
                    rest_s = max(IDLE_SWEEP_S, SWEEP_GROWTH * self._rest_s)
                    self._rest_s = min(rest_s, LONGEST_SWEEP_S)
                    self._exchange.reap()
            return self._busy
        self._busy = True
        if found and now - self._swept > SWEEP_S:
            # Even while work flows, rows behind the head must not wait for ever.
            self._swept = now
            first = self._claimant.geometry.ticket(*found[0].row)
            self._run_all(self._claimant.sweep(1, before=first))
        if not self._run_all(found):
            # Others have claimed all of them, and found them by sweeps: so they may hold tickets of
            # older rows that are still READY.  Sweep the next time.
            self._swept = 0.0
        return True

    # --- claim, run, commit -------------------------------------------------------------------

    def _run_all(self, offers: list[Offer] | Miss) -> bool:
        """Claim and run offers in order, skipping what others claim first."""
        if isinstance(offers, Miss):
            return False
        ran = False
        following: Claim | Miss = EMPTY
        for i, offer in enumerate(offers):
            claim = following
            if isinstance(claim, Miss):
                # The last commit has tried to claim this very offer, and has lost it.
                if claim is CONTENDED:
                    following = EMPTY
                    continue
                claim = self._claimant.claim(offer)
            following = EMPTY
            if isinstance(claim, Miss):
                continue
            ran = True
            following = self._attempt(claim, offers[i + 1] if i + 1 < len(offers) else None)
        return ran

    def _attempt(self, claim: Claim, then: Offer | None) -> Claim | Miss:
        """Run one claim and commit its outcome; return the claim on the next offer."""
        descriptor, inline = claim.descriptor
        try:
            kind, content = self.attempts.run(claim, descriptor, inline)
            elapsed_ns = monotonic_ns() - self.attempts.start_ns
            following = self._commits.commit(claim, kind, content, elapsed_ns, then)
            self._mean_s += 0.2 * (elapsed_ns * 1e-9 - self._mean_s)
            self._limit = max(1, min(MOST_TICKETS, int(TICKETS_S / self._mean_s)))
            self.attempts.look_ahead()
        except Evicted:
            following = EMPTY
        finally:
            self._contributions.clear()
        return following
