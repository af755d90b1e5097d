"""Objects without the definitions of the script in them, which the other side has.

Sending a class whole takes a hundred times as long as sending an object of it, and a function that
is passed on takes ten times as long as the rest of a call.  A worker has the classes and functions
that come with its task's `Code`; the process of the script has its own classes, so what comes home
brings none.

What else comes with a code must not be among the arguments again: there would be two of it.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum
from io import BytesIO
from pickle import Pickler
from types import FunctionType, MethodType
from typing import Any, Final, NamedTuple

from .byname import PROTOCOL, Keep, named, reduce_method
from .classes import known_class, refer_to
from .drawing import generator_reducers
from .enumerations import reduce_member
from .names import CACHED
from .reach import Reach, check_torn
from .script import SCRIPT_MODULES
from .tensors import reducers


class Refer(NamedTuple):
    """What the other side has."""

    to: Callable[[Any], tuple[Any, ...] | None]
    """Returns, as ``__reduce__`` does, how it finds a definition; None if it lacks it."""
    copied: Set[int] = frozenset()
    """Ids of what it has that must be one with what is sent."""


class UnknownDefinition(Exception):
    """The other side does not have a class or a function."""

    def __init__(self, definition: Any) -> None:
        super().__init__(definition)
        self.definition = definition


_FUNCTIONS: Final = frozenset({FunctionType, CACHED})
_LOOKED_AT: Final = _FUNCTIONS | {MethodType}

_companions: Sequence[Any] = ()


def come_along(definitions: Sequence[Any]) -> None:
    """Say what has come with the code of the task that runs next, besides its function."""
    global _companions
    _companions = definitions


def companion(index: int) -> Any:
    """Return one of them."""
    return _companions[index]


class _Pickler(Pickler):
    """Puts a reference where a definition of the script is."""

    def __init__(self, file: BytesIO, keep: Keep, refer: Refer) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=keep)
        self._refer = refer.to
        self.dispatch_table = {**generator_reducers(), **reducers(), **copyreg.dispatch_table}

    def reducer_override(self, obj: Any) -> Any:
        """Return how to find a definition or a member of one, NotImplemented for the rest."""
        kind = type(obj)
        if kind not in _LOOKED_AT and not issubclass(kind, type):
            return reduce_member(obj) if issubclass(kind, Enum) else NotImplemented
        if kind is MethodType:
            return reduce_method(obj)
        if obj is known_class or obj is companion:  # in each reference itself
            return NotImplemented
        reference = self._refer(obj)
        if reference is not None:
            return reference
        if named(obj) if kind in _FUNCTIONS else obj.__module__ not in SCRIPT_MODULES:
            return NotImplemented
        raise UnknownDefinition(obj)


def dumps_by_reference(obj: object, keep: Keep, refer: Refer) -> bytes:
    """Pickle an object by plain pickle, but for definitions of the script.

    Raises
    ------
    UnknownDefinition
        There is one in it that the other side has not.
    Torn
        It has something that must be one.
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 5 us, and 0.2 us for each object.
    """
    with BytesIO() as file:
        pickler = _Pickler(file, keep, refer)
        pickler.dump(obj)
        check_torn(pickler, refer.copied)
        return file.getvalue()


CAPACITY: Final = 256
"""Codes that a cache keeps, on either side, unless told otherwise."""

MAX_NBYTES: Final = 1 << 25
"""Bytes of their data that it keeps."""


class Code:
    """A callable's code, as it crosses once to each worker.

    Hold it while a task that needs it is under way. When nothing holds it any more, no later
    lookup gives it either, so a `weakref.finalize` on it is the moment to release its memory.

    Parameters
    ----------
    code_id : int
        From 1 upwards, never used again by the same `CodeCache`.
    data : bytes
        What `CallableCache.add` restores.
    reach : Reach, optional
        What is in it by value.
    classes : iterable of class, optional
        Those of the script among that.
    companions : iterable of function or class, optional
        What its data has besides the callable, in this order.
    searched : bool
        Whether arguments are searched for what must not come anew with them; else only each
        argument itself is looked at, and what goes by value.

    Attributes
    ----------
    refer : Refer
        How arguments refer to it.
    """

    __slots__ = ("__weakref__", "_held", "code_id", "data", "reach", "refer")

    def __init__(
        self,
        code_id: int,
        data: bytes,
        reach: Reach | None = None,
        classes: Iterable[type] = (),
        companions: Iterable[Any] = (),
        searched: bool = False,
    ) -> None:
        self.code_id = code_id
        self.data = data
        self.reach = reach
        self._held = (*companions, *classes)  # so that nothing else gets one of these ids
        references = {id(cls): refer_to(cls) for cls in classes}
        references |= {id(it): (companion, (i,)) for i, it in enumerate(companions)}
        copied = frozenset() if reach is None or not searched else reach.copied
        self.refer = Refer(lambda it: references.get(id(it)), copied)

    def __repr__(self) -> str:
        return f"<Code {self.code_id} nbytes={len(self.data)}>"
