"""The control window of a job: how the driver calls its workers together.

Windows are allocated and freed collectively, but workers must not stand in a collective call while
one of them still runs a task.  So the driver *calls* them through a window of its own rank::

    driver                                    worker, between two tasks
    CALLS odd                      ------->   sees it
                                   <-------   its own word odd: it has come
    sees that all have come
    order put, flushed, CALLS even ------->   gets the order, and obeys it
                                   <-------   its own word even, or FAREWELL if it leaves

Only then does everybody enter the collective call.  A worker that has died does not come, and the
driver does not wait for it; nothing that the driver has to say goes through a collective call.

A death is seen on its own host only.  A worker that sees one which the driver cannot see writes
DEAD in the place of the dead one's word.
"""

from __future__ import annotations

import pickle
from array import array
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..backoff import IDLE_S, Backoff
from ..layout import WORD_NBYTES, Geometry
from ..layout.control import CALLS, DEAD, FAREWELL, ORDER, ORDER_NBYTES, presence
from ..whole import whole

if TYPE_CHECKING:
    from .. import rma


class Choice(NamedTuple):
    """What makes one table different from another."""

    workers: int
    rows: int
    arena_nbytes: int
    claim: str
    repository: int
    lease_s: float

    def geometry(self) -> Geometry:
        """Return its sizes; raises UsageError if one is outside its limits."""
        return Geometry(self.rows, self.workers + 1, self.arena_nbytes)


class Order(NamedTuple):
    """What the workers are called together for."""

    what: Literal["open", "close", "stay", "leave", "nothing"]  # the last: it cannot be done
    choice: Choice | None = None  # of a table


def _allocate(group: rma.Group) -> rma.Window:
    nbytes = presence(group.size)
    return group.allocate(nbytes, 0, nbytes)


class Caller:
    """The driver's half.

    Parameters
    ----------
    group : rma.Group
        Collective.
    """

    def __init__(self, group: rma.Group) -> None:
        self.window = _allocate(group)
        self._members = group.size
        self._calls = 0  # what stands in CALLS, which only we write
        self.calling = False  # whether workers that have come wait for an order

    @property
    def obeyed(self) -> int:
        """The word that each worker has written when it has carried out the last order."""
        return self._calls

    @whole
    def call(self) -> int:
        """Ask the workers to come; return the word that each writes when it has.

        All must have obeyed the call before: one that still waits for its end would miss that.

        Notes
        -----
        RMA cost: 1 compare_and_swap.
        """
        self.calling = True
        self.window.compare_and_swap(CALLS, self._calls, self._calls + 1)
        return self._calls + 1

    @whole
    def tell(self, order: Order) -> None:
        """Tell those who have come what to do.

        Notes
        -----
        RMA cost: 1 put, 1 flush, 1 compare_and_swap.
        """
        content = pickle.dumps((order.what, order.choice and tuple(order.choice)))  # see `look`
        if len(content) > ORDER_NBYTES:
            raise ValueError(f"an order of {len(content)} bytes, the limit is {ORDER_NBYTES}")
        self.window.put(ORDER, content)
        self.window.flush()  # before CALLS says that it is there
        self._calls += 2
        self.window.compare_and_swap(CALLS, self._calls - 1, self._calls)
        self.calling = False

    def missing(self, word: int) -> list[int]:
        """Return the workers whose words are not as far as `word`.  RMA cost: 1 get, 1 flush."""
        return [member for member, found in enumerate(self._words(), 1) if found < word]

    def reported_dead(self) -> list[int]:
        """Return the workers that others have seen to be dead.  RMA cost: 1 get, 1 flush."""
        return [member for member, found in enumerate(self._words(), 1) if found == DEAD]

    def _words(self) -> array[int]:
        words = array("q", bytes((self._members - 1) * WORD_NBYTES))
        self.window.get(presence(1), words)
        self.window.flush()  # they are here only after it; facts, for they only grow
        return words


class Callee:
    """A worker's half.

    Parameters
    ----------
    group : rma.Group
        Collective.
    """

    def __init__(self, group: rma.Group) -> None:
        self.window = _allocate(group)
        self._word = presence(group.rank)
        self._done = 0  # calls obeyed, times two: the value of CALLS after the last one
        self._reported: set[int] = set()

    def look(self) -> Order | None:
        """Come if the driver calls, and return its order when everybody is there.

        Notes
        -----
        RMA cost: that of ``await_change`` without haste, if it does not.
        """
        # A hint is enough for nothing to do.
        if self.window.await_change([], CALLS, seconds=0) == [self._done]:
            return None
        if self.window.load(CALLS) == self._done:
            return None
        self.window.compare_and_swap(self._word, self._done, self._done + 1)
        wait = Backoff(IDLE_S)
        while self.window.load(CALLS) != self._done + 2:  # not all are here yet
            wait.pause()
        content = bytearray(ORDER_NBYTES)
        self.window.get(ORDER, content)
        self.window.flush()  # the order is here only after it
        # Plain tuples: a class would be looked up in a module of ours, and a task may have taken
        # that out of `sys.modules`.
        what, choice = pickle.loads(content)
        return Order(what, choice and Choice(*choice))

    def report_done(self, leave: bool = False) -> None:
        """Say that we have done what we were told.  RMA cost: 1 compare_and_swap."""
        self._done += 2
        word = FAREWELL if leave else self._done
        self.window.compare_and_swap(self._word, self._done - 1, word)

    def report_dead(self, member: int) -> None:
        """Say that another worker is dead.  RMA cost: 1 load, 2 compare_and_swap, once each.

        The last compare-and-swap of the dead may still be on its way: it finds our word and fails,
        or comes before ours, which is then tried again.
        """
        if member not in self._reported:
            disp = presence(member)
            found = self.window.load(disp)
            while found < DEAD:
                found = self.window.compare_and_swap(disp, found, DEAD)
            self._reported.add(member)
