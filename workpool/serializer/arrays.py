"""Arrays of numbers, pickled in about half the time that NumPy takes.

NumPy writes an array as a call of one of its functions with its dtype, which is a call with a state
in turn: two names to be looked up on either side, and 90 bytes.  Here it is a call of a `_Maker`
with the dtype's one-letter code.  A number that one of NumPy's functions returned is a call of the
maker for its dtype.  A pickle holds each maker once, as a call of `maker`, which goes by a number
that :mod:`copyreg` keeps: whoever restores it looks up no name.

What NumPy copies into the pickle, since it is contiguous in no order (a tile of an image, every
second column), is copied here as well, but then goes like the others, which are not copied again.

Everything else of NumPy's (other dtypes, other orders, subclasses) is left to NumPy, and a type
that has a reducer in :mod:`copyreg` to that.

References: PEP 307 (extension registry), PEP 574 (buffers out of band).
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable, Set
from functools import cache, partial
from io import BytesIO
from pickle import PickleBuffer, Pickler
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, cast

from ..lazy import np
from .atoms import ATOMS
from .byname import PROTOCOL, Keep, reduce_method
from .drawing import generator_reducers
from .frames import ALIKE_NBYTES, Encoded, Packed, framed
from .reach import check_torn
from .tensors import reducers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ARRAY: Final = ""
_CODES: Final = "?bBhHiIlLqQefdgFDG"
"""Dtypes of plain numbers; others may hold objects, or be more than their code says."""

_EXTENSION: Final = 0x776F726B
"""One of the numbers that take four bytes, where there are no others."""

_FIRST: Final = 8
"""How many elements of a tuple or list are looked at."""

_MOST: Final = 256
"""Kinds of arrays whose pickle is remembered, each some 60 bytes."""


class _Maker(partial[Any]):
    """Makes arrays of shape, code and buffer, or numbers of one dtype of their bytes."""


_makers: dict[str, _Maker] = {}
"""By the code of the dtype, or `_ARRAY`; empty, as the next two, until NumPy is imported."""

_dtypes: dict[str, Any] = {}
"""By code."""

_reducers: dict[type, Callable[[Any], Any]] = {}
"""By type."""

_kinds: dict[tuple[Any, ...], tuple[Any, bytes]] = {}
"""By what an array or number is and where it stands, what its encoding has before and after the
elements."""


def maker(code: str) -> _Maker:
    """Return the maker for a code."""
    if not _makers:
        _fill(np)
    return _makers[code]


copyreg.add_extension(__name__, maker.__name__, _EXTENSION)


def has_arrays(obj: object) -> bool:
    """Return whether an object, or one of its first elements, is an array or a number of NumPy's.

    Tuples and lists among these are looked into as well: arguments that come with keywords, items
    of a starmap, individuals of a population.

    Notes
    -----
    Cost: 0.05 us without NumPy, else 0.1 to 0.3 us.
    """
    if not _reducers:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        try:
            _fill(numpy)
        except Exception:  # another thread is importing it, or it is something else of that name
            return False
    kind = type(obj)
    if kind is tuple or kind is list:
        for element in obj[:_FIRST]:  # type: ignore[index]
            kind = type(element)
            if kind in _reducers:
                return True
            looked_into = kind is tuple or kind is list
            if looked_into and not _reducers.keys().isdisjoint(map(type, element[:_FIRST])):
                return True
        return False
    return kind in _reducers


def is_flat(obj: object) -> bool:
    """Tell whether an object is a tuple of a few atoms and arrays of numbers, by sight.

    Notes
    -----
    Cost: 0.2 us.
    """
    return type(obj) is tuple and len(obj) <= _FIRST and all(map(_is_leaf, obj))


def _is_leaf(value: Any) -> bool:
    kind = type(value)
    return kind in ATOMS or (kind in _reducers and not value.dtype.hasobject)


def encode_alone(obj: object, value: Any, within_nbytes: int) -> Encoded | None:
    """Encode an array of plain numbers, or a number of NumPy's, or a tuple of just one of these.

    None of anything else.  Often that is what a task gets or returns; `value` is the only element
    of `obj` if that is such a tuple, else `obj`.  What its encoding holds besides the elements
    depends on its kind alone, and is remembered from the last one of that kind.

    Notes
    -----
    Cost: 3 us, 1 us for one of a kind that is known.
    """
    of_type = type(value)
    if of_type not in _reducers or of_type in copyreg.dispatch_table:
        return None
    if of_type is np.ndarray and _is_scattered(value):
        copy = value.copy()
        return encode_alone(copy if value is obj else (copy,), copy, within_nbytes)
    elements: Any
    said: tuple[Any, ...]
    if of_type is not np.ndarray:
        elements, within, readonly, said = value.tobytes(), True, True, (of_type,)
    elif _is_plain(value):
        elements = PickleBuffer(value).raw()
        within = elements.nbytes < within_nbytes
        readonly = elements.readonly  # an array that only warns of writes calls itself writable
        said = value.shape, value.dtype.char
    else:
        return None
    wrapped = value is not obj
    kind = wrapped, within, readonly, *said
    known = _kinds.get(kind)
    if known is None:
        pickled = dumps_by_makers(obj, lambda _: within)
        if of_type is np.ndarray and (value.shape, value.dtype.char) != said:
            return None  # another thread has changed them meanwhile
        if within:
            end = len(pickled) - _after(wrapped, of_type is np.ndarray, readonly)
            known = pickled[: end - len(elements)], pickled[end:]
        else:
            known = framed(pickled, [elements]).segments[0], b""
        if len(_kinds) >= _MOST:
            _kinds.clear()
        _kinds[kind] = known
    before, after = known
    return b"".join((before, elements, after)) if within else Packed([before, elements])


@cache
def _after(wrapped: bool, array: bool, readonly: bool) -> int:
    """Return how many bytes of a pickle follow the elements.

    The same for all dtypes and shapes, as long as they stand in the pickle's frame, below 64 KiB.
    """
    pickles = []
    for byte in (0, 255):
        value: Any = np.array([byte], np.uint8)
        value.flags.writeable = not readonly
        if not array:
            value = value[0]
        pickles.append(dumps_by_makers((value,) if wrapped else value, lambda _: True))
    (at,) = (i for i, pair in enumerate(zip(*pickles, strict=True)) if pair[0] != pair[1])
    return len(pickles[0]) - at - 1


def dumps_by_makers(obj: object, keep: Keep, copied: Set[int] = frozenset()) -> bytes:
    """Pickle as ``pickle.dumps`` does, arrays and NumPy's numbers by makers.

    Raises
    ------
    PicklingError
        There is a method in it that its object does not have under its name.
    Torn
        Something with one of the ids in `copied` is in it.
    """
    with BytesIO() as file:
        pickler = Pickler(file, PROTOCOL, buffer_callback=keep)
        own = {MethodType: reduce_method, **generator_reducers(), **_reducers, **reducers()}
        pickler.dispatch_table = {**own, **copyreg.dispatch_table}
        pickler.dump(obj)
        check_torn(pickler, copied)
        return file.getvalue()


def _fill(numpy: Any) -> None:
    dtypes = {code: numpy.dtype(code) for code in _CODES}
    makers = {_ARRAY: _Maker(numpy.ndarray)}
    reducers: dict[type, Callable[[Any], Any]] = {numpy.ndarray: _array_reducer(makers[_ARRAY])}
    for code, dtype in dtypes.items():
        number, _ = dtype.type().__reduce__()  # a function of NumPy's, of a dtype and bytes
        makers[code] = _Maker(number, dtype)
        reducers[dtype.type] = _number_reducer(makers[code])
    codes = {make: code for code, make in makers.items()}
    reducers[_Maker] = lambda make: (maker, (codes[make],))
    _makers.update(makers)
    _dtypes.update(dtypes)
    _reducers.update(reducers)


def _is_plain(array: NDArray[Any]) -> bool:
    """Return whether shape, code and elements say all of an array."""
    dtype = array.dtype
    # Identity: a dtype of the same code may be of another byte order, or have metadata.
    return _dtypes.get(dtype.char) is dtype and array.flags.c_contiguous


def _is_scattered(array: NDArray[Any]) -> bool:
    """Return whether an array of plain numbers is contiguous in no order of its axes.

    Not of a larger one: of its pickle, many waiting tasks share one copy.
    """
    flags, dtype = array.flags, array.dtype
    if flags.c_contiguous or flags.f_contiguous or array.nbytes >= ALIKE_NBYTES:
        return False
    if _dtypes.get(dtype.char) is not dtype:
        return False
    axes = sorted(range(array.ndim), key=array.strides.__getitem__, reverse=True)
    return not array.transpose(axes).flags.c_contiguous


def _array_reducer(make: _Maker) -> Callable[[NDArray[Any]], Any]:
    def reduce(array: NDArray[Any]) -> Any:
        if _is_scattered(array):
            array = array.copy()
        if _is_plain(array):
            return make, (array.shape, array.dtype.char, PickleBuffer(cast("Any", array)))
        return array.__reduce_ex__(PROTOCOL)

    return reduce


def _number_reducer(make: _Maker) -> Callable[[Any], Any]:
    return lambda number: (make, (number.tobytes(),))
