"""Search path, directory and variables of the program, which the ranks of its job get as well.

``multiprocessing`` gives its processes the program's search path, its working directory and the key
of its managers, and they inherit the variables of its environment.  A rank was started beside the
program, before that has changed any of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from .streams import say

#: Search path, key, variables (None: deleted), working directory (None: as it was).
Inherited = tuple[list[str], bytes | None, dict[str, str | None], str | None]


class Environment:
    """What a program has changed of its environment since this was made.

    What it has changed once counts for good: others may have been told of it, and if it is as it
    was at first they must be told again.
    """

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._changed: set[str] = set()
        self._place = here()
        self._moved = False

    def variables(self) -> dict[str, str | None]:
        """Return the values of the variables that were changed; None for one that is deleted."""
        now = dict(os.environ)
        names = now.keys() | self._variables.keys()
        self._changed |= {name for name in names if now.get(name) != self._variables.get(name)}
        return {name: now.get(name) for name in tuple(self._changed)}

    def place(self) -> str | None:
        """Return the working directory if it was changed."""
        now = here()
        self._moved |= now != self._place
        return now if now and self._moved else None


def here() -> str:
    """Return the working directory; nothing if it is gone."""
    with suppress(FileNotFoundError):
        return os.getcwd()
    return ""


def of_us(environment: Environment | None) -> Inherited:
    """Return what this process would have others inherit.

    Parameters
    ----------
    environment : Environment or None
        None: the others have our environment, or their own.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    key = None
    if "multiprocessing.process" in sys.modules:  # 2 ms, which most programs can do without
        from multiprocessing import process

        key = bytes(process.current_process().authkey)
    if environment is None:
        return path, key, {}, None
    return path, key, environment.variables(), environment.place()


def adopt(inherited: Inherited) -> None:
    """Have it in this process; where the directory is not, say so and stay."""
    path, key, variables, place = inherited
    _add_to_path(path)
    if key is not None:
        from multiprocessing import process

        process.current_process().authkey = key
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if place is not None and place != here():
        try:
            os.chdir(place)
        except OSError as error:  # of another host, perhaps
            where = os.uname().nodename
            say(f"{where} has not the script's working directory: {error}; tasks run in {here()!r}")


def _add_to_path(path: Sequence[str]) -> None:
    """Add those entries of the path that ours lacks, each before the one that follows."""
    at = len(sys.path)
    for entry in reversed(path):
        if entry in sys.path:
            at = sys.path.index(entry)
        else:
            sys.path.insert(at, entry)
