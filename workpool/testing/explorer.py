"""Every interleaving of a few processes that share one window, each reachable state seen once.

A process is a deterministic function of the answers that the window gives it: see ``replay``.

A state of the whole is then the memory, the state of each process, and the calls that it has begun.
Two paths that meet in one state are followed once, which is what makes *every* interleaving
affordable; a loop that polls in vain comes back to its own state and ends there.

What else may happen in a state than that a process makes its next call:

* A living process dies (a given number of times): what it has begun never happens, or, with
  ``late``, may still happen at any time after its death.
* With ``eager``, a put, get or accumulate happens before its flush; without, it happens at it.
* The atomics of one ``compare_and_swap_all`` happen in any order.

Prior art: explicit-state search with a visited set (G. Holzmann, The SPIN Model Checker, 2003).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .memory import Memory
from .replay import Failed, Label, Process, Replay, Watch, show


class Found(AssertionError):
    """An invariant does not hold; the message ends with the way that led there."""


#: An event without what is needed only to tell of it.
_Move = tuple[int, int, bool]

#: The state of the whole: numbers of the memory and of each process's local state, then the
#: crashes still to come.  Small integers, so that millions of states can be kept and compared.
_State = tuple[int, ...]

_Check = Callable[[Memory, dict[str, Any], dict[str, bool]], None]


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
        Each process is as it was at the end of its last step.
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
    obituary : mapping of str to int
        Displacement of the word that becomes 1 when a process dies: a failure detector that is
        never wrong.
    eager : bool
        Whether puts, gets and accumulates may also happen before their flush.
    late : bool
        Whether what a process has begun may also happen after its death.
    label : callable
        ``label(op, answer)`` returns a call as a message shows it.
    most : int
        Give up beyond so many states.
    """

    processes: Mapping[str, Process]
    nbytes: int
    invariant: _Check
    final: _Check
    watch: Watch | None = None
    memory: Memory = field(default_factory=Memory)
    crashes: int = 0
    mortal: frozenset[str] | None = None
    obituary: Mapping[str, int] = field(default_factory=dict)
    eager: bool = False
    late: bool = False
    label: Label = show
    most: int = 5_000_000

    def __post_init__(self) -> None:
        self._names = list(self.processes)
        self._mortal = [self.mortal is None or name in self.mortal for name in self._names]
        self._replay = Replay(self.nbytes, self.watch, self.eager, self.late, self.label)
        self._moves: dict[tuple[int, int], list[_Move]] = {}  # by memory and local state
        self._notes: dict[tuple[int, int], int] = {}  # memory in which a death is noted
        self._held: set[tuple[Any, ...]] = set()  # where the invariant is known to hold

    def run(self) -> Report:
        """Visit every state.

        Raises
        ------
        Found
            If an invariant or a rule is broken in one of them, if a process raises an exception,
            or if no final state can be reached without a crash.
        """
        try:
            start = self._start()
        except Failed as failed:
            raise Found(f"{failed.__cause__!r} {failed.label}") from failed.__cause__
        number: dict[_State, int] = {start: 0}
        states = [start]
        sources, targets, finals = array("i"), array("i"), array("i")  # of what is sure
        report = Report()
        frontier = [0]
        while frontier:
            at = frontier.pop()
            state = states[at]
            report.states += 1
            report.crashed += state[-1] != self.crashes
            try:
                self._hold(state)
                sure, unsure, over = self._following(state)
                if over:
                    finals.append(at)
                    self._check(state, self.final)
            except (AssertionError, Failed) as error:
                raise self._found(error, state, number) from error
            report.transitions += len(sure) + len(unsure)
            for after in sure:
                then = number.setdefault(after, len(states))
                if then == len(states):
                    states.append(after)
                    frontier.append(then)
                sources.append(at)
                targets.append(then)
            for after in unsure:
                then = number.setdefault(after, len(states))
                if then == len(states):
                    states.append(after)
                    frontier.append(then)
            if report.states > self.most:
                raise Found(f"more than {self.most:,} states: make the case smaller")
        report.finals = len(finals)
        lost = unending(len(states), sources, targets, finals)
        if lost is not None:
            raise Found(f"no way leads to an end from here\n{self._way(states[lost], number)}")
        return report

    def _start(self) -> _State:
        locals_ = [self._replay.start(name, process) for name, process in self.processes.items()]
        return (self._replay.memories(self.memory.key()), *locals_, self.crashes)

    # --- what may happen next -------------------------------------------------------------------

    def _following(self, state: _State) -> tuple[list[_State], list[_State], bool]:
        """Return what can happen next, and whether nothing is left for a living process to do.

        First the states after what is sure to happen, then the others.
        """
        memory, crashes = state[0], state[-1]
        over = True
        sure: list[_State] = []
        unsure: list[_State] = []
        for i in range(1, len(state) - 1):
            local = state[i]
            before, behind = state[1:i], state[i + 1 :]
            moves = self._moves.get((memory, local))
            if moves is None:
                moves = [event[:3] for event in self._replay.perform(memory, local)]
                self._moves[memory, local] = moves
            if local in self._replay.ops:
                over = False
                if (
                    self._replay.ops[local][0] == "choose"
                ):  # which nobody can notice: it comes first
                    sure, unsure = [], []
                    for then, own, likely in moves:
                        (sure if likely else unsure).append((then, *before, own, *behind))
                    break
                if crashes and self._mortal[i - 1]:
                    noted, dead = self._die(memory, local, i - 1)
                    unsure.append((noted, *before, dead, *behind[:-1], crashes - 1))
            for then, own, likely in moves:
                (sure if likely else unsure).append((then, *before, own, *behind))
        return sure, unsure, over

    def _die(self, memory: int, local: int, i: int) -> tuple[int, int]:
        """Return memory and local state after a death, which the failure detector has noted."""
        if (memory, i) not in self._notes:
            noted = Memory(dict(self._replay.memories.values[memory]))
            if self._names[i] in self.obituary:
                noted.compare_and_swap(self.obituary[self._names[i]], 0, 1)
            self._notes[memory, i] = self._replay.memories(noted.key())
        return self._notes[memory, i], self._replay.dead(local)

    # --- what must hold -------------------------------------------------------------------------

    def _hold(self, state: _State) -> None:
        """Check the invariant, once for all states that look alike to it."""
        values = self._replay.locals.values
        key = (state[0], *[(values[local].root, values[local].alive) for local in state[1:-1]])
        if key not in self._held:
            self._held.add(key)
            self._check(state, self.invariant)

    def _check(self, state: _State, check: _Check) -> None:
        replay, names = self._replay, self._names
        locals_ = [replay.locals.values[i] for i in state[1:-1]]
        check(
            Memory(dict(replay.memories.values[state[0]])),
            {n: replay.objects[local.root] for n, local in zip(names, locals_, strict=True)},
            {n: local.alive for n, local in zip(names, locals_, strict=True)},
        )

    def _found(self, error: Exception, state: _State, known: Mapping[_State, int]) -> Found:
        way = self._way(state, known)
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
        lines = [self._label(*pair) for pair in pairwise(way)]
        return "\n".join(f"  {i:3d} {line}" for i, line in enumerate(lines, 1))

    def _label(self, before: _State, after: _State) -> str:
        """Return what leads from one state to the next."""
        for i, name in enumerate(self._names, 1):
            same = after[1:i] == before[1:i] and after[i + 1 : -1] == before[i + 1 : -1]
            for memory, local, _, op, answer in self._replay.perform(before[0], before[i]):
                if same and after[0] == memory and after[i] == local and after[-1] == before[-1]:
                    late = "" if self._replay.locals.values[local].alive else " (late)"
                    return f"{name}: {self.label(op, answer)}{late}"
            if (
                same
                and before[i] in self._replay.ops
                and after[i] == self._replay.dead(before[i])
                and after[-1] < before[-1]
            ):
                return f"{name} dies"
        raise AssertionError("no such way")


def unending(
    count: int, sources: array[int], targets: array[int], finals: array[int]
) -> int | None:
    """Return a state from which no final state can be reached, or None."""
    before = np.argsort(np.asarray(targets), kind="stable")
    starts = np.searchsorted(np.asarray(targets)[before], np.arange(count + 1))
    origin = np.asarray(sources)[before]
    ending = np.zeros(count, bool)
    frontier = np.unique(np.asarray(finals))
    while frontier.size:
        ending[frontier] = True
        found = [origin[starts[i] : starts[i + 1]] for i in frontier.tolist()]
        frontier = np.unique(np.concatenate(found)) if found else frontier[:0]
        frontier = frontier[~ending[frontier]]
    lost = np.flatnonzero(~ending)
    return int(lost[0]) if lost.size else None
