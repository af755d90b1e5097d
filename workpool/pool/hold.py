"""A program's hold on its pool; when nothing has it any more, the pool is shut down."""

from __future__ import annotations

import os
import weakref
from typing import Any


class Hold:
    """The hold of a program on its pool, by its views and by the maps that may submit more items.

    Futures have none: their tasks go on, as after ``shutdown(wait=False)``.

    Parameters
    ----------
    pool : object
        Its ``shutdown`` is called, so as not to wait, when nobody has the hold any more: in any
        thread, and in the middle of whatever that does, as the garbage collector comes.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, pool: Any) -> None:
        # Not at the program's end, when the job joins all pools.  A weak reference is enough: the
        # job refers to those that are open; others, and what they refer to, shall not be kept.
        weakref.finalize(self, _let_go, weakref.ref(pool), os.getpid()).atexit = False


def _let_go(found: weakref.ref[Any], process: int) -> None:
    pool = found()
    if pool is not None and os.getpid() == process:  # a fork has copies, and no pool
        pool.shutdown(wait=False)
