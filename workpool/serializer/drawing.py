"""The generators that `random` and `numpy.random` draw from: each process has its own.

Their methods, which these modules hand out as functions (``from random import gauss``), go by name:
with a copy of the state, all tasks would draw the same.  So does a generator that something else
holds, as a distribution of ``scipy.stats`` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import BuiltinMethodType, MethodType
from typing import Any, Final

_OWN: Final = (("random", "_inst", "Random"), ("numpy.random.mtrand", "_rand", "RandomState"))
"""Modules, with the names that their generators and the classes of these have there."""

RANDOM: Final = b"\x8c\x06Random"
RANDOM_STATE: Final = b"__randomstate_ctor"
"""In every plain pickle that has a generator of these classes."""

_reducers: Final[dict[type, Callable[[Any], Any]]] = {}


def generator_reducers() -> dict[type, Callable[[Any], Any]]:
    """Return what pickles generators, for a ``dispatch_table``.

    Notes
    -----
    Cost: 0.1 us; 0.5 us without NumPy.
    """
    if len(_reducers) < len(_OWN):
        for module, _, name in _OWN:  # as far as they are imported
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None:
                _reducers[kind] = _reduce
    return _reducers


def is_own_generator(obj: object) -> bool:
    """Tell whether an object is what one of these modules draws from, or a method of that."""
    if isinstance(obj, (MethodType, BuiltinMethodType)):
        obj = getattr(obj, "__self__", None)  # functions of Boost.Python claim to be of these
    return _place(obj) is not None


def own_generator(module: str, name: str) -> Any:
    """Return what that module draws from in this process."""
    return getattr(import_module(module), name)


def _place(obj: object) -> tuple[str, str] | None:
    for module, name, _ in _OWN:
        if obj is not None and getattr(sys.modules.get(module), name, None) is obj:
            return module, name
    return None


def _reduce(generator: Any) -> Any:
    place = _place(generator)
    return generator.__reduce__() if place is None else (own_generator, place)
