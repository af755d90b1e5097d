"""From a claim to the outcome of its tasks: what they need is fetched, and they are called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import layout
from ..clock import monotonic_ns
from ..context import ISOLATED, RANGE
from ..errors import ProtocolError, WindowError
from ..extents import LINE_NBYTES, in_lines
from ..layout import NO_ITEMS, NOTHING, Descriptor, Items
from ..loss import unstarted
from ..members.leases import Heart
from ..repository import Claim, Claimant, Stream, take_items
from ..serializer import Blocks, CallableCache, Encoded, Kind, clear_script, split
from ..turns import Turn
from .batch import BatchRun, Outcomes
from .exchange import Exchange
from .ranges import Pace, TurnRun
from .runner import AnyRunner, EnteredPool, Evicted, Runner

if TYPE_CHECKING:
    from .isolation import IsolatedRunner

#: Room for the outcomes of a batch: so much, and at least so much more for each task.
ROOM_NBYTES = 8 << 10
TASK_ROOM_NBYTES = 64

_PAYLOAD = Stream.PAYLOAD


class Runners:
    """What calls the functions of tasks: the worker itself, and a child process once one is wanted.

    Parameters
    ----------
    rank : int
        Our MPI rank, for messages.
    host : str
        The name of our host, for messages.
    """

    def __init__(self, rank: int, host: str) -> None:
        self.own = Runner(rank, host)
        self.threads = 0  # of the process, without those that tasks have started
        #: The items that were run last, if what ran last was a turn in a range.  Anything else may
        #: have changed what their function refers to, which is then restored anew.
        self.latest: Blocks | None = None
        self._isolated: IsolatedRunner | None = None

    def isolated(self, holds: Callable[[], bool]) -> IsolatedRunner:
        """Return what has tasks run by a child process, as long as `holds` says they are ours.

        Most workers do without, so it is imported here.

        Raises
        ------
        ImportError, OSError, MemoryError
            There are no descriptors, or no memory, left to import it.
        """
        if self._isolated is None:
            from .isolation import IsolatedRunner

            self._isolated = IsolatedRunner(self.own)
        self._isolated.holds = holds
        return self._isolated

    def leave(self) -> None:
        """Run no more tasks; end the child process, if there is one."""
        self.own.end()
        if self._isolated is not None:
            self._isolated.leave()


class Attempts:
    """Runs what a worker has claimed in one table.

    Parameters
    ----------
    runners : Runners
    heart : Heart
        Told when there is something to watch.
    claimant : Claimant
    exchange : Exchange

    Attributes
    ----------
    start_ns : int
        When what was run last had begun: what it needs was there by then.
    """

    def __init__(
        self, runners: Runners, heart: Heart, claimant: Claimant, exchange: Exchange
    ) -> None:
        self._runners = runners
        self._heart = heart
        self._claimant = claimant
        self._exchange = exchange
        self.start_ns = 0
        self._pace = Pace()
        self._outcome_nbytes = TASK_ROOM_NBYTES  # for each task, in the last batch
        self._large_nbytes = 0  # the same of large outcomes
        self._blocks: tuple[Items, Blocks | None] = NO_ITEMS, None  # of the last range
        self._spent = False  # whether a turn of it has found no more items; others may still come
        #: The function that was called last, if it was not checked since: see `look_ahead`.
        self._called: tuple[CallableCache, int] | None = None
        self._batch: BatchRun | None = None  # the tasks that run now, if they are several
        self._watched: BatchRun | None = None  # those that ran when the heart looked last

    def watch(self) -> bool:
        """See that no task holds up others; return whether there are some that could."""
        watched, self._watched = self._watched, self._batch
        if self._watched is not None:
            self._watched.watch()
        return bool(watched or self._watched)

    def run(
        self, claim: Claim, descriptor: Descriptor, inline: memoryview
    ) -> tuple[Kind, Encoded | Outcomes]:
        """Fetch what tasks need, call them, and encode what became of them.

        Raises
        ------
        Evicted
            If the attempt was taken back meanwhile.
        """
        if self._spent and descriptor.items != self._blocks[0]:
            self._blocks, self._spent = (NO_ITEMS, None), False
        self.start_ns = monotonic_ns()
        own, exchange = self._runners.own, self._exchange
        runner: AnyRunner = own
        _, kind, code_id, _, _, context_id, _, _, offset, nbytes, tasks, *_ = descriptor
        if kind & ISOLATED:
            kind &= ~ISOLATED
            try:
                runner = self._runners.isolated(partial(self._holds, claim))
            except (ImportError, OSError, MemoryError) as error:
                return Kind.LOST, unstarted(error, own.rank, own.host)
        if kind != RANGE:
            self._runners.latest = None
        try:
            pool = runner.find(context_id)
            if pool is None:
                content = exchange.blob(claim, Stream.CONTEXT, descriptor.context)
                pool = runner.enter(context_id, content)
            if pool.failure is not None:
                return Kind.BROKEN, pool.failure
            if code_id and code_id not in pool.callables:
                pool.callables.add(code_id, exchange.blob(claim, Stream.CODE, descriptor.code))
            if kind == RANGE:
                return Kind.TURN, self._run_range(claim, pool, descriptor, inline)
            payload = exchange.fetch(claim, _PAYLOAD, offset, nbytes, inline)
            payloads = exchange.fetch_all(claim, split(payload)) if tasks > 1 else ()
        except (Evicted, ProtocolError, WindowError):
            raise  # ours, not the task's
        except BaseException as error:  # restoring what tasks need may run anything
            runner.contributions.clear()  # of a turn that was cut short
            return Kind.EXCEPTION, runner.failure(error)
        self.start_ns = monotonic_ns()
        if payloads:
            call = pool, kind, code_id
            return Kind.BATCH, self._run_batch(claim, runner, call, payloads)
        called = runner.call(pool, kind, code_id, payload)
        own.contributions.keep()
        if runner is own:
            self._called = pool.callables, code_id
        return called

    def look_ahead(self) -> None:
        """Check the last function now, so that the next call of it need not wait for that."""
        called, self._called = self._called, None
        # Not where a task has left a thread behind, which may change what the function reads.
        if called is not None and threading.active_count() == self._runners.threads:
            callables, code_id = called
            callables.check(code_id)

    def _run_range(
        self, claim: Claim, pool: EnteredPool, descriptor: Descriptor, inline: memoryview
    ) -> Encoded:
        """Run chunks of a range for a while, fetching its items as they are needed."""
        offset, nbytes = descriptor.payload
        code_id = descriptor.code.blob_id
        pool.callables.uncheck()

        def fetch(start: int, stop: int) -> memoryview:
            return self._exchange.fetch(claim, _PAYLOAD, offset + start, stop - start, inline)

        claimant = self._claimant
        take = partial(take_items, claimant.window, claimant.geometry, descriptor.items)
        items, blocks = self._blocks
        if blocks is None or items != descriptor.items:
            if offset == layout.STREAMED and take(0).start == descriptor.total:
                return Turn([], None, True, []).encoded()  # others have taken all meanwhile
            least = nbytes if offset == layout.STREAMED else min(nbytes, Blocks.LEAST)
            first = self._exchange.fetch(claim, _PAYLOAD, offset, least, inline)
            blocks = Blocks(first, fetch)
            self._blocks = descriptor.items, blocks  # the next turn is likely to be in it again
        blocks.fetch = fetch  # on behalf of this attempt
        if self._runners.latest is not blocks:
            blocks.forget()
            clear_script()
            if code_id and blocks.has_function:
                pool.callables.get(code_id)  # restores what the function in the items refers to
        terms = layout.read_terms(inline)
        turn = TurnRun(self._runners.own, pool, self._pace, take, descriptor, terms, blocks)
        self._runners.latest = blocks
        encoded = turn.run()
        if turn.exhausted:
            self._spent = True
            blocks.end()
        return encoded

    def _holds(self, claim: Claim) -> bool:
        """Return whether an attempt is still ours; asked while a child process runs it."""
        return self._claimant.holds(claim) if self._batch is None else self._batch.holds()

    def _run_batch(
        self,
        claim: Claim,
        runner: AnyRunner,
        call: tuple[Any, int, int],
        payloads: Sequence[bytes | memoryview],
    ) -> Outcomes:
        """Run the tasks of a batch, as far as nobody takes them back."""
        outcomes = self._room(len(payloads))
        self._batch = BatchRun(self._claimant, claim, payloads, outcomes, runner, call)
        self._heart.hurry()
        try:
            self._batch.run()
        except Evicted:
            if outcomes.extent is not NOTHING:
                self._claimant.window.flush()  # else a put may land on what comes there next
                self._exchange.region.release(outcomes.extent)
            raise
        finally:
            self._batch = None
        ended = len(outcomes.entries)
        self._outcome_nbytes = max(TASK_ROOM_NBYTES, outcomes.small_nbytes // ended)
        self._large_nbytes = outcomes.large_nbytes // ended
        return outcomes

    def _room(self, tasks: int) -> Outcomes:
        """Return room for the outcomes of so many tasks, as far as there is some now."""
        most_nbytes = self._exchange.share_nbytes & -LINE_NBYTES
        if 2 * self._outcome_nbytes > most_nbytes:
            return Outcomes(NOTHING)  # else one outcome, which is all, might have to go in pieces
        nbytes = min(in_lines(ROOM_NBYTES + tasks * self._outcome_nbytes), most_nbytes)
        large_nbytes = min(tasks * in_lines(self._large_nbytes), most_nbytes - nbytes)
        extent = self._exchange.try_reserve(nbytes + large_nbytes)
        return Outcomes(NOTHING) if extent is None else Outcomes(extent, large_nbytes)
