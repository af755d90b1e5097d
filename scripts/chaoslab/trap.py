"""Kills the first process that imports this once it is set: a worker that restores a function."""

import os
import signal
import tempfile
from pathlib import Path

SET = Path(tempfile.gettempdir(), "trap")


def passed(number: int) -> int:
    """Return the number."""
    return number


try:
    SET.unlink()
except FileNotFoundError:
    pass
else:
    os.kill(os.getpid(), signal.SIGKILL)
