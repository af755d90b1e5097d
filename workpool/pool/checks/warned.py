"""Warnings that name the line of the program that has called us."""

from __future__ import annotations

import sys
import warnings

_OURS = __name__.partition(".")[0] + "."


def warn(text: str) -> None:
    """Warn, of the innermost line that is not of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
