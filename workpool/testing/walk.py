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
from dataclasses import fields

from .explorer import Explorer, Report
from .replay import Failed

LINES = 100  # of a schedule that a message shows
MOST = 100_000  # calls after which it should have ended
RISK = 0.004  # that a process dies when its turn comes, until as many have as may


def walk(case: Explorer, seed: int) -> Report:
    """Follow one random schedule of a case to its end.

    Parameters
    ----------
    case : Explorer
    seed : int
        Which schedule.

    Raises
    ------
    Found
        If an invariant or a rule is broken, if a process raises an exception, or if there is no
        end.
    """
    own = _Walk(**{it.name: getattr(case, it.name) for it in fields(case)})
    return own.follow(seed)


class _Walk(Explorer):
    """A case with nothing that another walk has met: what happens next is drawn."""

    def follow(self, seed: int) -> Report:
        report = Report(states=1, finals=1)
        way: deque[tuple[int, int, int]] = deque(maxlen=LINES)  # who, from where, to where
        try:
            self._follow(random.Random(seed), report, way)
        except (AssertionError, Failed) as error:
            lines = [self._label(*step) for step in way]
            said = "\n  ".join([f"seed {seed}, {report}", *lines])
            raise self._found(error, said) from error
        return report

    def _follow(self, rng: random.Random, report: Report, way: deque[tuple[int, int, int]]) -> None:
        state, who, left = self._start(), 0, 0
        while True:
            self._hold(state)
            if report.transitions > MOST:
                raise AssertionError(f"no end after {MOST:,} calls")
            walking, late = self._going(state)
            if not walking:
                break
            begins = not left or who not in walking
            if begins and late and rng.random() < 0.05:
                who, left = rng.choice(late), 1
            elif begins:
                who, left = rng.choice(walking), rng.choice((1, 1, 2, 3, 5, 10, 30))
            left -= 1
            moves = self._learn(state, who)
            by = moves.death
            if by and begins and state >> self._crashes and rng.random() < RISK:
                report.crashed += 1
            elif moves.alone:  # the ordinary course comes first
                by = rng.choice(moves.sure * 9 + (rng.choice(moves.sure + moves.unsure),))
            else:  # what waits for its flush mostly waits longer than for the next call, the last
                likely = moves.sure[-1:] * 5
                by = rng.choice((*likely, rng.choice(moves.sure + moves.unsure)))
            way.append((who, state, state + by))
            state += by
            report.transitions += 1
        self._check(state, self.final)

    def _going(self, state: int) -> tuple[list[int], list[int]]:
        """Return which processes go on, and of which dead ones some calls may still happen."""
        replay, numbers = self._replay, range(len(self._names))
        going = [i for i in numbers if self._number(state, i) in replay.ops]
        locals_ = [(i, replay.locals.order[self._number(state, i)]) for i in numbers]
        return going, [i for i, local in locals_ if local.begun and not local.alive]
