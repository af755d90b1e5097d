"""What of a call cannot be pickled, or makes it large: for messages, when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

import cloudpickle

from ..errors import SerializationError, UsageError
from ..interrupts import FAILURES, interrupts
from .byname import PROTOCOL, named
from .byvalue import locks_in
from .instances import functions_in
from .names import innermost, reads
from .values import encode
from .wording import said, task_name, type_name

#: What it is for a message, itself, and what pickles it.
_Suspect: TypeAlias = tuple[str, object, Callable[[Any], object]]

_DUMP: Final = cloudpickle.Pickler.dump.__code__

_READ: Final = (
    "build it in the task or in the initializer (the script itself must have none under that "
    "name), or read it as an attribute of a module"
)


def as_called(error: BaseException) -> BaseException:
    """Return what pickling has raised with the traceback of what pickle has called, if anything.

    The frames before that are ours and cloudpickle's, twenty lines between a message and its cause.
    """
    trace = error.__traceback__
    while trace is not None:
        code, trace = trace.tb_frame.f_code, trace.tb_next
        if code is _DUMP:
            return BaseException.with_traceback(error, trace)
    return error


def culprit(
    fn: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: BaseException,
    role: str,
) -> SerializationError:
    """Return the error that names what could not be pickled and what to do about it.

    `role` is what is called: a task, or the initializer.
    """
    suspects = [(f"argument {i} of {len(args)}", value) for i, value in enumerate(args, 1)]
    suspects += [(f"keyword argument {name!r}", value) for name, value in kwargs.items()]
    remedy = f"pass what it is made from and build it in the {role}, or give its class __reduce__"
    found = _first_failure(suspects)
    inner = innermost(fn)
    if found is None and _failure(inner) is not None:
        read = {name: (f"{name!r}, which the function reads,", it) for name, it in reads(inner)}
        cells = [it for name, it in read.items() if name in inner.__code__.co_freevars]
        remedy = _READ
        found = _first_failure([*read.values()], locks_in) or _first_failure(cells)
    if found is None and (attributes := _attributes(inner)):
        suspects = [(f"self.{name}, which comes along,", it) for name, it in attributes.items()]
        remedy = "have __getstate__ of its class leave it out, or submit a function"
        found = _first_failure(suspects)
    if found is None and (failure := _failure(fn)) is not None:
        found = "the function", fn, failure
        remedy = "define it, or a function that calls it, in a module that the workers can import"
    task = task_name(fn)
    if found is None:
        return SerializationError(f"cannot pickle the call of {role} {task}: {said(error)}")
    if (deeper := _read_along(found[1], set())) is not None:
        found, remedy = deeper, _READ
    what, value, failure = found
    if isinstance(failure, RuntimeError) and "through inheritance" in str(failure):
        remedy = (  # a lock, a queue or a value of multiprocessing, or what has one
            "take one of a multiprocessing.Manager, or for numbers that tasks add to an "
            "accumulator of the pool"
        )
    # An error of ours says itself what to do.
    text = str(failure) if isinstance(failure, UsageError) else f"{said(failure)}; {remedy}"
    return SerializationError(
        f"cannot pickle {what} of type {type_name(value)} for {role} {task}: {text}"
    )


def heaviest(fn: Callable[..., Any], who: str = "it") -> str:
    """Return, for a message, what makes up most of what is called; nothing if nobody knows."""
    parts = {f"{name!r}, which {who} reads": it for name, it in reads(fn)}
    attributes = {f"self.{name}": it for name, it in _attributes(fn).items()}
    parts |= attributes
    sizes: dict[int, str] = {}
    for what, value in parts.items():
        with suppress(*FAILURES):  # a lock, say, that is made anew
            sizes[len(encode(value))] = what
    if not sizes:
        return ""
    most = sizes[max(sizes)]
    within = attributes.get(most)  # perhaps a function, which the program has wrapped
    deeper = heaviest(within, task_name(within)) if type(within) is FunctionType else ""
    return deeper or f", mostly {most}"


def _attributes(fn: Any) -> dict[str, Any]:
    """Return what a bound method, or an object that is called, takes along as plain attributes."""
    try:
        state = getattr(fn, "__self__", fn).__reduce_ex__(PROTOCOL)[2]
    except Exception:  # a plain function; or the user's own code
        return {}
    return state if isinstance(state, dict) else {}


def _read_along(value: object, seen: set[int]) -> tuple[str, object, BaseException] | None:
    """Return the first failure of what comes along with a value by its functions and its class.

    What they read brings others; `seen` are the ids of these.
    """
    value = value.__self__ if type(value) is MethodType else value
    functions: list[Any] = [value]
    suspects: list[_Suspect] = []
    if type(value) is not FunctionType:
        kind: Any = value if issubclass(type(value), type) else type(value)
        by_value = (cls for cls in kind.__mro__ if not named(cls))
        members = [(cls, *item) for cls in by_value for item in vars(cls).copy().items()]
        parts = (part for _, _, member in members for part in functions_in(member) or (member,))
        functions = [part for part in parts if type(part) is FunctionType]
        suspects += [
            (f"{cls.__qualname__}.{name}, an attribute of the class,", member, encode)
            for cls, name, member in members
            if not (name.startswith("__") or type(member) is FunctionType or functions_in(member))
        ]
    for function in functions:
        if _failure(function) is not None:  # else it comes by its name
            suspects[:0] = _brought(function)
    for what, it, attempt in suspects:
        failure = None if id(it) in seen else _failure(it, attempt)
        if failure is None:
            continue
        seen.add(id(it))
        if (deeper := _read_along(it, seen)) is not None:
            return deeper
        if not issubclass(type(it), (FunctionType, type)):
            return what, it, failure
    return None


def _brought(function: FunctionType) -> list[_Suspect]:
    """Return what a function reads, and what else comes along with it."""
    who, code = task_name(function), function.__code__
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = {**dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {})}
    return [
        *((f"{name!r}, which {who} reads,", it, locks_in) for name, it in reads(function)),
        *((f"the default of {name!r} of {who},", it, encode) for name, it in given.items()),
        *((f"{who}.{name}", it, encode) for name, it in vars(function).items()),
    ]


def _first_failure(
    suspects: list[tuple[str, object]], attempt: Callable[[object], object] = encode
) -> tuple[str, object, BaseException] | None:
    """Return the first suspect that cannot be pickled, with its name and the error."""
    for what, value in suspects:
        failure = _failure(value, attempt)
        if failure is not None:
            return what, value, failure
    return None


def _failure(value: object, attempt: Callable[[object], object] = encode) -> BaseException | None:
    """Return what pickling `value` raises, or None."""
    try:
        attempt(value)
    except interrupts():
        raise
    except BaseException as error:  # __reduce__ may raise anything, SystemExit included
        BaseException.with_traceback(error, None)  # it refers to our callers, and so to the call
        return error
    return None
