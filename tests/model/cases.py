"""A case: one submitter, some workers, perhaps a second submitter, in a table of a few rows."""

from __future__ import annotations

from typing import Any

from workpool import layout
from workpool.testing import Explorer

from .invariants import check, check_end
from .labels import Labels
from .places import MOST_TASKS, death_word, geometry
from .rules import Rules
from .submitter import Submitter
from .worker import Worker

METHODS = ("pointer", "counter")
SECOND: dict[str, Any] = {"tasks": 1, "second": 1, "workers": 1}  # a case of two submitters


def case(
    method: str,
    tasks: int,
    *,
    rows: int = 2,
    workers: int = 2,
    second: int = 0,
    how: str = "inline",
    count: int = 1,
    limit: int = 2,
    batch: int = 2,
    room: int = MOST_TASKS,
    sweeps: int | None = 0,
    stays: dict[int, int] | None = None,
    torn: bool = False,
    crashes: int = 0,
    mortal: set[str] | None = None,
    eager: bool = False,
    late: bool = False,
    ordered: bool = False,
    blind: bool = False,
    remembers: bool = False,
    **submitter: Any,
) -> Explorer:
    """Make a case of one submitter, some workers, and a second submitter of `second` tasks.

    Of the submitters only the second one may be mortal, if `mortal` says so.  By default as many
    workers are as there may be crashes: workers are alike, so it does not matter which.
    """
    members = 1 + workers + bool(second)
    shape = geometry(rows, members)
    words = range(layout.HEAD, shape.word(rows)) if torn else range(0)
    other = (members - 1,) if second else ()
    processes: dict[str, Any] = {}
    processes["submitter"] = Submitter(
        shape,
        list(range(tasks)),
        batch=batch,
        room=room,
        how=how,
        count=count,
        watches=tuple(range(1, members)) if crashes else (),
        awaits=other,
        torn=words,
        **submitter,
    )
    for member in range(1, workers + 1):
        processes[f"worker {member}"] = Worker(
            shape,
            member,
            method,
            limit=limit,
            how=how,
            count=count,
            sweeps=sweeps,
            stays=(stays or {}).get(member),
            torn=words,
            remembers=remembers,
            alone=workers == 1 and not second,
        )
    if second:
        given = [(members - 1) * MOST_TASKS + i for i in range(second)]
        processes["second"] = Submitter(
            shape,
            given,
            member=members - 1,
            batch=batch,
            room=room,
            how=how,
            watches=tuple(range(1, workers + 1)) if crashes else (),
            closes=False,
            torn=words,
        )
    if mortal is None:
        mortal = {f"worker {member}" for member in range(1, 1 + crashes)}
    return Explorer(
        processes,
        shape.nbytes + 8 * (members + tasks),
        check,
        check_end,
        watch=Rules(blind),
        crashes=crashes,
        mortal=frozenset(mortal),
        death_words={name: death_word(shape, p.member) for name, p in processes.items()},
        eager=eager,
        late=late,
        ordered=ordered,
        label=Labels(shape),
    )
