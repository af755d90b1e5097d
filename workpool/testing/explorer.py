"""Every interleaving of a few processes that share one window, each reachable state seen once.

A process is a deterministic function of the answers that the window gives it: see ``replay``.

A state of the whole is then the memory, the state of each process, and the calls that it has begun.
Two paths that meet in one state are followed once, which is what makes *every* interleaving
affordable; a loop that polls in vain comes back to its own state and ends there.

What else may happen in a state than that a process makes its next call:

* A living process dies (a given number of times): what it has begun never happens, or, with
  ``late``, may still happen at any time after its death.
* With ``eager``, a put, get or accumulate happens before its flush; without, it happens at it.
* The atomics of one ``compare_and_swap_all`` happen in any order, unless they are `ordered`.

Prior art: explicit-state search with a visited set (G. Holzmann, The SPIN Model Checker, 2003).
"""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .memory import Memory
from .replay import Failed, Label, Numbers, Process, Replay, Watch, show


class Found(AssertionError):
    """An invariant does not hold; the message ends with the way that led there."""


#: The state of the whole, as one integer: from the low end the numbers of the memory, of what the
#: invariant sees of each process and of each process's local state, then the crashes still to come.
#: So millions of states can be kept and compared, a part of one is a mask away, and what a process
#: does next is something to add, whatever the others are at.
_State = int
_BITS = 32
_NUMBER = (1 << _BITS) - 1

_Check = Callable[[Memory, dict[str, Any], dict[str, bool]], None]


class _Moves(NamedTuple):
    """What may happen next to one process, as differences between states."""

    sure: tuple[int, ...]
    unsure: tuple[int, ...]
    death: int  # 0 where it cannot die
    over: bool  # whether it has nothing more to do
    alone: bool  # whether nobody can notice what happens: it comes first


class _Unread(Memory):
    """A memory that is copied when somebody looks at it, which it notes."""

    def __init__(self, lines: dict[int, bytes]) -> None:
        self._given = lines

    def __getattr__(self, name: str) -> dict[int, bytes]:
        if name != "lines":
            raise AttributeError(name)
        self.lines = dict(self._given)
        return self.lines

    @property
    def was_read(self) -> bool:
        return "lines" in vars(self)


@dataclass
class Report:
    """What an exploration has seen."""

    states: int = 0
    transitions: int = 0
    finals: int = 0
    crashed: int = 0  # states in which somebody is dead

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.finals:,} final, "
            f"{self.crashed:,} with a crash"
        )


