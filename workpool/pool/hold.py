"""What a program has of a pool; when nothing of it is left, the pool is shut down."""

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
        ``shutdown(wait)`` of the pool, called when nobody has the hold any more: in any thread,
        and wherever the garbage collector may come.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, shutdown: Callable[[bool], object]) -> None:
        # At the program's end all pools are joined.
        weakref.finalize(self, _let_go, shutdown, os.getpid()).atexit = False


def _let_go(shutdown: Callable[[bool], object], process: int) -> None:
    if os.getpid() == process:  # one that was forked has copies of the views, and no pool
        shutdown(False)
