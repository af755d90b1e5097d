"""Two ways to take tickets, many by one atomic: the pointer and the shared counter.

A ticket says where to look, not who may run: the claim itself is the compare-and-swap of the row's
own word (``claimant``).  That is why tickets may be lost with a dead worker, held by an idle one,
or point to a row that somebody else has emptied, and nothing else has to be repaired.  But nobody
drops a ticket whose row is just being published: see ``EarlyTickets``.

pointer
    Read head and tail, then ``Compare_and_swap(head, h, h + k)``.  Conditional: it gives nothing
    beyond the tail, and it may lose a race, which is a ``Miss.CONTENDED``.  An idle worker claims
    the next row first, when it sees that one READY, and moves the pointer past it as it commits.
counter
    ``Fetch_and_op(+k)`` hands out k ticket numbers unconditionally and never fails.  An idle worker
    then holds a ticket for work that does not exist yet: it waits until the tail passes it, or
    until it is sent home.
    Tickets that die with their holder are picked up by ``Claimant.sweep``.

Both share the queue out in proportion (a share of what is left divided by the workers, after
guided self-scheduling: Polychronopoulos and Kuck, IEEE Trans. Computers C-36(12), 1987), so a
batch gets smaller as the queue runs dry.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import layout, verbs
from .claim import Miss


class Taker:
    """A way to take tickets; what both ways share is the words of the queue, as last seen.

    They are read by Get, not by atomics: hints, which the compare-and-swaps that follow check.

    Parameters
    ----------
    window : verbs.Window
    workers : int
        How many share the queue.

    Attributes
    ----------
    first : int
        The next ticket whose row may be unclaimed, as far as one can know; -1 if it must be asked
        for.
    """

    first: int

    def __init__(self, window: verbs.Window, workers: int) -> None:
        self._window = window
        self._workers = workers
        self._tail = 0  # as last seen
        self._news = False  # whether it was read since the last `take`

    def take(self, limit: int) -> range | Miss:
        """Take at most `limit` tickets of published rows that nobody else was given."""
        raise NotImplementedError

    def quiet(self, tail: int) -> bool:
        """Return whether there is nothing to take, given the tail that was just read."""
        self._tail = tail
        self._news = True
        return self.first >= tail

    def alone(self, limit: int) -> bool:
        """Return whether `take` would give us one ticket at most."""
        raise NotImplementedError

    def pass_first(self) -> None:
        """Say that the row of the first ticket has been claimed, whoever has the ticket."""
        raise NotImplementedError

    @property
    def owed(self) -> verbs.Swap | None:
        """What takes the tickets of rows that were claimed without them, if there are such."""
        return None

    def pay(self, found: int) -> None:
        """Say what the step that is `owed` has found."""
        raise NotImplementedError

    def _look(self) -> int:
        """See the words anew; return HEAD."""
        head, self._tail = self._window.peek(layout.HEAD, layout.TAIL)
        return head


class PointerTaker(Taker):
    """Tickets by compare-and-swap of the pointer to the first descriptor that nobody has taken."""

    def __init__(self, window: verbs.Window, workers: int) -> None:
        super().__init__(window, workers)
        self.head = 0  # HEAD, as last seen
        self.first = 0  # at HEAD or beyond: all rows between them are claimed

    def alone(self, limit: int) -> bool:
        return share(self._tail - self.first, self._workers, limit) == 1

    def pass_first(self) -> None:
        self.first += 1
        self._news = False

    @property
    def owed(self) -> verbs.Swap | None:
        """The step that moves HEAD past them."""
        return None if self.first == self.head else (layout.HEAD, self.head, self.first)

    def pay(self, found: int) -> None:
        self._see(self.first if found == self.head else found)

    def _see(self, head: int) -> None:
        self.head = head
        self.first = max(head, self.first)

    def take(self, limit: int) -> range | Miss:
        """Take tickets between head and tail.

        Notes
        -----
        RMA cost: 1 compare_and_swap if there is work, or rows were claimed without their tickets, 1
        more if another was quicker; 2 get and 1 flush if no work is known.
        """
        # By an old tail our share may be too small: unless it is the most anyhow, look again.
        if not self._news and self._tail - self.first < 2 * self._workers * limit:
            self._see(self._look())
        self._news = False
        for _ in range(2):  # a head that we saw long ago fails: once more with the one found there
            head, first = self.head, self.first
            end = first
            if first < self._tail:
                end += share(self._tail - first, self._workers, limit)
            if end == head:
                return Miss.EMPTY
            # Against the head that the count was computed from: if somebody came between, we lose.
            found = self._window.compare_and_swap(layout.HEAD, head, end)
            if found == head:
                self._see(end)
                return range(first, end) if end > first else Miss.EMPTY
            self._see(found)
        return Miss.CONTENDED


class CounterTaker(Taker):
    """Tickets from the shared counter."""

    def __init__(self, window: verbs.Window, workers: int) -> None:
        super().__init__(window, workers)
        self._hold(range(0))

    def _hold(self, tickets: range) -> None:
        self._held = tickets
        self.first = tickets.start if tickets else -1

    def alone(self, limit: int) -> bool:
        return min(self._held.stop, self._tail) <= self._held.start + 1

    def pass_first(self) -> None:
        self._hold(self._held[1:])
        self._news = False

    def take(self, limit: int) -> range | Miss:
        """Take the tickets that we hold and that the tail has passed.

        Notes
        -----
        RMA cost: 1 fetch_add if no ticket is held; 2 get and 1 flush if the tail is not known to
        have passed it.
        """
        if not self._held:
            if not self._news:
                self._look()
            depth = self._tail - self._held.stop  # rows beyond our last ticket
            count = share(depth, self._workers, limit)
            first = self._window.fetch_add(layout.TICKET, count)  # unconditional: ours for ever
            self._hold(range(first, first + count))
        if self._held.start >= self._tail and not self._news:
            self._look()
        self._news = False
        if self._held.start >= self._tail:
            return Miss.EMPTY
        published = range(self._held.start, min(self._held.stop, self._tail))
        self._hold(range(published.stop, self._held.stop))
        return published


class EarlyTickets(Taker):
    """Tickets that have come too early, in the place of the taker that gave them.

    The row of the first is still RESERVED for it: of the words that a publisher changes together,
    TAIL was seen before that of the row.  Were the ticket dropped, only a sweep would find the row;
    and no later one is used before it, for its task may wait for what the earlier one does.

    The word changes sooner or later.  Its publisher makes the row READY, or has lost it: then the
    row is abandoned, by the publisher itself (``Publisher.recover``) or by who has seen it die.
    Until then `take` finds nothing, and sweeps find what others publish.

    Parameters
    ----------
    window : verbs.Window
    tickets : range
    disp : int
        Of the word of the first one's row.
    word : int
        What stood there.
    resume : callable
        Puts the taker back in its place.
    """

    def __init__(
        self,
        window: verbs.Window,
        tickets: range,
        disp: int,
        word: int,
        resume: Callable[[], None],
    ) -> None:
        super().__init__(window, 1)
        self.first = tickets.start
        self._tickets = tickets
        self._disp = disp
        self._word = word
        self._resume = resume

    def alone(self, limit: int) -> bool:
        """Return False: they have been taken."""
        return False

    def quiet(self, tail: int) -> bool:
        """Return whether the word is as it was.  RMA cost: 1 get, 1 flush."""
        return self._window.peek(self._disp) == [self._word]

    def take(self, limit: int) -> range | Miss:
        """Take all, when the word has changed.  RMA cost: 1 get, 1 flush."""
        if self.quiet(self.first):
            return Miss.EMPTY
        self._resume()
        return self._tickets


#: The ways by name.
TAKERS: dict[str, type[Taker]] = {
    "pointer": PointerTaker,
    "counter": CounterTaker,
}


def share(depth: int, workers: int, limit: int) -> int:
    """Return how many of `depth` tickets one of `workers` takes: half its share, at least one."""
    return max(1, min(limit, depth // (2 * workers)))
