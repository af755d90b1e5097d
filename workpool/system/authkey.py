"""The key with which the program's ``multiprocessing`` managers let somebody in.

A proxy of a queue or a dict leaves it out when it is pickled, for the processes that
``multiprocessing`` starts have it from their parent. Ranks have no such parent.
"""

from __future__ import annotations

import sys


def own() -> bytes | None:
    """Return the key of this process; None if the program does not use ``multiprocessing``."""
    if "multiprocessing.process" not in sys.modules:  # 2 ms, which most programs can do without
        return None
    from multiprocessing import process

    return bytes(process.current_process().authkey)


def adopt(key: bytes) -> None:
    """Make it the key of this process."""
    from multiprocessing import process

    process.current_process().authkey = key
