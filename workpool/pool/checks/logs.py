"""A warning for programs whose tasks log what the workers pass over.

A script that has set up logging finds it so in the processes of a pool that forks, or imports the
script on each worker.  Here the workers have Python's own settings: warnings and errors are shown.
"""

from __future__ import annotations

import logging
from types import FunctionType

from ...serializer import reads, task_name
from .warned import warn

_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def look(function: FunctionType) -> None:
    """Warn if a function logs what the driver shows."""
    said = [level for name, level in _LEVELS.items() if name in function.__code__.co_names]
    for name, value in reads(function) if said else ():
        logger = logging.getLogger() if value is logging else value
        if not isinstance(logger, logging.Logger) or not logger.hasHandlers():
            continue
        if any(map(logger.isEnabledFor, said)):
            warn(
                f"{task_name(function)} logs by {name!r}, and what the script has set up for that "
                "is not set up on the workers, which show warnings and errors alone: do it in the "
                "pool's initializer as well"
            )
            return
