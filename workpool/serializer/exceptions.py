"""Exceptions that tasks raise: built again without calling the ``__init__`` of their class.

That may want other arguments than ``args``; so an exception is made of its type, its ``args`` and
its attributes.  Pickle's own way comes second, and first for a class that defines how it is
pickled: where that forgets ``args``, they come as well, for most messages are made of them.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from io import BytesIO
from pickle import Pickler
from types import FunctionType
from typing import Any

from .byname import PROTOCOL
from .instances import set_attributes, slots


def reduce_exception(exc: BaseException, otherwise: Callable[[Any], Any]) -> Any:
    """Return how to rebuild an exception; `otherwise` says it of one whose class says how."""
    if _has_builtin_reduce(type(exc)):
        reduced: tuple[Any, ...] = exc.__reduce__()  # type: ignore[assignment]  # never a str
        attributes = reduced[2] if len(reduced) > 2 else {}
        state = {**slots(exc), **attributes}
        return _make_exception, reduced[:2], state or None, None, None, set_attributes
    how = otherwise(exc)
    if not exc.args or type(exc) in copyreg.dispatch_table:
        return how
    own: Any = exc.__reduce_ex__(PROTOCOL) if how is NotImplemented else how
    return (_make_with_args, (exc.args, *own[:2]), *own[2:]) if type(own) is tuple else how


class _Pickler(Pickler):
    """Plain pickle, but for exceptions, those inside a group too."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException):
            return reduce_exception(obj, lambda _: NotImplemented)
        return NotImplemented


def dumps_exception(exc: BaseException) -> bytes:
    """Pickle an exception by the names of what is in it.

    Raises
    ------
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 5 us.
    """
    with BytesIO() as file:
        _Pickler(file, PROTOCOL).dump(exc)
        return file.getvalue()


def _has_builtin_reduce(cls: type[BaseException]) -> bool:
    """Tell whether a class leaves its pickling to a builtin exception class."""
    reduce = getattr(cls.__reduce__, "__objclass__", None)
    return (
        reduce is not None
        and reduce.__module__ == "builtins"
        and cls.__reduce_ex__ is object.__reduce_ex__
        and getattr(cls, "__setstate__", None) is BaseException.__setstate__
        and cls not in copyreg.dispatch_table
    )


def _make_exception(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception through the constructors written in C only: they keep state in C."""
    exc = cls.__new__(cls, *args)
    for base in cls.__mro__:
        init: Callable[..., None] | None = base.__dict__.get("__init__")
        if init is not None and not isinstance(init, FunctionType):
            init(exc, *args)
            break
    return exc


def _make_with_args(had: tuple[Any, ...], make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Make an exception as its class says; if that leaves it without its args, give it those."""
    exc = make(*args)
    if isinstance(exc, BaseException) and not exc.args:
        exc.args = had
    return exc
