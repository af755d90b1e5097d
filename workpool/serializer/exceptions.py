"""Exceptions that tasks raise, pickled so that they can be restored.

An exception is rebuilt from its type, its ``args`` and its attributes without calling the
``__init__`` of its class, which may want other arguments than ``args``. Pickle's own way comes
second, and first for a class that defines how it is pickled: where that forgets ``args``, they come
as well, for most messages are made of them.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from io import BytesIO
from pickle import Unpickler
from types import FunctionType
from typing import Any

from .byname import PROTOCOL
from .byvalue import ByValuePickler, dumps_by_value
from .classes import set_first, update_class
from .instances import set_attributes, slots
from .wording import said, type_name


def pickle_exception(exc: BaseException) -> tuple[bytes, str]:
    """Return an exception's pickle, or nothing and the reason why it has none."""
    reason = ""
    for pickler in (_ExceptionPickler, ByValuePickler):
        try:
            pickled = dumps_by_value(exc, pickler=pickler)
            copy = _Rehearsal(BytesIO(pickled)).load()
            if isinstance(copy, BaseException):
                return pickled, ""
            reason = f"its pickle restores an object of type {type_name(copy)}"
        except BaseException as error:  # the exception's own methods
            reason = f"it cannot be pickled and restored: {said(error)}"
    return b"", reason


class _ExceptionPickler(ByValuePickler):
    """Pickles exceptions, inside a group too, so that their ``__init__`` is not called again."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild an exception; leave the rest to the class above."""
        if isinstance(obj, BaseException) and _has_builtin_reduce(type(obj)):
            reduced: tuple[Any, ...] = obj.__reduce__()  # type: ignore[assignment]  # never a str
            attributes = reduced[2] if len(reduced) > 2 else {}
            state = {**slots(obj), **attributes}
            return _make_exception, reduced[:2], state or None, None, None, set_attributes
        how = super().reducer_override(obj)
        has_args = isinstance(obj, BaseException) and obj.args
        if not has_args or type(obj) in copyreg.dispatch_table:
            return how
        own: Any = obj.__reduce_ex__(PROTOCOL) if how is NotImplemented else how
        return (_make_with_args, (obj.args, *own[:2]), *own[2:]) if type(own) is tuple else how


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


class _Rehearsal(Unpickler):
    """Restores a pickle where it was made, without writing to the classes that it contains."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what the pickle names; for what fills classes, what does nothing."""
        found = super().find_class(module, name)
        fills = found is update_class or found is set_first
        return (lambda cls, content: None) if fills else found
