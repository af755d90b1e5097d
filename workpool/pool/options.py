"""Options of a pool, from its arguments, the environment or by default; and those of its tasks."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from ..context import Limits
from ..errors import UsageError
from ..job import runtime
from ..job.control import Choice
from ..members.leases import LEAST_LEASE_S
from ..repository import TAKERS
from ..tasks import Retry

if TYPE_CHECKING:
    from ..rma.group import Group

N = TypeVar("N", int, float)
D = TypeVar("D", int, float, None)


class Changes(TypedDict, total=False):
    """What a type checker and an editor know of the options of ``View.with_options``."""

    timeout_s: float | None
    retries: int
    retry_delay_s: float
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    isolate: bool
    memory_limit_nbytes: float | None  # a whole number, perhaps given as 2e9
    max_tasks_per_child: int | None


class TaskOptions(NamedTuple):
    """How tasks are run, and what becomes of those that fail; see ``WorkPool.with_options``."""

    timeout_s: float | None = None
    retries: int = 0
    retry_delay_s: float = 0.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    isolate: bool = False
    memory_limit_nbytes: int | None = None
    max_tasks_per_child: int | None = None

    def changed(self, **options: Any) -> TaskOptions:
        """Return the same options but for these; raises what ``View.with_options`` raises."""
        for name in options:
            if name not in self._fields:
                raise TypeError(
                    f"no option {name!r} of tasks: there are {', '.join(self._fields)}; those of a "
                    "pool are given to WorkPool"
                )
        return self._replace(**options)._checked()

    def _checked(self) -> TaskOptions:
        """Return them, each number as such: it may be given as 2e9, or as an array without axes."""
        numbers: dict[str, Any] = {"retries": checked("retries", self.retries, int)}
        limits: tuple[tuple[str, int, Any], ...] = (
            ("timeout_s", 0, float),
            ("memory_limit_nbytes", 1, int),
            ("max_tasks_per_child", 1, int),
        )
        for name, least, kind in limits:
            value = getattr(self, name)
            if value is None:
                continue
            numbers[name] = checked(name, value, kind)
            if not numbers[name] >= least:
                raise UsageError(f"{name}={value!r}: a limit is at least {least}")
        if self.isolate not in (True, False):
            raise UsageError(f"isolate={self.isolate!r}: give True or False")
        numbers["retry_delay_s"] = checked("retry_delay_s", self.retry_delay_s, float)
        if numbers["retries"] < 0 or not 0 <= numbers["retry_delay_s"] < math.inf:
            given = f"retries={self.retries}, retry_delay_s={self.retry_delay_s}"
            raise UsageError(f"{given}: neither may be negative, and the delay must be finite")
        for failure in self._retry_on:
            if not (isinstance(failure, type) and issubclass(failure, BaseException)):
                raise UsageError(
                    f"retry_on={self.retry_on!r}: an exception type or a tuple of them"
                )
        return self._replace(**numbers)

    @property
    def _retry_on(self) -> tuple[Any, ...]:
        return self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)

    @property
    def limits(self) -> Limits | None:
        """What a child process that runs the tasks is held to; None if they run in the rank."""
        limits = Limits(self.timeout_s, self.memory_limit_nbytes, self.max_tasks_per_child)
        return limits if self.isolate or limits != Limits() else None

    @property
    def retry(self) -> Retry | None:
        """Whether tasks are tried again."""
        if not self.retries:
            return None
        return Retry(self.retries, self.retry_delay_s, self._retry_on)


def unknown(name: str, options: Iterable[str]) -> TypeError:
    """Return the error of a pool that is given an option which is none of its own."""
    if name in TaskOptions._fields:
        return TypeError(
            f"{name} is an option of tasks, not of a pool: use pool.with_options({name}=...), "
            "a view of the pool whose tasks have it"
        )
    pools = ", ".join(("max_workers", "initializer", "initargs", *options))
    return TypeError(
        f"no option {name!r} of a pool: there are {pools}; those of tasks "
        f"({', '.join(TaskOptions._fields)}) are given to pool.with_options"
    )


#: Bytes of the arena, unless said otherwise and where there is room.  On one host its pages are
#: taken as they are first used, and stay; for several, MPI may pin all of them at once.
ARENA_NBYTES = 256 << 20
LARGE_ARENA_NBYTES = 1 << 30  # on one host with so much shared memory that this is an eighth of it
LEAST_ARENA_NBYTES = 1 << 20
ROWS = 1024

#: How long a worker's heart may stand still, unless said otherwise.
LEASE_S = 10.0


def choose(job: runtime.Runtime, max_workers: int | None, **given: Any) -> Choice:
    """Return the table that options and environment ask for.

    Raises
    ------
    UsageError
        If there is no such table.  It names the option, or the variable of the environment.
    """
    try:
        choice = _choice(job, max_workers, **given)
        choice.geometry()
    except UsageError as error:
        name, _, why = str(error).partition("=")
        if name not in given or given[name] is not None or not _text(name):
            raise
        raise UsageError(f"{_variable(name)}={why}") from None
    return choice


def _choice(
    job: runtime.Runtime,
    max_workers: int | None,
    claim: str | None,
    rows: int | None,
    arena_nbytes: int | None,
    repository: int | None,
    lease_s: float | None,
) -> Choice:
    workers = job.workers
    if max_workers is not None:
        workers = min(workers, checked("max_workers", max_workers, int))
    claim = claim or _text("claim") or "pointer"
    if claim not in tuple(TAKERS):
        raise UsageError(f"claim={claim!r}: use {' or '.join(map(repr, TAKERS))}")
    rows = _number("rows", rows, ROWS, int)
    repository = _number("repository", repository, job.group.outer(0), int)
    if not 0 <= repository < job.group.size:
        raise UsageError(f"repository={repository}: this job has ranks 0 to {job.group.size - 1}")
    repository = job.group.inner(repository)
    if job.survive and job.liveness is not None and not job.liveness.near(repository):
        raise UsageError(
            "repository= must be a rank of the driver's host with --survive: on another its death "
            "would go unnoticed, and the driver wait for it"
        )
    lease_s = _number("lease_s", lease_s, LEASE_S, float)
    if not lease_s >= LEAST_LEASE_S:
        raise UsageError(f"lease_s={lease_s:g}: give at least {LEAST_LEASE_S} (seconds)")
    arena = _number("arena_nbytes", arena_nbytes, None, int)
    asked = Choice(workers, rows, arena or 0, claim, repository, lease_s)
    if arena is not None:
        return asked
    with job.lock:  # no table is opened or closed meanwhile
        opened = job.tables.defaults.get(asked)
        if opened is None or opened not in job.tables:  # else what is free plays no part
            opened = asked._replace(arena_nbytes=usual_arena_nbytes(job.group))
            job.tables.defaults[asked] = opened
        return opened


def usual_arena_nbytes(group: Group) -> int:
    """Return the bytes of an arena where nobody says how many."""
    room = group.room()
    roomy = room is None or room >= 8 * LARGE_ARENA_NBYTES
    shared = group.one_host and group.size > 1
    arena = LARGE_ARENA_NBYTES if shared and roomy else ARENA_NBYTES
    if room is not None:
        arena = min(arena, room // 2)
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:  # a limit on all that a process maps
        arena = min(arena, addresses // 8)
    return max(LEAST_ARENA_NBYTES, arena)


def _number(name: str, given: N | None, default: D, kind: Callable[[Any], N]) -> N | D:
    """Return an option as given, from the environment, or by default."""
    if given is not None:
        return checked(name, given, kind)
    text = _text(name)
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name}={text!r}: give {_needed(kind)}") from None


def _variable(name: str) -> str:
    return f"WORKPOOL_{name.upper()}"


def _text(name: str) -> str | None:
    """Return what the environment says of an option."""
    return os.environ.get(_variable(name))


def checked(name: str, given: N, kind: Callable[[Any], N]) -> N:
    """Return a number as the kind that it must be, which changes none."""
    try:
        number = kind(given)
    except (OverflowError, TypeError, ValueError):  # infinite, or none at all
        number = None
    if number is None or number != given:
        raise UsageError(f"{name}={given!r}: give {_needed(kind)}")
    return number


def _needed(kind: Callable[[Any], N]) -> str:
    return "a whole number" if kind is int else "a number"
