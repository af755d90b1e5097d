"""Generic functions of `functools.singledispatch`: made again from their implementations.

Such a function holds weak references, and looks itself up by what it keeps: neither can be pickled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from .names import cells_of

_ANY: Final[Any] = functools.singledispatch(repr)
"""One of them, which has what they have in common."""


def is_generic(function: FunctionType) -> bool:
    """Tell whether a function is what `functools.singledispatch` returns."""
    return function.__code__ is _ANY.__code__


def _make_generic(name: str = "") -> Any:
    """Return a generic function without implementations; they may refer to it."""

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    nothing.__name__ = name
    return functools.singledispatch(nothing)


def _fill_generic(generic: Any, state: tuple[dict[type, Any], dict[str, Any], Any]) -> None:
    implementations, attributes, wrapped = state
    for cls, implementation in implementations.items():
        generic.register(cls, implementation)
    functools.update_wrapper(generic, wrapped)
    vars(generic).update(attributes)


def generic_parts(function: Any) -> tuple[dict[type, Any], dict[str, Any]]:
    """Return the implementations of a generic function, and its attributes."""
    attributes = {name: it for name, it in vars(function).items() if name not in vars(_ANY)}
    return dict(function.registry), attributes


def reduce_generic(function: Any) -> tuple[Any, ...]:
    """Return how to make a generic function again, as ``__reduce__`` does."""
    state = (*generic_parts(function), function.__wrapped__)
    return _make_generic, (function.__name__,), state, None, None, _fill_generic


def dispatched(function: FunctionType) -> dict[type, Any] | None:
    """Return the implementations among which a ``dispatch`` of a generic function chooses.

    A bound method has it from Python 3.13 on.  None for any other function.
    """
    if function.__code__ is not _ANY.dispatch.__code__:
        return None
    return next(value for name, _, value in cells_of(function) if name == "registry")  # type: ignore[return-value]


def make_dispatch(implementations: dict[type, Any]) -> Callable[[type], Any]:
    """Return a ``dispatch`` that chooses among these."""
    generic = _make_generic()
    for cls, implementation in implementations.items():
        generic.register(cls, implementation)
    dispatch: Callable[[type], Any] = generic.dispatch
    return dispatch
