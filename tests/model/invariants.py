"""What holds between the members, in every state and at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from workpool import layout
from workpool.extents import LINE_NBYTES
from workpool.protocol import State, describe
from workpool.testing import Memory

from .places import cell, submitter_of
from .rules import task_in
from .submitter import Submitter
from .worker import Worker


def _of(kind: type, processes: dict[str, Any]) -> Iterator[Any]:
    return (process for process in processes.values() if isinstance(process, kind))


def check(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
    """What holds in every state: nothing twice, and no two extents in one place."""
    workers, submitters = list(_of(Worker, processes)), list(_of(Submitter, processes))
    tickets = sorted(ticket for worker in workers for ticket, _ in worker.ran)
    assert len(tickets) == len(set(tickets)), f"an attempt ran twice: {tickets}"
    collected = sorted(task for s in submitters for task, _, _ in s.collected)
    assert len(collected) == len(set(collected)), f"committed twice: {collected}"
    cancelled = [entry for s in submitters for entry in s.cancelled]
    assert {task for task, _ in cancelled}.isdisjoint(collected), "a cancelled task has an outcome"
    assert {ticket for _, ticket in cancelled}.isdisjoint(tickets), "a cancelled attempt ran"
    extents = sorted(extent for p in (*workers, *submitters) for extent in p.extents)
    for one, other in pairwise(extents):
        assert sum(one) <= other.offset, f"{one} and {other} overlap"
    shape = submitters[0].shape
    for task in submitters[0].given if submitters[0].how == "commit" else ():
        assert memory.word(cell(shape, task)) <= 1, f"task {task} contributed twice"


def check_end(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
    """What holds when nobody has anything left to do: nothing lost, every row accounted for."""
    dead = {process.member for name, process in processes.items() if not alive[name]}
    for process in processes.values():
        if process.member in dead:
            continue
        kept = sum(LINE_NBYTES for _ in process.extents)
        full = process.region.nbytes
        assert process.region.free_nbytes == full - kept, "an extent is lost"
        assert len(process.extents) == isinstance(process, Submitter), "an extent is left"
        if isinstance(process, Submitter):
            ended = sorted(task for task, *_ in (*process.cancelled, *process.collected))
            assert ended == sorted(process.given), f"of {process.given} only {ended} have ended"
            shape = process.shape
            for task in process.given if process.how == "commit" else ():
                if task not in process.settled:
                    assert memory.word(cell(shape, task)) == 1, f"task {task} was not counted"
    held = {row.number for s in _of(Submitter, processes) for row in s.publisher._held}
    for number in range(shape.rows):
        word = memory.word(shape.word(number))
        state = layout.state_of(word)
        if state == State.RESERVED and number in held:
            continue  # for what its submitter would publish next
        if state == State.FREE or submitter_of(task_in(shape, memory, number)) in dead:
            continue  # nobody collects for a dead submitter yet
        left = state in (State.EVICTED, State.RESERVED) and layout.owner_of(word) in dead
        assert left, f"row {number} is left {describe(word)}"
