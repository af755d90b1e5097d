"""One long random schedule, for cases that are too large to try every interleaving.

It is one way through the states of an ``Explorer``; each seed is another, and the same seed is the
same.  A process runs for a few calls at a time: many at once find what goes wrong between distant
calls, few what goes wrong between neighbours.

Prior art: random walks and priority-based random scheduling (Burckhardt, Kothari, Musuvathi and
Nagarakatte, A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS'10).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

from .explorer import Explorer, Report
from .replay import Failed

LINES = 100  # of a schedule that a message shows


def walk(case: Explorer, seed: int, most: int = 100_000, risk: float = 0.004) -> Report:
    """Follow one random schedule of a case to its end.

    Parameters
    ----------
    case : Explorer
    seed : int
        Which schedule.
    most : int
        Calls after which it should have ended.
    risk : float
        That a process dies when its turn comes, until ``case.crashes`` have.

    Raises
    ------
    Found
        If an invariant or a rule is broken, if a process raises an exception, or if there is no
        end.
    """
    walked = _Walk(replace(case), random.Random(seed))  # with nothing that another one has met
    try:
        walked.run(most, risk)
    except (AssertionError, Failed) as error:
        raise walked.found(error, seed) from error
    return walked.report


class _Walk:
    def __init__(self, case: Explorer, rng: random.Random) -> None:
        self.case = case
        self.rng = rng
        self.report = Report(states=1, finals=1)
        self.way: deque[tuple[int, int, int]] = deque(maxlen=LINES)  # who, from where, to where

    def run(self, most: int, risk: float) -> None:
        case, rng, report = self.case, self.rng, self.report
        state, who, left = case._start(), 0, 0
        while True:
            case._hold(state)
            if report.transitions > most:
                raise AssertionError(f"no end after {most:,} calls")
            walking, late = case._going(state)
            if not walking:
                break
            begins = not left or who not in walking
            if begins and late and rng.random() < 0.05:
                who, left = rng.choice(late), 1
            elif begins:
                who, left = rng.choice(walking), rng.choice((1, 1, 2, 3, 5, 10, 30))
            left -= 1
            moves = case._learn(state, who)
            by = moves.death
            if by and begins and state >> case._crashes and rng.random() < risk:
                report.crashed += 1
            elif moves.alone:  # the ordinary course comes first
                by = rng.choice(moves.sure * 9 + (rng.choice(moves.sure + moves.unsure),))
            else:  # what waits for its flush mostly waits longer than for the next call, the last
                likely = moves.sure[-1:] * 5
                by = rng.choice((*likely, rng.choice(moves.sure + moves.unsure)))
            self.way.append((who, state, state + by))
            state += by
            report.transitions += 1
        case._check(state, case.final)

    def found(self, error: Exception, seed: int) -> Exception:
        lines = [self.case._label(*step) for step in self.way]
        return self.case._found(error, "\n  ".join([f"seed {seed}, {self.report}", *lines]))
