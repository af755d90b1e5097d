"""What an object is to whoever gets it: the bytes that plain pickle makes of it.

Functions and classes of the script, which pickle only names, are there by their ids and told apart:
what they are is to be looked at as well.
"""

from __future__ import annotations

import copyreg
from io import BytesIO
from pickle import PickleBuffer, Pickler, PicklingError
from types import FunctionType
from typing import Any, Final, ForwardRef, NamedTuple, TypeAlias

from ..interrupts import interrupts
from ..lazy import np
from .atoms import is_unchanging
from .byname import PROTOCOL, named, names_by_value
from .drawing import generator_reducers
from .instances import HEAP_TYPE, is_its_members, is_pickled_whole, slots

MOST_NBYTES: Final = 1 << 20
"""Bytes of states that are looked at: that takes less than half the time of sending them."""

State: TypeAlias = tuple[Any, ...]
"""Equal for equal objects; the last of it are bytes."""

_WHOLE: Final = frozenset({"array", "builtins", "collections", "numpy", "pandas", "random"})
"""Packages whose objects are pickled by methods of their own, and yet with all there is to them."""


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
        if is_pickled_whole(kind) or is_unchanging(obj) or isinstance(obj, type):
            return NotImplemented
        if named(obj):  # a function, in C perhaps, that restores something
            return NotImplemented
        if kind.__module__.partition(".")[0] in _WHOLE and not isinstance(obj, BaseException):
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
        if not made or named(obj):
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
    """How an object is known: `state_of` says whether it is still the same."""

    state: State
    pickler: type[Pickler]
    definitions: list[Any]
    """What the state has the ids of."""
    met: list[object]
    """What the object consists of."""


def known(value: object, most_nbytes: int, whole: bool) -> Known | None:
    """Return how to know an object; None if pickle refuses it, or makes more bytes of it.

    And, if it is to be known as a `whole`, if there may be more to it than its state: what is left
    out of a pickle, as a cache is or the traceback of an exception.  Whoever gets the pickle does
    not see that, but whoever uses the object again does.

    Notes
    -----
    Cost: that of `state_of`; if it is to be whole, 1 us more for each object that is none of
    Python's own.
    """
    if _is_plain_array(value):
        state = _array_state(value, most_nbytes)
        return None if state is None else Known(state, Pickler, [], [])
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


def state_of(value: Any, pickler: type[Pickler] = Pickler) -> State | None:
    """Return the state of an object; None if pickle refuses it now, or makes too many bytes of it.

    Notes
    -----
    Cost: 0.4 us for a small array, 3 us and more for anything else, and 0.1 us for each KiB; with
    definitions in it 5 us and more, and 0.5 us for each object.
    """
    if _is_plain_array(value):
        return _array_state(value, MOST_NBYTES)
    try:
        return _pickled(value, pickler, MOST_NBYTES)[1]
    except interrupts():
        raise
    except BaseException:
        return None


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


def _is_plain_array(value: Any) -> bool:
    """Tell whether it is an array whose dtype says all of elements.

    The names of fields can be changed in place.
    """
    kind: Any = type(value)
    if kind.__module__ != "numpy" or kind is not np.ndarray:
        return False
    dtype = value.dtype
    return dtype.names is None and not dtype.hasobject


def _array_state(array: Any, most_nbytes: int) -> State | None:
    if array.nbytes > most_nbytes:
        return None
    return array.flags.num, array.shape, array.dtype, array.tobytes()
