"""A program's hold on its pool; when nothing has it any more, the pool is shut down."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


class Hold:
    """The hold of a program on its pool, by its views and by the maps that may submit more items.

    Futures have none: their tasks go on, as after ``shutdown(wait=False)``.

    Parameters
    ----------
    shutdown : callable
        ``shutdown(wait)`` of the pool, called when nobody has the hold any more: in any thread, and
        in the middle of whatever that does, as the garbage collector comes.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, shutdown: Callable[[bool], object]) -> None:
        # Not at the program's end, when the job joins all pools.
        weakref.finalize(self, _let_go, shutdown, os.getpid()).atexit = False


def _let_go(shutdown: Callable[[bool], object], process: int) -> None:
    if os.getpid() == process:  # one that was forked has copies of the views, and no pool
        shutdown(False)
