"""One long random schedule, for cases that are too large to try every interleaving.

The processes, the checks and the liberties are those of an ``Explorer``; each seed is one schedule,
and the same seed is the same schedule.  A process runs for a few calls at a time: many at once find
what goes wrong between distant calls, few what goes wrong between neighbours.

Prior art: random walks and priority-based random scheduling (Burckhardt, Kothari, Musuvathi and
Nagarakatte, A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS'10).
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from typing import Any

from .explorer import Explorer, Found, Report
from .memory import TRANSFERS, Memory, MemoryWindow, Op
from .replay import Pause, changes

LINES = 100  # of a schedule that a message shows


class _Walker:
    """One process on its way."""

    def __init__(self, name: str, process: Any) -> None:
        self.name = name
        self.process = process  # as it was at the end of its last step
        self.root = pickle.dumps(process)
        self.answers: list[Any] = []
        self.transfers: list[list[Any]] = []  # [op, answer]; None as long as it has not happened
        self.batch: dict[int, Any] = {}  # answers of a compare_and_swap_all by position
        self.alive = True
        self.ended = False


def walk(case: Explorer, seed: int, most: int = 100_000, risk: float = 0.002) -> Report:
    """Follow one random schedule of a case to its end.

    Parameters
    ----------
    case : Explorer
        Its processes are left as they are.
    seed : int
        Which schedule.
    most : int
        Calls after which it should have ended.
    risk : float
        That somebody dies, at each turn, until ``case.crashes`` have.

    Raises
    ------
    Found
        If an invariant or a rule is broken, if a process raises an exception, or if there is no
        end.
    """
    return _Walk(case, random.Random(seed), most, risk).run(f"seed {seed}")


class _Walk:
    def __init__(self, case: Explorer, rng: random.Random, most: int, risk: float) -> None:
        self.case = case
        self.rng = rng
        self.most = most
        self.risk = risk
        self.memory = Memory(case.memory.lines)
        self.walkers = [_Walker(name, process) for name, process in case.processes.items()]
        self.late: list[tuple[_Walker, Op]] = []
        self.lines: deque[tuple[str, Op | str, Any]] = deque(maxlen=LINES)
        self.report = Report(states=1)

    def run(self, title: str) -> Report:
        try:
            while walking := [w for w in self.walkers if w.alive and not w.ended]:
                if self.report.transitions > self.most:
                    raise AssertionError(f"no end after {self.most:,} calls")
                self._turn(self.rng.choice(walking))
            self.report.finals = 1
            self._check(self.case.final)
        except Exception as error:
            text = str(error) if isinstance(error, AssertionError) else repr(error)
            way = "\n".join(
                f"  {name}: {op if isinstance(op, str) else self.case.label(op, answer)}"
                for name, op, answer in self.lines
            )
            raise Found(f"{text}\n{title}, {self.report}\n{way}") from error
        return self.report

    def _turn(self, walker: _Walker) -> None:
        rng, case = self.rng, self.case
        mortal = case.mortal is None or walker.name in case.mortal
        if mortal and self.report.crashed < case.crashes and rng.random() < self.risk:
            self._die(walker)
        elif self.late and rng.random() < 0.05:
            self._happen(*self.late.pop(rng.randrange(len(self.late))))
        elif case.eager and rng.random() < 0.2:
            for transfer in walker.transfers:
                if transfer[1] is None and rng.random() < 0.5:
                    transfer[1] = self._happen(walker, transfer[0])
        else:
            self._burst(walker, rng.choice((1, 1, 2, 3, 5, 10, 30)))

    def _burst(self, walker: _Walker, calls: int) -> None:
        """Let a process make `calls` calls, at most to the end of its step."""
        process = pickle.loads(walker.root)
        script = iter(tuple(walker.answers))
        left = calls

        def turn() -> None:
            nonlocal left
            if left == 0:
                raise Pause
            left -= 1

        def perform(op: Op) -> Any:
            for answer in script:
                return answer
            verb = op[0]
            answer = None
            if verb == "choose":
                answer = self.rng.choice((0,) * 9 + (self.rng.randrange(op[1]),))
            elif verb in TRANSFERS:
                walker.transfers.append([op, None])
            elif verb == "flush":
                turn()
                answer = self._flush(walker)
            elif verb == "compare_and_swap_all":
                while rest := [i for i in range(1, len(op)) if i not in walker.batch]:
                    turn()
                    i = self.rng.choice(rest)
                    walker.batch[i] = self._happen(walker, ("compare_and_swap", *op[i]))
                answer = [walker.batch[i] for i in range(1, len(op))]
                walker.batch.clear()
            else:
                turn()
                answer = self._happen(walker, op)
            walker.answers.append(answer)
            return answer

        try:
            goes_on = process.step(
                MemoryWindow(self.case.nbytes, perform), lambda count: perform(("choose", count))
            )
        except Pause:
            return
        walker.process, walker.root = process, pickle.dumps(process)
        walker.answers.clear()
        walker.ended = not goes_on
        self._check(self.case.invariant)

    def _flush(self, walker: _Walker) -> list[bytes]:
        order = [transfer for transfer in walker.transfers if transfer[1] is None]
        if self.case.eager:
            self.rng.shuffle(order)
        for transfer in order:
            transfer[1] = self._happen(walker, transfer[0])
        answers = [answer for op, answer in walker.transfers if op[0] == "get"]
        walker.transfers.clear()
        return answers

    def _die(self, walker: _Walker) -> None:
        walker.alive = False
        self.report.crashed += 1
        self.lines.append((walker.name, "dies", None))
        if self.case.late:
            for op, answer in walker.transfers:
                if answer is None and changes(op):
                    self.late.append((walker, op))
        word = self.case.obituary.get(walker.name)
        if word is not None:
            self.memory.compare_and_swap(word, 0, 1)

    def _happen(self, walker: _Walker, op: Op) -> Any:
        self.report.transitions += 1
        self.lines.append((walker.name, op, "?"))
        if self.case.watch is not None:
            self.case.watch(walker.process, self.memory, op)
        answer = self.memory.perform(op)
        self.lines[-1] = (walker.name, op, answer)
        return () if answer is None else answer  # None: not yet

    def _check(self, check: Any) -> None:
        check(
            self.memory,
            {walker.name: walker.process for walker in self.walkers},
            {walker.name: walker.alive for walker in self.walkers},
        )
