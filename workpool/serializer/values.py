"""Any object as an encoding: by name, by reference or by value, whichever of them does first.

The package's page says what the three are.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from pickle import PickleBuffer, dumps
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

from ..errors import SerializationError
from ..interrupts import interrupts
from .arrays import dumps_by_makers, encode_alone, has_arrays, is_flat
from .atoms import ATOMS
from .byname import METHOD, PROTOCOL, REFUSALS, Keep, has, names_by_value
from .drawing import RANDOM, RANDOM_STATE
from .frames import OUT_OF_BAND_NBYTES, Encoded, framed
from .pipes import refuse_pipes
from .reach import Reach, Torn
from .references import Refer, dumps_by_reference
from .script import SCRIPT_MODULES
from .tensors import reducers

_Dump: TypeAlias = Callable[[object, Keep], bytes]

#: A pickle of at least so many bytes takes longer to search than its object takes to look at.
_LONG_NBYTES: Final = 1 << 12


def encode(
    obj: object,
    *,
    by_value: bool = True,
    refer: Refer | None = None,
    reach: Reach | None = None,
    beside: Reach | None = None,
    within_nbytes: int = OUT_OF_BAND_NBYTES,
) -> Encoded:
    """Encode any object.

    Parameters
    ----------
    obj : object
    by_value : bool
        Whether to pickle by value what is defined in ``__main__`` or nowhere, or holds such things.
    refer : Refer, optional
        What the other side has of the script, see `references`.
    reach : Reach, optional
        Gets what is reached if it is pickled by value.
    beside : Reach, optional
        Of what the same task gets by another pickle.
    within_nbytes : int
        Smaller buffers are copied into the pickle; up to 64 KiB.

    Returns
    -------
    bytes or Packed
        bytes unless it holds a contiguous buffer of at least so much.

    Raises
    ------
    SerializationError
        It can only be pickled by value, and is not to be.
    UnknownDefinition
        It would be by reference, but for something that the other side has not.
    Torn
        The two have something in common that must be one.
    BaseException
        Whatever pickle raises.

    Notes
    -----
    Cost: 0.5 us for atoms, 5 us for a large array; 20 us and more by value. Contiguous arrays
    are not copied, in C or Fortran order; other arrays are, and so are those whose dtype
    exports no buffer (datetime64, object).
    """
    value: Any = obj[0] if type(obj) is tuple and len(obj) == 1 else obj
    if type(value) in ATOMS:
        return dumps(obj, PROTOCOL)
    if (alone := encode_alone(obj, value, within_nbytes)) is not None:
        return alone
    refuse_pipes()
    frames: list[memoryview] = []

    def keep(buffer: PickleBuffer) -> bool:
        """Tell pickle to copy the buffer, or take it as a frame."""
        view = buffer.raw()
        if view.nbytes < within_nbytes:
            return True
        frames.append(view)
        return False

    dump: _Dump
    pickled = None
    try:
        if refer is None or not _is_of_script(obj):  # by name
            if refer is not None and refer.copied and not is_flat(obj):
                dump = partial(dumps_by_makers, copied=refer.copied)
            else:
                dump = dumps_by_makers if has_arrays(obj) else _dumps
            pickled = _attempt(dump, obj, keep)
            if pickled is not None and dump is _dumps and _is_looked_at(obj, pickled):
                frames.clear()
                pickled = _attempt(dumps_by_makers, obj, keep)
        if pickled is None and refer is not None:  # by reference
            frames.clear()
            pickled = _attempt(partial(dumps_by_reference, refer=refer), obj, keep)
    except Torn:
        if beside is not None:
            raise
    if pickled is None:
        if not by_value:
            raise SerializationError("no worker knows this by its name")
        own = Reach() if reach is None else reach
        pickled = _dumps_whole(
            obj, keep, frames, own, frozenset() if beside is None else beside.copied
        )
        if beside is not None and own.touches(beside):
            raise Torn
    return framed(pickled, frames) if frames else pickled


def _dumps_whole(
    obj: object, keep: Keep, frames: list[memoryview], reach: Reach, copied: Set[int]
) -> bytes:
    from .byvalue import dumps_by_value, undisturbed  # and with it cloudpickle

    def whole() -> bytes:
        frames.clear()
        return dumps_by_value(obj, keep, reach=reach, copied=copied)

    return undisturbed(whole)


def _is_of_script(obj: Any) -> bool:
    """Tell whether an object, or the first one in it, is of the script: plain pickle would fail."""
    kind: Any = type(obj)
    if (kind is tuple or kind is list) and obj:
        obj = obj[0]
        kind = type(obj)
        if kind is tuple and obj:  # the arguments of a call, or of the first of some calls
            obj = obj[0]
            kind = type(obj)
    if kind is MethodType:
        kind = type(obj.__self__)
    return (obj if kind is FunctionType else kind).__module__ in SCRIPT_MODULES


def _is_looked_at(obj: object, pickled: bytes) -> bool:
    """Tell whether there is in an object what `dumps_by_makers` looks at: methods, generators."""
    if len(pickled) >= _LONG_NBYTES and is_flat(obj):
        return False
    return has(pickled, METHOD) or has(pickled, RANDOM) or has(pickled, RANDOM_STATE)


def _dumps(obj: object, keep: Keep) -> bytes:
    if reducers() and not is_flat(obj):
        return dumps_by_makers(obj, keep)
    return dumps(obj, PROTOCOL, buffer_callback=keep)


def _attempt(dump: _Dump, obj: object, keep: Keep) -> bytes | None:
    """Return a pickle; None if it cannot be made, or names something that goes by value."""
    try:
        pickled = dump(obj, keep)
    except interrupts():
        raise
    except REFUSALS:
        return None
    except RuntimeError as error:
        from .byvalue import is_disturbed

        if not is_disturbed(error):
            raise
        return None  # by value it is tried again and again
    return None if names_by_value(pickled) else pickled
