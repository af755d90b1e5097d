"""What an object is to whoever gets it: the bytes that plain pickle makes of it.

Functions and classes of the script, which pickle only names, are there by their ids and told apart:
what they are is to be looked at as well.
"""

from __future__ import annotations

import copyreg
from array import array
from io import BytesIO
from pickle import PickleBuffer, Pickler, PicklingError
from types import FunctionType
from typing import Any, Final, ForwardRef, NamedTuple, TypeAlias

from ..caches import once_for_each_class
from ..interrupts import interrupts
from ..lazy import np
from .atoms import is_unchanging
from .byname import PROTOCOL, is_importable, named, names_by_value
from .drawing import generator_reducers
from .instances import HEAP_TYPE, is_its_members, is_pickled_whole, slots

MOST_NBYTES: Final = 1 << 20
"""Bytes of states that are looked at: that takes less than half the time of sending them."""

LENT_NBYTES: Final = 1 << 12
"""An array of so many bytes is compared where it is: of smaller ones a copy takes less."""

State: TypeAlias = tuple[Any, ...]
"""Equal for equal objects; the last of it are bytes."""

_WHOLE: Final = frozenset({"array", "builtins", "collections", "numpy", "pandas", "random"})
"""Packages whose objects are pickled by methods of their own, and yet with all there is to them."""


@once_for_each_class
def _is_whole(kind: Any) -> bool:
    """Tell whether a class is a metaclass, or of one of these packages."""
    if issubclass(kind, BaseException):
        return False
    return issubclass(kind, type) or kind.__module__.partition(".")[0] in _WHOLE


class TooLarge(Exception):
    """There are more bytes than may be."""


class Bounded(BytesIO):
    """A file that holds no more than may be."""

    def __init__(self, most_nbytes: int) -> None:
        super().__init__()
        self.left = most_nbytes

    def write(self, data: Any, /) -> int:
        self.left -= memoryview(data).nbytes  # an array writes its buffer
        if self.left < 0:
            raise TooLarge
        return super().write(data)


class _WholePickler(Pickler):
    """Fails at an object that may have more than its pickle has; writes what pickle does."""

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        if _is_whole(kind) or is_pickled_whole(kind) or is_unchanging(obj):
            return NotImplemented
        if named(obj):  # a function, in C perhaps, that restores something
            return NotImplemented
        raise PicklingError(f"{kind} may keep more")


class _Collector(Pickler):
    """Writes the ids of functions and classes that do not go by name, and collects them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.definitions: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        made = kind is FunctionType or (issubclass(kind, type) and obj.__flags__ & HEAP_TYPE)
        if not made or is_importable(obj):
            return NotImplemented
        self.definitions.append(obj)
        return id, (id(obj),)


class _WholeCollector(_Collector, _WholePickler):
    """The same, and writes all that there is to an object, or fails."""

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        reduced = _Collector.reducer_override(self, obj)
        if reduced is not NotImplemented:
            return reduced
        if is_its_members(kind):
            return id, (kind,), (slots(obj), obj.__dict__ if kind.__dictoffset__ else None)
        return _WholePickler.reducer_override(self, obj)


_WAYS: Final = ((Pickler, Pickler), (_Collector, _Collector))
_WAYS_WHOLE: Final = ((_WholePickler, Pickler), (_WholeCollector, _WholeCollector))
"""What pickles an object first, and what writes the same when it is looked at again."""


class Known(NamedTuple):
    """How an object is known: `has_state` says whether it is still the same."""

    state: State
    pickler: type[Pickler]
    definitions: list[Any]
    """What the state has the ids of."""
    met: list[object]
    """What the object consists of."""


def known(value: Any, most_nbytes: int, whole: bool) -> Known | None:
    """Return how to know an object; None if pickle refuses it, or makes more bytes of it.

    And, if it is to be known as a `whole`, if there may be more to it than its state: what is left
    out of a pickle, as a cache is or the traceback of an exception.  Whoever gets the pickle does
    not see that, but whoever uses the object again does.

    Notes
    -----
    Cost: that of `has_state`; if it is to be whole, 1 us more for each object that is none of
    Python's own.
    """
    if (said := _said_of(value)) is not None:
        fits = said[0] <= most_nbytes
        return Known((*said, value.tobytes()), Pickler, [], []) if fits else None
    for search, again in _WAYS_WHOLE if whole else _WAYS:
        try:
            pickler, state = _pickled(value, search, most_nbytes)
        except interrupts():
            raise
        except TooLarge:
            return None
        except BaseException:  # __reduce__ may raise anything, SystemExit included
            continue
        if not names_by_value(state[-1]):  # as one names itself that the script has once
            definitions = pickler.definitions if isinstance(pickler, _Collector) else []
            met = [it for _, it in pickler.memo.copy().values()]
            return Known(state, again, definitions, met)
    return None


def has_state(value: Any, state: State, pickler: type[Pickler]) -> bool:
    """Tell whether an object still has a state; not if pickle refuses it now.

    Notes
    -----
    Cost: 0.6 us for an array, and 0.03 us for each KiB; 3 us and more for anything else, and 0.1 us
    for each KiB; with definitions in it 5 us and more, and 0.5 us for each object.
    """
    if (said := _said_of(value)) is not None:
        return said == state[:-1] and _holds(value, state[-1])
    try:
        return _pickled(value, pickler, MOST_NBYTES)[1] == state
    except interrupts():
        raise
    except BaseException:
        return False


def _pickled(value: object, kind: type[Pickler], most_nbytes: int) -> tuple[Pickler, State]:
    file = Bounded(most_nbytes)
    buffers: list[PickleBuffer] = []  # out of band: else they would be copied before they count
    pickler = kind(file, PROTOCOL, buffer_callback=buffers.append)
    reducers = {**generator_reducers(), ForwardRef: _reduce_forward_ref}
    pickler.dispatch_table = {**copyreg.dispatch_table, **reducers}
    pickler.dump(value)
    views = [*map(PickleBuffer.raw, buffers)]
    if sum(view.nbytes for view in views) > file.left:
        raise TooLarge
    return pickler, (b"".join(views), file.getvalue())


def _reduce_forward_ref(ref: ForwardRef) -> tuple[Any, ...]:
    return str, (ref.__forward_arg__,)  # what it has found of that follows


def _said_of(value: Any) -> tuple[Any, ...] | None:
    """Return what is said of an array beside its elements, first their bytes; None of all else.

    And of arrays whose dtype does not say all of these, or names fields: names can be changed.
    """
    kind: Any = type(value)
    if kind is array:
        return len(value) * value.itemsize, value.typecode
    if kind.__module__ != "numpy" or kind is not np.ndarray:
        return None
    dtype = value.dtype
    if dtype.names is not None or dtype.hasobject:
        return None
    return value.nbytes, value.flags.num, value.shape, dtype


def _holds(value: Any, content: bytes) -> bool:
    """Tell whether these are the bytes of an array, which has as many."""
    if len(content) >= LENT_NBYTES:
        try:
            return content.startswith(value)
        except Exception:  # not in the order of C, or of a dtype that lends no memory
            pass
    return bool(value.tobytes() == content)
