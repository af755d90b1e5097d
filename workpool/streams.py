"""The standard streams of a process, which somebody may have closed."""

from __future__ import annotations

import os

__all__ = ["open_streams"]


def open_streams() -> None:
    """See that 0, 1 and 2 are open, so that they are standard streams and nothing else."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest: fd
