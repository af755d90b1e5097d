"""What driver and workers must agree on beyond the table: how tasks are called, in what context.

A descriptor has a task's ``TaskKind``, and names the ``Context`` that it shares with others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from .serializer import as_bytes, join, pack_call, split
from .system.inherited import Inherited


class TaskKind(IntEnum):
    """How a worker calls a task's function."""

    CALL = 0  #: ``function(*args, **kwargs)``
    CHUNK = 1  #: ``[function(*item) for item in args]``
    RANGE = 2  #: a turn in a range of items, which other workers take from as well


# What every task needs, by its own name: an attribute of an enumeration costs as much as a call.
CALL, CHUNK, RANGE = TaskKind

#: Added to a kind in a descriptor: run it in a child process.
ISOLATED = 1 << 4

#: A payload of more bytes lies apart in the arena, by itself, and so does an outcome: to join it
#: with those of the other tasks of its row would take longer than what a row costs.
LARGE_NBYTES = 16 << 10


def encode_setup(
    inherited: Inherited, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
) -> bytes:
    """Return what a process does once before the first task of a pool; arguments as they are now.

    Raises
    ------
    SerializationError
        Names the initializer or the argument that cannot be pickled.
    """
    call = as_bytes(pack_call(initializer, initargs, {}, role="initializer"))
    # Apart from the call, and restored first: that may need the path to import its modules, and the
    # key for proxies among its arguments.
    return join((inherited, call))


class Limits(NamedTuple):
    """What a task may use; the child process that runs it is held to that."""

    timeout_s: float | None = None
    memory_nbytes: int | None = None  #: besides what the child has between two tasks
    tasks_per_child: int | None = None


class Context(NamedTuple):
    """What tasks have in common besides their function."""

    pool_id: int
    limits: Limits | None  #: None: they run in the rank itself
    setup: bytes  #: of the pool; restored only in processes that run its tasks
    others: tuple[int, ...] = ()  #: pools that were open as well, by then, in order

    def encoded(self) -> bytes:
        """Return it as bytes."""
        limits = None if self.limits is None else tuple(self.limits)
        return join((self.pool_id, limits, self.setup, self.others))

    @classmethod
    def decode(cls, content: bytes | bytearray) -> Context:
        """Return what was encoded."""
        pool_id, limits, *more = split(content)
        return cls(pool_id, None if limits is None else Limits(*limits), *more)

    def closed(self, pool_id: int) -> bool:
        """Return whether a pool was over by then: what processes keep for it may go."""
        at = bisect_left(self.others, pool_id)  # each of many is asked about, where there are many
        return pool_id < self.pool_id and self.others[at : at + 1] != (pool_id,)
