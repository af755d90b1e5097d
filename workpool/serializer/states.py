"""What an object is to whoever gets it: the bytes that plain pickle makes of it."""

from __future__ import annotations

from io import BytesIO
from pickle import PickleBuffer, Pickler, PicklingError
from typing import Any, Final, TypeAlias

from ..interrupts import interrupts
from ..lazy import np
from .atoms import is_unchanging
from .byname import PROTOCOL, named
from .instances import is_pickled_whole

MOST_NBYTES: Final = 1 << 20
"""Bytes of states that are looked at: that takes less than half the time of sending them."""

State: TypeAlias = tuple[Any, ...]
"""Equal for equal objects; the last of it are bytes."""

_WHOLE: Final = frozenset({"array", "builtins", "collections", "numpy", "pandas", "random"})
"""Packages whose objects are pickled by methods of their own, and yet with all there is to them."""


class _TooLarge(Exception):
    pass


class _Pickle(BytesIO):
    """A file that holds no more than may be."""

    def __init__(self, most_nbytes: int) -> None:
        super().__init__()
        self.left = most_nbytes
        self.buffers: list[bytes] = []

    def count(self, nbytes: int) -> None:
        self.left -= nbytes
        if self.left < 0:
            raise _TooLarge

    def write(self, data: Any) -> int:
        self.count(len(data))
        return super().write(data)

    def keep(self, buffer: PickleBuffer) -> None:
        """Take in a buffer, out of band: in band it would be copied before it is counted."""
        view = buffer.raw()
        self.count(view.nbytes)
        self.buffers.append(bytes(view))


class _Searcher(Pickler):
    """Fails at an object that may have more than its pickle has."""

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        if is_pickled_whole(kind) or is_unchanging(obj) or isinstance(obj, type):
            return NotImplemented
        if named(obj):  # a function, in C perhaps, that restores something
            return NotImplemented
        if kind.__module__.partition(".")[0] in _WHOLE and not isinstance(obj, BaseException):
            return NotImplemented
        raise PicklingError(f"{kind} may keep more")


def state_of(value: Any, most_nbytes: int = MOST_NBYTES, whole: bool = False) -> State | None:
    """Return the state of an object; None if pickle refuses it, or makes more bytes of it.

    Parameters
    ----------
    value : object
    most_nbytes : int
    whole : bool
        Return None as well if there may be more to it than its state: what is left out of a pickle,
        as a cache is or the traceback of an exception.  Whoever gets the pickle does not see that,
        but whoever uses the object again does.

    Notes
    -----
    Cost: 0.4 us for a small array, 3 us and more for anything else, and 0.1 us for each KiB; if it
    is to be whole, 1 us more for each object that is none of Python's own.
    """
    kind: Any = type(value)
    if kind.__module__ == "numpy" and kind is np.ndarray and _is_plain(value.dtype):
        known = value.nbytes <= most_nbytes
        return (value.flags.num, value.shape, value.dtype, value.tobytes()) if known else None
    file = _Pickle(most_nbytes)
    try:
        pickler = _Searcher if whole else Pickler  # which write the same
        pickler(file, PROTOCOL, buffer_callback=file.keep).dump(value)
    except interrupts():
        raise
    except BaseException:  # __reduce__ may raise anything, SystemExit included
        return None
    return *file.buffers, file.getvalue()


def _is_plain(dtype: Any) -> bool:
    """Tell whether a dtype says all of elements; the names of fields can be changed in place."""
    return dtype.names is None and not dtype.hasobject
