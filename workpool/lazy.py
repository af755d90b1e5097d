"""Modules that are imported when something of them is first used.

What one rank imports before its first task, all ranks of a job do, and often several on one core.
NumPy takes longer than everything else together, and many programs have nothing to do with arrays;
the others many jobs do without, or can wait for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["dataclasses", "dis", "hashlib", "inspect", "np", "socket", "sqlite3"]


class _Module:
    """A module that is not imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # found without this method from now on
        return value


if TYPE_CHECKING:
    import dataclasses
    import dis
    import hashlib
    import inspect
    import socket
    import sqlite3

    import numpy as np
else:
    dataclasses, dis, hashlib, inspect, np, socket, sqlite3 = map(
        _Module, ("dataclasses", "dis", "hashlib", "inspect", "numpy", "socket", "sqlite3")
    )
