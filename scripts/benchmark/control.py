"""mpi4py.futures that yields its processor where it would sleep: an honest control.

    mpiexec -n 3 python -m benchmark.control -m module

While it waits for messages, mpi4py.futures calls ``time.sleep``, at first for 0 s and then for a
little longer each time, up to 1 ms.  From Python 3.11 on, even ``time.sleep(0)`` takes some 70 us,
and that is most of what a short task costs.  This is what it could do without: in place of each of
these sleeps ``os.sched_yield()``, and nothing else changed.  A rank that waits keeps a core busy.
"""

from __future__ import annotations

import os
from typing import Any

import mpi4py.futures.__main__ as program
from mpi4py.futures import _core


def pause(_: Any) -> None:
    """Let others run."""
    os.sched_yield()


_core.Backoff.sleep = pause

if __name__ == "__main__":
    program.main()
