"""Arrays of numbers, pickled in half of the time that NumPy's own way takes.

NumPy writes an array as a call of one of its functions with its dtype, which is a call with a state
in turn: two names to be looked up on either side, and 90 bytes.  Here it is a call of `restored`
with the dtype's one-letter code.  `restored` goes by a number that :mod:`copyreg` keeps, so nobody
looks up its name.  The single numbers that NumPy's functions return go the same way.

Everything else of NumPy's (other dtypes, other orders, subclasses) is left to NumPy.

References: PEP 307 (extension registry), PEP 574 (buffers out of band).
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from io import BytesIO
from pickle import PickleBuffer, Pickler
from typing import TYPE_CHECKING, Any, Final, cast

from ..lazy import np
from .byvalue import PROTOCOL

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["dumps_arrays", "has_arrays"]

_CODES: Final = "?bBhHiIlLqQefdgFDG"
"""Of NumPy's numbers; others may hold what is no number, or have more to say of themselves."""

_EXTENSION: Final = 0x776F726B
"""From four bytes on, where nobody else's numbers are."""

_FIRST: Final = 8
"""Of many values so few are looked at."""


def restored(code: str, shape: tuple[int, ...] | None, buffer: Any) -> Any:
    """Return an array in a buffer, or the only element of one whose shape is None."""
    array: NDArray[Any] = np.ndarray(shape or (), code, buffer)
    return array[()] if shape is None else array


copyreg.add_extension(__name__, restored.__name__, _EXTENSION)

_reducers: dict[type, Callable[[Any], Any]] = {}
"""By type, once NumPy is there."""

_dtypes: dict[str, Any] = {}
"""By code."""


def _reduce_array(array: NDArray[Any]) -> Any:
    dtype = array.dtype
    # Identity: a dtype of the same code may be of another byte order, or have metadata.
    if _dtypes.get(dtype.char) is dtype and array.flags.c_contiguous:
        return restored, (dtype.char, array.shape, PickleBuffer(cast("Any", array)))
    return array.__reduce_ex__(PROTOCOL)


def _reduce_number(number: Any) -> Any:
    return restored, (number.dtype.char, None, number.tobytes())


class _ArrayPickler(Pickler):
    dispatch_table = _reducers


def has_arrays(obj: object) -> bool:
    """Return whether an object, or one of its first elements, is an array or a number of NumPy's.

    Notes
    -----
    Cost: 0.05 us without NumPy, else 0.1 to 0.3 us.
    """
    if not _reducers:
        if "numpy" not in sys.modules:
            return False
        _fill()
    kind = type(obj)
    if kind is tuple or kind is list:
        # ``any`` would take as long again.
        for element in obj[:_FIRST]:  # type: ignore[index]  # noqa: SIM110
            if type(element) in _reducers:
                return True
        return False
    return kind in _reducers


def dumps_arrays(obj: object, keep: Callable[[PickleBuffer], object]) -> bytes:
    """Pickle as ``pickle.dumps`` does, arrays and NumPy's numbers by `restored`."""
    with BytesIO() as file:
        _ArrayPickler(file, PROTOCOL, buffer_callback=keep).dump(obj)
        return file.getvalue()


def _fill() -> None:
    for code in _CODES:
        _dtypes[code] = np.dtype(code)
        _reducers[np.dtype(code).type] = _reduce_number
    _reducers[np.ndarray] = _reduce_array
