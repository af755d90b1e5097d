"""Ends of pipes of `multiprocessing`, which are refused.

A copy of one has the number of an open file, and in another process that is another file: what is
sent goes there, and the end of the copy closes it.  `multiprocessing` passes the file itself, to
processes of its own; plain pickle is told nothing.
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any, Final, NoReturn

from ..errors import UsageError

_refused: Final[set[type]] = set()
"""Empty until `multiprocessing` has a class for them."""


def refuse_pipes() -> None:
    """Have pickle refuse them from now on.

    Notes
    -----
    Cost: 0.05 us.
    """
    if not _refused and "multiprocessing.connection" in sys.modules:
        kind = getattr(sys.modules["multiprocessing.connection"], "Connection", None)
        if kind is not None:  # else another thread is importing it
            copyreg.pickle(kind, _refuse)
            _refused.add(kind)


def _refuse(connection: Any) -> NoReturn:
    raise UsageError(
        "it is an end of a pipe, which only this process has: take a queue of a "
        "multiprocessing.Manager"
    )
