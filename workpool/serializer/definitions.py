"""What a definition of the script consists of, as far as that is the same in the next run.

Not its lines, its docstrings, or the addresses and hashes that libraries put into classes.
"""

from __future__ import annotations

import dis
from _abc import _get_dump  # type: ignore[import-not-found]
from abc import ABCMeta
from ctypes import string_at
from dataclasses import fields
from enum import Enum, Flag
from functools import cache
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeVar

from .derived import CACHES, is_written
from .enumerations import own_attributes
from .generic import dispatched, generic_parts, is_generic
from .names import reads

#: What Python adds to a class by itself, and what changes nothing.
_INCIDENTAL: Final = CACHES | {
    # `dataclass` makes a docstring of the defaults, with their addresses.
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl"),
    *("__firstlineno__", "__static_attributes__", "__annotations_cache__"),
    # What pydantic makes of the fields and the rest, with the addresses of classes.
    *("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__"),
}

#: What the body of a class defines, whatever it is called.
_METHODS = (FunctionType, property, classmethod, staticmethod)


def function_parts(function: Any) -> tuple[object, ...]:
    """Return what a function does: its code, and all that it reads."""
    if is_generic(function):
        implementations, attributes = generic_parts(function)
        return "generic", function.__qualname__, list(implementations.items()), attributes
    if (registered := dispatched(function)) is not None:
        return "dispatch", list(registered.items())
    return (
        "function",
        (function.__name__, function.__qualname__),
        _annotations(function),
        code_parts(function.__code__),
        function.__defaults__,
        function.__kwdefaults__,
        function.__dict__,
        # A class's annotations see its attributes, among which is its line.
        [(name, value) for name, value in reads(function) if name != "__classdict__"],
    )


def class_parts(cls: type) -> tuple[object, ...]:
    """Return what a class is: its bases, and its attributes but for what follows from others."""
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


def compiled_parts(function: Any) -> tuple[object, ...]:
    """Return what a function compiled by numba is, without its number, another in each run.

    What it has been compiled for so far is no part of it, unless it is to be all.
    """
    attributes = vars(function)
    final = not attributes.get("_can_compile", True)
    signatures = [str(each) for each in function.signatures] if final else []
    options = attributes.get("targetoptions")
    return type(function).__qualname__, function.py_func, options, signatures


def storage_parts(storage: Any) -> tuple[object, ...]:
    """Return what a tensor of PyTorch has its elements in, without its address."""
    untyped = getattr(storage, "_untyped_storage", storage)
    memory = untyped.cpu()
    content = string_at(memory.data_ptr(), memory.nbytes())
    dtype = str(getattr(storage, "dtype", None))
    return type(storage).__qualname__, dtype, str(untyped.device), content


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


def bounds_of(variable: TypeVar) -> object:
    """Return what a type variable is bound to; nothing if that is not defined yet."""
    try:
        return variable.__bound__, variable.__constraints__
    except Exception:  # the script's own code
        return None


def _registered(cls: ABCMeta) -> list[str]:
    """Return the names of the classes that were registered with an abstract one."""
    found = [reference() for reference in _get_dump(cls)[0]]
    return sorted(f"{each.__module__}.{each.__qualname__}" for each in found if each is not None)


def code_parts(code: CodeType) -> tuple[object, ...]:
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
