"""What a function and its arguments are, as bytes that are the same in the next run.

A pickle will not do: it depends on which of its objects are one and the same, a set of ``str`` on
the hash seed, and a definition of the script on ids made up when it is sent.  So here

* equal objects count as equal, shared or not (pickle without its memo);
* the elements of a set count in any order, those of a dict in their own;
* a function or class of the script is its name, its code without line numbers, and all that it
  reads: defaults, closure, globals, other functions and classes by the same rule;
* whatever can be imported is its name alone.

Objects that cannot do without the memo, because they contain themselves or are larger than
`LARGE_NBYTES`, keep it.
"""

from __future__ import annotations

import dis
from _abc import _get_dump  # type: ignore[import-not-found]
from abc import ABCMeta
from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import Enum, Flag
from functools import cache
from io import BytesIO
from pickle import Pickler, PicklingError, dumps
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeVar

from ..errors import UsageError
from ..interrupts import interrupts
from ..lazy import hashlib
from .atoms import ATOMS
from .byname import PROTOCOL, named, registered_modules
from .byvalue import ByValuePickler
from .derived import is_written
from .enumerations import own_attributes
from .names import reads
from .rebuilt import MADE_ANEW, dispatched, generic_parts, is_generic

__all__ = ["FINGERPRINT_NBYTES", "call_fingerprint", "fingerprint", "item_fingerprints"]

FINGERPRINT_NBYTES: Final = 16

LARGE_NBYTES: Final = 1 << 26

#: In the flags of a type: made by a class statement (Py_TPFLAGS_HEAPTYPE).
_HEAP_TYPE: Final = 1 << 9

MOST_SETS: Final = 6
"""Sets, each within the one before: objects that know each other by sets have very many paths."""

#: In every plain pickle that has a definition of the script, or a set, or what is refused.
_SUSPECT: Final = (b"_main__", b"\x8f", b"\x91")

#: What Python adds to a class by itself, and what changes nothing.
_INCIDENTAL: Final = frozenset(
    {
        # `dataclass` makes a docstring of the defaults, with their addresses.
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl"),
        "__slotnames__",  # kept by copyreg once an instance was pickled
        *("__firstlineno__", "__static_attributes__", "__annotations_cache__"),
        # What pydantic makes of the fields and the rest, with the addresses of classes.
        *("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__"),
    }
)


