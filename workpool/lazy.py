"""NumPy as ``np``, imported when something of it is first used.

That import takes longer than everything else that a rank does before its first task, and many
programs have nothing to do with arrays.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["np"]


class _Module:
    """A module that is not imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # found without this method from now on
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Module("numpy")
