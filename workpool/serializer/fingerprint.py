"""What a function and its arguments are, as bytes that are the same in the next run.

A pickle will not do: it depends on which of its objects are one and the same, a set of ``str`` on
the hash seed, and a definition of the script on ids made up when it is sent.  So here

* equal objects count as equal, shared or not (pickle without its memo);
* the elements of a set count in any order, those of a dict in their own;
* a function or class of the script is its name, its code without line numbers, and all that it
  reads: defaults, closure, globals, other functions and classes by the same rule;
* whatever can be imported is its name alone;
* what a tensor of PyTorch holds are its bytes, without the address that PyTorch pickles with them.

Objects that cannot do without the memo, because they contain themselves or are larger than
`LARGE_NBYTES`, keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from pickle import Pickler, PicklingError, dumps
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

from ..errors import UsageError
from ..interrupts import interrupts
from ..lazy import hashlib
from .atoms import ATOMS
from .byname import METHOD, PROTOCOL, REFUSALS, has, named, registered_modules
from .byvalue import ByValuePickler, undisturbed
from .definitions import (
    bounds_of,
    class_parts,
    code_parts,
    compiled_parts,
    function_parts,
    storage_parts,
)
from .drawing import RANDOM, RANDOM_STATE
from .instances import HEAP_TYPE
from .names import reads
from .rebuilt import maker_anew
from .states import Bounded, TooLarge

FINGERPRINT_NBYTES: Final = 16

LARGE_NBYTES: Final = 1 << 26
"""What is shared often grows without bounds when each use is written out."""

MOST_SETS: Final = 6
"""Sets, each within the one before: objects that know each other by sets have very many paths."""

#: In every plain pickle that has a definition of the script, a set, a method, a tensor of PyTorch,
#: a generator of random numbers.
_SUSPECT: Final = (
    *(b"_main__", b"\x8f", b"\x91", METHOD, b"_load_from_bytes"),
    *(RANDOM, RANDOM_STATE),
)


def fingerprint(obj: object, refused: type) -> bytes:
    """Return 16 bytes that stand for an object.

    Raises
    ------
    UsageError
        If one of the type `refused` is in it.
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 2 us for a few atoms; 100 us and more with definitions of the script.
    """
    return _digest(_bytes_of(obj, refused))


def call_fingerprint(
    function: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], kind: int, refused: type
) -> bytes:
    """Return 16 bytes that stand for a call; `function` are those of what is called.

    Notes
    -----
    Cost: as for `fingerprint`.
    """
    if not kwargs and not kind:
        return item_fingerprints(function, (args,), True, refused)
    call = (args, list(kwargs.items()), kind)
    content = _bytes_of(call, refused)
    return _digest(content, salt=function, person=b"call")


def item_fingerprints(function: bytes, items: Iterable[Any], several: bool, refused: type) -> bytes:
    """Return for each item the 16 bytes that stand for the call with it, one after another.

    `several`: each item is a tuple of arguments, not the only argument.

    Notes
    -----
    Cost: 1 us for a number.
    """
    found: list[bytes] = []
    for item in items:
        args = item if several else (item,)
        content = (
            dumps(args, PROTOCOL)
            if len(args) == 1 and type(args[0]) in ATOMS
            else _bytes_of(args, refused)
        )
        found.append(_digest(content, salt=function))
    return b"".join(found)


def _digest(content: bytes, salt: bytes = b"", person: bytes = b"") -> bytes:
    made = hashlib.blake2b(content, digest_size=FINGERPRINT_NBYTES, salt=salt, person=person)
    return made.digest()


def _bytes_of(obj: object, refused: type, within: _Pickler | None = None) -> bytes:
    """Return the pickle that the fingerprint is made of; `within` has met a set that has `obj`."""
    try:
        pickled = _pickle(obj, lambda file: Pickler(file, PROTOCOL))
        suspect = (*_SUSPECT, refused.__module__.encode(), *map(str.encode, registered_modules()))
        if not any(has(pickled, mark) for mark in suspect):
            return pickled
    except interrupts():
        raise
    except REFUSALS:
        pass
    make = partial(_Pickler, refused=refused, within=within)
    # What cannot be pickled fast in a set is not tried anew by itself, but all that it is part of.
    return _pickle(obj, make) if within is None else _pickle_once(obj, make, bool(within.fast))


def _pickle(obj: object, make: Callable[[BytesIO], Any]) -> bytes:
    """Return a pickle, made without a memo if that can be done."""
    try:
        return _pickle_once(obj, make, fast=True)
    except interrupts():
        raise
    except (TooLarge, ValueError, RecursionError, KeyError):
        pass  # KeyError: of 50 frozensets CPython takes each to be in the one before
    except PicklingError as error:
        if not isinstance(error.__cause__, RecursionError):  # cloudpickle's word
            raise
    return _pickle_once(obj, make, fast=False)


def _pickle_once(obj: object, make: Callable[[BytesIO], Any], fast: bool) -> bytes:
    def dump() -> bytes:
        file = Bounded(LARGE_NBYTES) if fast else BytesIO()
        pickler = make(file)
        pickler.fast = fast
        pickler.dump(obj)
        return file.getvalue()

    return undisturbed(dump)


class _Pickler(ByValuePickler):
    """Writes for each definition what it consists of, and the elements of a set in order."""

    def __init__(self, file: BytesIO, refused: type, within: _Pickler | None) -> None:
        super().__init__(file)
        self._refused = refused
        # Definitions; held, so that ids stay theirs.  Each element of a set goes on with those that
        # were met before the set.
        self._met: dict[int, tuple[int, object]] = {} if within is None else dict(within._met)
        self._sets: list[int] = [] if within is None else within._sets  # ids of those we are in

    def persistent_id(self, obj: Any) -> object:
        """Return what stands for an object; None leaves it to pickle."""
        kind = type(obj)
        if kind in ATOMS:
            return None
        if kind is set or kind is frozenset:
            return kind.__name__, self._elements(obj)
        if kind is FunctionType:
            if named(obj):
                return None
            self._note(value for _, value in reads(obj))
            return self._met_again(obj) or function_parts(obj)
        if isinstance(obj, type):
            if not obj.__flags__ & HEAP_TYPE or named(obj):
                return None
            self._note(vars(obj).copy().values())
            return self._met_again(obj) or class_parts(obj)
        if kind is TypeVar:
            variance = obj.__covariant__, obj.__contravariant__
            return "TypeVar", obj.__name__, variance, bounds_of(obj)
        if kind is CodeType:
            return code_parts(obj)
        if (anew := maker_anew(kind)) is not None:
            return anew(obj)
        if str(kind.__module__).startswith("numba.") and hasattr(obj, "py_func"):
            return compiled_parts(obj)
        if kind.__module__ == "torch.storage":
            return storage_parts(obj)
        if isinstance(obj, self._refused):
            raise UsageError(
                f"{obj!r} in what a journalled task is called with: what a task adds is not in the "
                "journal and would be missing when the task is skipped; return it from the task, "
                "or use a pool without journal="
            )
        return None

    def _elements(self, elements: set[Any] | frozenset[Any]) -> object:
        """Return what stands for the elements of a set in any order; a number within the set."""
        if id(elements) in self._sets:
            return self._sets.index(id(elements))
        if len(self._sets) == MOST_SETS:
            raise PicklingError(f"it has sets within sets, {MOST_SETS} and more")
        self._sets.append(id(elements))
        try:
            return sorted(_digest(_bytes_of(it, self._refused, self)) for it in elements)
        finally:
            self._sets.pop()

    def _met_again(self, definition: object) -> object:
        """Return the number of a definition that was written before; None if it is to be."""
        met = self._met.get(id(definition))
        if met is not None:
            return "again", met[0]
        self._met[id(definition)] = len(self._met), definition
        return None