def fingerprint(obj: object, refused: type) -> bytes:
    """Return 16 bytes that stand for an object.

    Parameters
    ----------
    obj : object
    refused : type
        Of objects that must not be found in it.

    Raises
    ------
    UsageError
        If one of `refused` is.
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

    Parameters
    ----------
    function : bytes
        The fingerprint of what is called.
    items : iterable
    several : bool
        Whether each item is a tuple of arguments, not the only argument.
    refused : type
        As for `fingerprint`.

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
        if not any(mark in pickled for mark in suspect):
            return pickled
    except interrupts():
        raise
    except (PicklingError, AttributeError, TypeError):  # what pickle says of a lambda, a module
        pass
    # What cannot be pickled fast in a set is not tried anew by itself, but all that it is part of.
    ways = _WAYS if within is None else (bool(within.fast),)
    return _pickle(obj, lambda file: _Pickler(file, refused, within), ways)


_WAYS: Final = (True, False)


def _pickle(obj: object, make: Callable[[BytesIO], Any], ways: tuple[bool, ...] = _WAYS) -> bytes:
    """Return a pickle, made without a memo if that is one of the ways and can be done."""
    for fast in ways:
        last = fast is ways[-1]
        file = _Bounded() if fast else BytesIO()
        pickler = make(file)
        pickler.fast = fast
        try:
            pickler.dump(obj)
            break
        except interrupts():
            raise
        except (_TooLargeError, ValueError, RecursionError):
            if last:
                raise
        except PicklingError as error:
            if last or not isinstance(error.__cause__, RecursionError):  # cloudpickle's word
                raise
    return file.getvalue()


class _TooLargeError(Exception):
    """What is shared often grows without bounds when each use is written out."""


class _Bounded(BytesIO):
    def write(self, content: Any, /) -> int:
        if self.tell() + memoryview(content).nbytes > LARGE_NBYTES:  # an array writes its buffer
            raise _TooLargeError
        return super().write(content)


class _Pickler(ByValuePickler):
    """Writes for each definition what it consists of, and the elements of a set in order."""

    def __init__(self, file: BytesIO, refused: type, within: _Pickler | None = None) -> None:
        super().__init__(file, protocol=PROTOCOL)
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
            return None if named(obj) else self._met_again(obj) or _function(obj)
        if isinstance(obj, type):
            plain = not obj.__flags__ & _HEAP_TYPE or named(obj)
            return None if plain else self._met_again(obj) or _class(obj)
        if kind is TypeVar:
            variance = obj.__covariant__, obj.__contravariant__
            return "TypeVar", obj.__name__, variance, _bounds(obj)
        if kind is CodeType:
            return _code(obj)
        if kind in MADE_ANEW:
            make, args = MADE_ANEW[kind](obj)
            return make.__name__, args
        if str(kind.__module__).startswith("numba.") and hasattr(obj, "py_func"):
            return _compiled(obj)
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


#: What the body of a class defines, whatever it is called.
_METHODS = (FunctionType, property, classmethod, staticmethod)


def _function(function: Any) -> tuple[object, ...]:
    if is_generic(function):
        implementations, attributes = generic_parts(function)
        return "generic", function.__qualname__, list(implementations.items()), attributes
    if (registered := dispatched(function)) is not None:
        return "dispatch", list(registered.items())
    return (
        "function",
        (function.__name__, function.__qualname__),
        _annotations(function),
        _code(function.__code__),
        function.__defaults__,
        function.__kwdefaults__,
        function.__dict__,
        # A class's annotations see its attributes, among which is its line.
        [(name, value) for name, value in reads(function) if name != "__classdict__"],
    )


def _class(cls: type) -> tuple[object, ...]:
    attributes = {
        # What attrs writes has the hash of a string in it, which differs from run to run.
        name: "written" if name == "__hash__" and is_written(name, value) else value
        for name, value in vars(cls).copy().items()
        if name not in _INCIDENTAL
        # There are none until somebody asks for them.
        and (name not in ("__annotations__", "__annotate_func__") or value)
        and not isinstance(value, (MemberDescriptorType, GetSetDescriptorType))
        # There is `_fields_`.  In `_ctypes`, from Python 3.14 on in `ctypes`.
        and (type(value).__module__.strip("_"), type(value).__name__) != ("ctypes", "CField")
    }
    if (infos := attributes.get("__pydantic_decorators__")) is not None:
        attributes["__pydantic_decorators__"] = _without_address(infos)
    if issubclass(cls, Enum):  # without what its metaclass has made of it
        members, common = cls.__members__, _of_all_enumerations()
        attributes = {
            name: value
            for name, value in attributes.items()
            if name not in members and (type(value) in _METHODS or name not in common)
        }
        attributes["_boundary_"] = getattr(cls, "_boundary_", None)
        attributes["__members__"] = [
            (name, it.name, it.value, own_attributes(it)) for name, it in members.items()
        ]
    if isinstance(cls, ABCMeta):
        attributes["_abc_registry"] = _registered(cls)
    kind: object = type(cls)
    if type(cls).__module__ == "_ctypes":  # where it cannot be looked up
        kind = type(cls).__qualname__
    return ("class", cls.__qualname__, kind, cls.__bases__, sorted(attributes.items()))


def _compiled(function: Any) -> tuple[object, ...]:
    """Return what a function compiled by numba is, without its number, another in each run.

    What it has been compiled for so far is no part of it, unless it is to be all.
    """
    attributes = vars(function)
    final = not attributes.get("_can_compile", True)
    signatures = [str(each) for each in function.signatures] if final else []
    options = attributes.get("targetoptions")
    return type(function).__qualname__, function.py_func, options, signatures


def _without_address(infos: Any) -> list[tuple[str, object, object]]:
    """Return what the decorators of pydantic say, without the address of the class."""
    kinds = [getattr(infos, field.name) for field in fields(infos)]
    return [(name, it.cls_var_name, it.info) for kind in kinds for name, it in kind.items()]


@cache
def _of_all_enumerations() -> set[str]:
    """Return the names that each enumeration has, whatever its body defines."""
    kinds: tuple[Any, ...] = Enum, Flag
    return {name for kind in kinds for name in vars(kind("empty", ()))}


def _annotations(function: Any) -> object:
    """Return what a function is annotated with; from Python 3.14 on, what makes it."""
    annotate = getattr(function, "__annotate__", None)
    return function.__annotations__ if annotate is None else annotate


def _bounds(variable: TypeVar) -> object:
    """Return what a type variable is bound to; nothing if that is not defined yet."""
    try:
        return variable.__bound__, variable.__constraints__
    except Exception:  # the script's own code
        return None


def _registered(cls: ABCMeta) -> list[str]:
    """Return the names of the classes that were registered with an abstract one."""
    found = [reference() for reference in _get_dump(cls)[0]]
    return sorted(f"{each.__module__}.{each.__qualname__}" for each in found if each is not None)


def _code(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does, without where it stands."""
    steps: object = code.co_code
    consts: object = code.co_consts
    if "__firstlineno__" in code.co_names:  # from Python 3.13 on, the body of a class
        steps, consts = _without_line(code), ()
    return (
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        (steps, getattr(code, "co_exceptiontable", b""), consts),
    )


def _without_line(code: CodeType) -> list[tuple[str, object]]:
    """Return the steps of some code, but not those in which the body of a class notes its line.

    The number cannot be told from other constants, and may be in the bytes of an instruction.
    """
    steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    noted = ("STORE_NAME", "__firstlineno__")
    if noted in steps:
        at = steps.index(noted)
        del steps[at - 1 : at + 1]
    return steps
