"""What a pool warns of: functions that behave otherwise here than in other pools.

    generators    if all tasks would draw the same random numbers
    ranks         if they take the driver's rank for their own
    heavy         if much data is sent with one, again and again
    kept          if they keep something in the script for later ones
    copies        if they change a copy of what a module has
    logs          if they log what only the driver shows
    settings      if they use a module in which the script has set something
    met           the functions that were looked at before
    warned        which line of the program a warning is of

Each function is looked at once, before its first task is submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import copies, kept, logs, ranks
from .generators import GeneratorCheck
from .heavy import HeavyCheck
from .met import Met
from .settings import SettingCheck


class Checks:
    """All of them, for one pool.

    Parameters
    ----------
    is_own_rank : callable
        Tells whether a number is this rank's in a communicator, and no worker's.
    apart : bool
        Whether the workers have run nothing of the program.

    Attributes
    ----------
    heavy : HeavyCheck
    """

    def __init__(self, is_own_rank: Callable[[int, object], bool], apart: bool) -> None:
        self.heavy = HeavyCheck()
        self._generators = GeneratorCheck()
        self._is_own_rank = is_own_rank
        self._settings = SettingCheck()
        self._met = Met()
        self._apart = apart
        self._prepared = False

    def look(self, fn: Callable[..., Any], several: bool = False) -> None:
        """Warn of what a function reads that is not what it is in other pools."""
        self._generators.look(fn, several)
        for function in self._met.new(fn):
            ranks.look(fn, function, self._is_own_rank)
            copies.look(function)
            if not self._prepared:
                kept.look(function)
                if self._apart:
                    logs.look(function)
                    self._settings.look(function)

    def prepared(self, initializer: Callable[..., Any]) -> None:
        """Look at the pool's initializer, which may have made what tasks would make."""
        self._prepared = True
        for function in self._met.new(initializer):
            ranks.look(initializer, function, self._is_own_rank)
            copies.look(function, prepares=True)
