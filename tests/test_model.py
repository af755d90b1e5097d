"""The protocol's promises hold in every interleaving of small cases.

    SMALL    every interleaving; MPI's freedoms are taken in all of them: transfers happen at any
             time before their flush, the atomics of one batch in any order (but where payloads and
             outcomes travel in pieces, which takes one atomic at a time)
    LARGE    random schedules of what is too large for that

``model`` says what is checked.  A small case names the steps that rows must take in it and the
least number of states, so that an exploration that silently shrinks is noticed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from model import METHODS, SECOND, Rules, case, explore_tickets

from workpool.protocol import Step
from workpool.testing import Found, walk

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

ORDINARY = {Step.RESERVE, Step.PUBLISH, Step.CLAIM, Step.COMPLETE, Step.RETIRE}
TAKEN_BACK = {Step.RECLAIM, Step.LET_GO}
DEADLY = {"tasks": 1, "workers": 3, "rows": 4, "crashes": 2}
PIECES = {Step.WANT, Step.SUPPLY, Step.OFFER, Step.TAKE}


# --- every interleaving -------------------------------------------------------------------------


class Small(NamedTuple):
    """A case whose every interleaving is tried."""

    options: dict[str, Any]
    steps: set[Step]  # that rows take in it, beyond the ordinary ones: these and no others
    pointer: int  # thousand states at the least, some two thirds of what there are; 0 is not run:
    counter: int  # the other method says the same, and this one takes long


SMALL = {
    "two tasks": Small({"tasks": 2}, set(), 21, 138),
    "three tasks": Small({"tasks": 3}, set(), 343, 0),
    "three tasks in one row": Small({"tasks": 3, "rows": 1}, set(), 26, 0),
    "four tasks in two rows": Small({"tasks": 4, "workers": 1}, set(), 6, 13),
    "words that are read one by one": Small({"tasks": 2, "torn": True}, set(), 280, 0),
    "sweeping while there is work": Small({"tasks": 2, "sweeps": 1}, set(), 37, 0),
    # Of two rows a worker takes both, and does not claim by the same flush: that is a larger case.
    "what was seen of the only row is old": Small({"tasks": 1, "remembers": True}, set(), 172, 161),
    # TAIL may be seen before the row that shares its flush is READY: who dropped its ticket would
    # leave the row to a sweep.
    "nobody looks behind the head": Small({"tasks": 3, "sweeps": None}, set(), 5, 0),
    "nobody looks behind the head, two tasks": Small({"tasks": 2, "sweeps": None}, set(), 0, 5),
    "nobody looks behind the head, what was seen of the queue is old": Small(
        {"tasks": 1, "sweeps": None, "remembers": True}, set(), 115, 53
    ),
    "nobody looks behind the head, one is evicted": Small(
        {"tasks": 2, "sweeps": None, "suspicions": 1}, TAKEN_BACK, 9, 0
    ),
    "one worker starts one task after the other": Small(
        {"tasks": 3, "rows": 3, "batch": 3, "limit": 3, "workers": 1, "torn": True}, set(), 15, 15
    ),
    "one worker, what it has seen of the queue is old": Small(
        {"tasks": 3, "rows": 3, "batch": 3, "workers": 1, "remembers": True}, set(), 5, 5
    ),
    "rows reserved ahead": Small({"tasks": 3, "rows": 3, "ahead": 1}, set(), 370, 0),
    "a worker leaves with tickets": Small({"tasks": 2, "stays": {1: 1}}, set(), 12, 79),
    "cancel": Small({"tasks": 2, "cancels": 2}, {Step.CANCEL}, 88, 0),
    # A dead worker takes up to two rows with it: the one that it ran, and the next one, claimed
    # by the same flush.
    "a worker dies": Small({"tasks": 2, "rows": 4, "crashes": 1}, {Step.RECLAIM}, 47, 0),
    "a worker dies, its last calls come late": Small(
        {"tasks": 1, "rows": 3, "crashes": 1, "late": True}, {Step.RECLAIM}, 2, 10
    ),
    "two workers die": Small(DEADLY, {Step.RECLAIM}, 46, 0),
    "two workers die, their last calls come late": Small(
        DEADLY | {"late": True}, {Step.RECLAIM}, 120, 0
    ),
    "two workers die, while a task is cancelled": Small(
        DEADLY | {"cancels": 1}, {Step.RECLAIM, Step.CANCEL}, 109, 0
    ),
    "two workers die, contributing": Small(
        DEADLY | {"how": "commit"}, {Step.COMMIT, Step.SETTLE, Step.RECLAIM}, 69, 0
    ),
    "two workers die, with pieces": Small(
        DEADLY | {"how": "pieces", "ordered": True}, PIECES | {Step.RECLAIM}, 359, 0
    ),
    "a living worker is evicted": Small({"tasks": 1, "suspicions": 1}, TAKEN_BACK, 13, 46),
    "evicted, and the payload's extent is used anew": Small(
        {"tasks": 2, "room": 1, "suspicions": 1, "stays": {1: 1}}, TAKEN_BACK, 50, 0
    ),
    "one is evicted, one dies": Small(
        {"tasks": 1, "rows": 3, "suspicions": 1, "crashes": 1, "late": True}, TAKEN_BACK, 42, 0
    ),
    "results in extents": Small({"tasks": 2, "how": "extent"}, set(), 78, 0),
    "results in extents, a worker dies": Small(
        {"tasks": 1, "how": "extent", "rows": 3, "crashes": 1, "late": True}, {Step.RECLAIM}, 4, 18
    ),
    "results in extents, one is evicted": Small(
        {"tasks": 1, "how": "extent", "suspicions": 1}, TAKEN_BACK, 22, 0
    ),
    "pieces": Small({"tasks": 2, "how": "pieces", "ordered": True}, PIECES, 18, 0),
    "pieces, a worker dies": Small(
        {"tasks": 1, "how": "pieces", "ordered": True, "rows": 3, "crashes": 1, "late": True},
        PIECES | {Step.RECLAIM},
        8,
        20,
    ),
    "pieces, one is evicted": Small(
        {"tasks": 1, "how": "pieces", "ordered": True, "suspicions": 1}, PIECES | TAKEN_BACK, 57, 0
    ),
    "three pieces each": Small(
        {"tasks": 2, "how": "pieces", "ordered": True, "count": 3}, PIECES, 90, 0
    ),
    "three pieces, a worker dies": Small(
        {
            "tasks": 1,
            "how": "pieces",
            "ordered": True,
            "count": 3,
            "rows": 3,
            "crashes": 1,
            "late": True,
        },
        PIECES | {Step.RECLAIM},
        28,
        0,
    ),
    "three pieces, one is evicted": Small(
        {"tasks": 1, "how": "pieces", "ordered": True, "count": 3, "suspicions": 1},
        PIECES | TAKEN_BACK,
        260,
        0,
    ),
    "contributions": Small({"tasks": 2, "how": "commit"}, {Step.COMMIT}, 41, 0),
    "contributions, a worker dies": Small(
        {"tasks": 1, "how": "commit", "rows": 3, "crashes": 1, "late": True},
        {Step.COMMIT, Step.SETTLE, Step.RECLAIM},
        3,
        15,
    ),
    "contributions, one is evicted": Small(
        {"tasks": 1, "how": "commit", "suspicions": 1}, TAKEN_BACK | {Step.COMMIT}, 17, 60
    ),
    "two submitters": Small(SECOND, set(), 32, 40),
    "two submitters, what was seen of the queue is old": Small(
        SECOND | {"limit": 1, "remembers": True}, set(), 352, 325
    ),
    "two submitters, one row": Small(SECOND | {"rows": 1}, set(), 19, 38),
    "two submitters, words that are read one by one": Small(SECOND | {"torn": True}, set(), 492, 0),
    "two submitters, nobody looks behind the head": Small(
        SECOND | {"second": 2, "rows": 3, "sweeps": None}, set(), 45, 88
    ),
    "two submitters, three tasks": Small(SECOND | {"tasks": 2, "room": 1}, set(), 551, 0),
    "two submitters, one dies, its last calls come late": Small(
        SECOND | {"rows": 3, "crashes": 1, "mortal": {"second"}, "late": True},
        {Step.ABANDON},
        97,
        119,
    ),
    "two submitters, one is taken for dead": Small(
        SECOND | {"hasty": 1}, {Step.ABANDON, Step.LET_GO}, 46, 63
    ),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, method) for name in SMALL for method in METHODS if getattr(SMALL[name], method)],
)
def test_every_interleaving(name: str, method: str) -> None:
    options, steps, *_ = SMALL[name]
    small = case(method, eager=True, **options)
    report = small.run()
    assert isinstance(small.watch, Rules)
    assert small.watch.steps == ORDINARY | steps
    assert report.states >= 1000 * getattr(SMALL[name], method), report
    assert bool(report.crashed) == bool(small.crashes), report


@pytest.mark.parametrize(
    ("method", "how"),
    [("pointer", "extent"), ("pointer", "commit"), ("pointer", "pieces"), ("counter", "inline")],
)
def test_workers_are_alike(method: str, how: str) -> None:
    """So it is enough that the first of them may die, which is what a case does by default."""
    options = {"tasks": 1, "how": how, "rows": 3, "crashes": 1, "late": True, "eager": True}
    first, second = (case(method, mortal={f"worker {i}"}, **options).run() for i in (1, 2))
    assert first == second
    assert first.crashed


@pytest.mark.parametrize("method", METHODS)
def test_every_ticket_is_given_once(method: str) -> None:
    explore_tickets(method)


# --- random schedules ---------------------------------------------------------------------------

SEEDS = 25
_WORKERS = {f"worker {member}" for member in range(1, 5)}  # any of which may die
_COMMON = {"workers": 4, "limit": 4, "batch": 4, "eager": True, "mortal": _WORKERS}
_DEADLY = {"rows": 8, "crashes": 3, "late": True}

LARGE: dict[str, dict[str, Any]] = {
    "workers die": _DEADLY | {"tasks": 30},
    "everything": _DEADLY
    | {"tasks": 30, "crashes": 2, "suspicions": 6, "cancels": 4, "sweeps": 5, "torn": True},
    "few rows": {"tasks": 30, "rows": 3, "suspicions": 8, "room": 5},
    "nobody looks behind the head": {"tasks": 30, "rows": 8, "remembers": True, "sweeps": None},
    "one worker": {"tasks": 30, "rows": 8, "workers": 1, "remembers": True, "torn": True},
    "results in extents": _DEADLY | {"tasks": 20, "how": "extent", "room": 5, "suspicions": 6},
    "pieces": _DEADLY | {"tasks": 8, "how": "pieces", "suspicions": 4},
    "contributions": _DEADLY | {"tasks": 20, "how": "commit", "suspicions": 6},
    "two submitters": {"tasks": 15, "second": 15, "rows": 4, "suspicions": 3},
    "two submitters, one dies": _DEADLY
    | {
        "tasks": 15,
        "second": 15,
        "rows": 24,  # nobody collects what a dead submitter has published
        "mortal": {"second", "worker 1", "worker 2", "worker 3"},
    },
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", LARGE)
def test_random_schedules(name: str, method: str) -> None:
    large = case(method, **{**_COMMON, **LARGE[name]})
    reports = [walk(large, seed) for seed in range(SEEDS)]
    assert sum(report.transitions for report in reports) > 200 * SEEDS
    dead = sum(report.crashed for report in reports)
    assert dead >= bool(large.crashes) * SEEDS / 4, f"only {dead} deaths"


# --- what the protocol does not promise ---------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_dead_workers_take_rows_with_them(method: str) -> None:
    """A row whose owner is dead is not used again: a table needs two rows more for each death."""
    with pytest.raises(Found, match="no way leads to an end"):
        case(method, 1, rows=1, crashes=1, eager=True).run()
    with pytest.raises(Found, match="no way leads to an end"):
        case("pointer", 2, rows=2, crashes=1, eager=True).run()