@dataclass
class Explorer:
    """Visits every state that some interleaving reaches.

    Parameters
    ----------
    processes : mapping of str to Process
        Who takes part, by name.
    nbytes : int
        Size of the window.
    invariant : callable
        ``invariant(memory, processes, alive)``, called in every state; raises AssertionError.
        Each process is as it was at the end of its last step.  Depends on nothing else: where it
        has not looked at the memory it is not called again for another one.
    final : callable
        ``final(memory, processes, alive)``, called in every state in which no living process has
        anything more to do; raises AssertionError where something was lost.
    watch : callable, optional
        ``watch(process, memory, op)``, called before each call takes effect, with the memory as it
        is then; raises AssertionError if the process may not do that.
    memory : Memory
        What the window holds at first.
    crashes : int
        How many processes may die, at any point.
    mortal : collection of str, optional
        Who may die; everybody by default.
    death_words : mapping of str to int
        Displacement of the word that becomes 1 when a process dies: a failure detector that is
        never wrong.
    eager : bool
        Whether puts, gets and accumulates may also happen before their flush.
    late : bool
        Whether what a process has begun may also happen after its death.
    ordered : bool
        Whether the atomics of a batch happen one after another, as the MPIs that we know do: fewer
        states, in a case that is about something else.
    label : callable
        ``label(op, answer)`` returns a call as a message shows it.
    most : int
        Most states, beyond which it gives up.
    """

    processes: Mapping[str, Process]
    nbytes: int
    invariant: _Check
    final: _Check
    watch: Watch | None = None
    memory: Memory = field(default_factory=Memory)
    crashes: int = 0
    mortal: frozenset[str] | None = None
    death_words: Mapping[str, int] = field(default_factory=dict)
    eager: bool = False
    late: bool = False
    ordered: bool = False
    label: Label = show
    most: int = 6_000_000

    def __post_init__(self) -> None:
        self._names = list(self.processes)
        self._mortal = [self.mortal is None or name in self.mortal for name in self._names]
        self._replay = Replay(
            self.nbytes, self.watch, self.eager, self.late, self.ordered, self.label
        )
        count = len(self._names)
        self._seen = [_BITS * i for i in range(1, 1 + count)]  # where its numbers are in a state
        self._local = [_BITS * (i + count) for i in range(1, 1 + count)]
        self._crashes = _BITS * (1 + 2 * count)
        self._sight = (1 << _BITS * (1 + count)) - 1  # what the invariant sees
        self._looks: Numbers[tuple[int, bool]] = Numbers()  # what the invariant sees of a process
        self._notes: dict[tuple[int, int], int] = {}  # memory in which a death is noted
        self._held: set[int] = set()  # where the invariant is known to hold
        self._always: set[int] = set()  # likewise, whatever the memory
        # For each process what is known of its moves, by memory and local state, and their mask.
        self._known: list[tuple[int, int, dict[int, _Moves]]] = [
            (i, _NUMBER | _NUMBER << place, {}) for i, place in enumerate(self._local)
        ]

    def run(self) -> Report:
        """Visit every state.

        Raises
        ------
        Found
            If an invariant or a rule is broken in one of them, if a process raises an exception,
            or if no final state can be reached without a crash.
        """
        collects = gc.isenabled()
        gc.disable()  # it would look at millions of states again and again, and nothing is cyclic
        try:
            return self._visit()
        finally:
            if collects:
                gc.enable()

    def _visit(self) -> Report:
        try:
            start = self._start()
        except Failed as failed:
            raise Found(f"{failed.__cause__!r} {failed.label}") from failed.__cause__
        number: Numbers[_State] = Numbers()
        states = number.order
        frontier = number.all([start])
        targets, degrees, visited, finals = array("i"), array("i"), array("i"), array("i")
        transitions = crashed = 0
        unhurt = self.crashes << self._crashes  # the least state in which nobody has died
        while frontier:
            at = frontier.pop()
            state = states[at]
            crashed += state < unhurt
            try:
                self._hold(state)
                sure, unsure, over = self._following(state)
                if over:
                    finals.append(at)
                    self._check(state, self.final)
            except (AssertionError, Failed) as error:
                raise self._found(error, self._way(state, number)) from error
            transitions += len(sure) + len(unsure)
            visited.append(at)
            degrees.append(len(sure))
            fresh = len(states)
            targets.extend(number.all(sure))
            number.all(unsure)  # to be visited, and no way to an end
            frontier.extend(range(fresh, len(states)))
            if len(visited) > self.most:
                raise Found(f"more than {self.most:,} states: make the case smaller")
        lost = unending(len(states), np.repeat(visited, degrees), targets, finals)
        if lost is not None:
            raise Found(f"no way leads to an end from here\n{self._way(states[lost], number)}")
        return Report(len(states), transitions, len(finals), crashed)

    def _start(self) -> _State:
        state = self._replay.note(self.memory) + (self.crashes << self._crashes)
        for i, (name, process) in enumerate(self.processes.items()):
            state += self._worth(i, self._replay.start(name, process))
        return state

    # --- what may happen next -------------------------------------------------------------------

    def _following(self, state: _State) -> tuple[list[_State], list[_State], bool]:
        """Return what can happen next, and whether nothing is left for a living process to do.

        First the states after what is sure to happen, then the others.
        """
        ended = True
        sure: list[_State] = []
        unsure: list[_State] = []
        mortal = state >> self._crashes
        for i, mask, known in self._known:
            moves = known.get(state & mask)
            if moves is None:
                moves = known[state & mask] = self._learn(state, i)
            likely, unlikely, death, over, alone = moves
            if alone:
                return [state + by for by in likely], [state + by for by in unlikely], False
            if death and mortal:
                unsure.append(state + death)
            for by in likely:
                sure.append(state + by)
            for by in unlikely:
                unsure.append(state + by)
            ended = ended and over
        return sure, unsure, ended

    def _learn(self, state: _State, i: int) -> _Moves:
        """Return what may happen next to one process."""
        memory, local = state & _NUMBER, self._number(state, i)
        now = memory + self._worth(i, local)
        sure: list[int] = []
        unsure: list[int] = []
        for event in self._replay.perform(memory, local):
            by = event.memory + self._worth(i, event.local) - now
            (sure if event.sure else unsure).append(by)
        op = self._replay.ops.get(local)
        alone = op is not None and op[0] == "choose"
        death = 0
        if op is not None and not alone and self.crashes and self._mortal[i]:
            then = self._noted(memory, i) + self._worth(i, self._replay.dead(local))
            death = then - now - (1 << self._crashes)
        return _Moves(tuple(sure), tuple(unsure), death, op is None, alone)

    def _worth(self, i: int, local: int) -> int:
        """Return what one process adds to a state."""
        root, _, _, alive, _ = self._replay.locals.order[local]
        return (local << self._local[i]) + (self._looks[root, alive] << self._seen[i])

    def _number(self, state: _State, i: int) -> int:
        return state >> self._local[i] & _NUMBER

    def _noted(self, memory: int, i: int) -> int:
        """Return the memory after a death, which the failure detector has noted."""
        if (memory, i) not in self._notes:
            noted = Memory(self._replay.lines[memory])
            if self._names[i] in self.death_words:
                noted.compare_and_swap(self.death_words[self._names[i]], 0, 1)
            self._notes[memory, i] = self._replay.note(noted)
        return self._notes[memory, i]

    # --- what must hold -------------------------------------------------------------------------

    def _hold(self, state: _State) -> None:
        """Check the invariant, once for all states that look alike to it."""
        seen = state & self._sight
        if seen not in self._held:
            self._held.add(seen)
            if seen >> _BITS not in self._always and not self._check(state, self.invariant):
                self._always.add(seen >> _BITS)

    def _check(self, state: _State, check: _Check) -> bool:
        """Return whether a check that passed had looked at the memory."""
        replay, names = self._replay, self._names
        locals_ = [replay.locals.order[self._number(state, i)] for i in range(len(names))]
        memory = _Unread(replay.lines[state & _NUMBER])
        check(
            memory,
            {n: replay.objects[local.root] for n, local in zip(names, locals_, strict=True)},
            {n: local.alive for n, local in zip(names, locals_, strict=True)},
        )
        return memory.was_read

    def _found(self, error: Exception, way: str) -> Found:
        if not isinstance(error, Failed):
            return Found(f"{error}\n{way}")
        cause = error.__cause__
        text = str(cause) if isinstance(cause, AssertionError) else repr(cause)
        return Found(f"{text}\n{way}\n      {error.label}")

    def _way(self, end: _State, known: Mapping[_State, int]) -> str:
        """The calls of a shortest way through known states to one of them, one on each line."""
        start = next(iter(known))
        came = {start: start}
        frontier = deque([start])
        while end not in came:
            state = frontier.popleft()
            try:
                sure, unsure, _ = self._following(state)
            except Failed:  # another way to break a rule
                continue
            for after in (*sure, *unsure):
                if after in known and after not in came:
                    came[after] = state
                    frontier.append(after)
        way = [end]
        while way[-1] != start:
            way.append(came[way[-1]])
        way.reverse()
        labels = (
            (self._label(i, *pair) for i in range(len(self._names))) for pair in pairwise(way)
        )
        lines = [next(filter(None, of_one)) for of_one in labels]
        return "\n".join(f"  {i:3d} {line}" for i, line in enumerate(lines, 1))

    def _label(self, i: int, before: _State, after: _State) -> str:
        """Return what of one process leads from one state to the next; nothing if it is another."""
        name, memory, local = self._names[i], before & _NUMBER, self._number(before, i)
        others = before - memory - self._worth(i, local)
        for then, own, _, op, answer in self._replay.perform(memory, local):
            if after == others + then + self._worth(i, own):
                late = "" if self._replay.locals.order[local].alive else " (late)"
                return f"{name}: {self.label(op, answer)}{late}"
        return f"{name} dies" if after == before + self._learn(before, i).death else ""


def unending(
    count: int, sources: NDArray[np.int32], targets: array[int], finals: array[int]
) -> int | None:
    """Return a state from which no final state can be reached, or None."""
    origin = sources[np.argsort(np.asarray(targets), kind="stable")]
    degrees = np.bincount(np.asarray(targets), minlength=count)
    ends = np.cumsum(degrees)  # in origin, of what leads to each state
    ending = np.zeros(count, bool)
    frontier = np.asarray(finals)
    while frontier.size:
        ending[frontier] = True
        some = degrees[frontier]
        skip = np.repeat(ends[frontier] - np.cumsum(some), some)
        before = origin[skip + np.arange(some.sum())]
        frontier = np.unique(before[~ending[before]])
    lost = np.flatnonzero(~ending)
    return int(lost[0]) if lost.size else None
