"""A task's call as one payload.

A call without keyword arguments whose function travels as `Code` is the pickle of its tuple of
arguments. Any other is the pickle of a list: ``[args, kwargs]`` or ``[args, kwargs, fn]``. The
type of what comes out tells which, so the common case carries no mark.

The thing that would not be pickled is searched for only after pickling has failed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ..errors import SerializationError, UsageError
from ..whole import FAILURES, interrupts
from .byname import PROTOCOL
from .byvalue import locks_in
from .code import Code
from .names import reads
from .reach import Torn
from .references import Refer, UnknownDefinition
from .values import Buffer, Encoded, decode, encode
from .wording import said, task_name, type_name, unrestored

__all__ = ["heaviest", "pack_call", "unpack_call", "without_partial"]

_NO_ARGUMENTS: Final = encode(())


_PLACEHOLDER: Final[object] = getattr(functools, "Placeholder", None)  # from Python 3.14


def without_partial(
    fn: functools.partial[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the call that a call of a partial comes to: its function may have a `Code`."""
    if _PLACEHOLDER is not None and any(it is _PLACEHOLDER for it in fn.args):
        return fn, args, kwargs
    args, kwargs = (*fn.args, *args), {**fn.keywords, **kwargs}
    inner: Any = fn.func
    if type(inner) is functools.partial:  # which has attributes
        return without_partial(inner, args, kwargs)
    return inner, args, kwargs


def pack_call(
    fn: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: Code | None = None,
    refer: Refer | None = None,
) -> Encoded:
    """Encode a call.

    Parameters
    ----------
    fn : callable or None
        The task's function; part of the payload only when `code` is None.
    args : tuple
        Positional arguments.
    kwargs : dict
        Keyword arguments.
    code : Code, optional
        What `CodeCache.lookup` gave for `fn`, when that travels on its own: unless the arguments
        have something in common with it that must be one, see `reach`.
    refer : callable, optional
        As for `encode`.

    Returns
    -------
    bytes or Packed
        As from `encode`.

    Raises
    ------
    SerializationError
        Names the argument or the function that cannot be pickled; ``__cause__`` says why.
    UnknownDefinition
        As for `encode`.

    Notes
    -----
    Cost: 0.1 us without arguments, 0.6 us with three floats; 20 us more for a function by value.
    """
    call: object
    if code is None:
        call = [args, kwargs, fn]
    elif kwargs:
        call = [args, kwargs]
    elif args:
        call = args
    else:
        return _NO_ARGUMENTS
    beside = None if code is None else code.reach
    try:
        if beside is not None and beside.copied:
            each = (*args, *kwargs.values()) if kwargs else args
            if not beside.copied.isdisjoint(map(id, each)):
                raise Torn
        return encode(call, refer=refer, beside=beside)
    except Torn:
        return pack_call(fn, args, kwargs)
    except (interrupts(), UnknownDefinition):
        raise
    except BaseException as error:  # __reduce__ may raise anything, SystemExit included
        raise _culprit(fn, args, kwargs, error) from error


def unpack_call(
    buffer: Buffer,
) -> tuple[Callable[..., Any] | None, tuple[Any, ...], dict[str, Any]]:
    """Restore a call.

    Parameters
    ----------
    buffer : contiguous buffer
        Exactly the bytes of the encoding; `unpack` says what becomes of it.

    Returns
    -------
    fn : callable or None
        None when the function travels as `Code`.
    args : tuple
    kwargs : dict

    Raises
    ------
    SerializationError
        The encoding is damaged, or something in it cannot be restored here.

    Notes
    -----
    Cost: 0.2 us for atoms.
    """
    try:
        call = decode(buffer)
    except (interrupts(), MemoryError, SerializationError):
        raise
    except BaseException as error:  # __setstate__ may raise anything, SystemExit included
        raise unrestored("the function or the arguments of a task", error) from error
    if type(call) is tuple:
        return None, call, {}
    if type(call) is list and len(call) == 2:
        return None, call[0], call[1]
    if type(call) is list and len(call) == 3:
        return call[2], call[0], call[1]
    raise SerializationError(f"a payload of type {type_name(call)} is not a task's call")


def _culprit(
    fn: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: BaseException,
) -> SerializationError:
    """Return the error that names what could not be pickled and what to do about it."""
    suspects = [(f"argument {i} of {len(args)}", value) for i, value in enumerate(args, 1)]
    suspects += [(f"keyword argument {name!r}", value) for name, value in kwargs.items()]
    remedy = "pass what it is made from and build it in the task, or give its class __reduce__"
    found = _first_failure(suspects)
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    if found is None and _failure(inner) is not None:
        read = {name: (f"{name!r}, which the function reads,", it) for name, it in reads(inner)}
        cells = [it for name, it in read.items() if name in inner.__code__.co_freevars]
        remedy = "build it in the task or in the initializer, or import it from a module"
        found = _first_failure([*read.values()], locks_in) or _first_failure(cells)
    if found is None and (attributes := _attributes(inner)):
        suspects = [(f"self.{name}, which comes along,", it) for name, it in attributes.items()]
        remedy = "have __getstate__ of its class leave it out, or submit a function"
        found = _first_failure(suspects)
    if found is None and (failure := _failure(fn)) is not None:
        found = "the function", fn, failure
        remedy = "define it in a module that the workers can import"
    task = task_name(fn)
    if found is None:
        return SerializationError(f"cannot pickle the call of task {task}: {said(error)}")
    what, value, failure = found
    # An error of ours says itself what to do.
    text = str(failure) if isinstance(failure, UsageError) else f"{said(failure)}; {remedy}"
    return SerializationError(
        f"cannot pickle {what} of type {type_name(value)} for task {task}: {text}"
    )


def heaviest(fn: Callable[..., Any]) -> str:
    """Return, for a message, what makes up most of what is called; nothing if nobody knows."""
    parts = {f"{name!r}, which it reads": it for name, it in reads(fn)}
    parts |= {f"self.{name}": it for name, it in _attributes(fn).items()}
    sizes: dict[int, str] = {}
    for what, value in parts.items():
        with suppress(*FAILURES):  # a lock, say, that is made anew
            sizes[len(encode(value))] = what
    return f", mostly {sizes[max(sizes)]}" if sizes else ""


def _attributes(method: Any) -> dict[str, Any]:
    """Return what a bound method takes along of its object, if that is plain attributes."""
    try:
        state = method.__self__.__reduce_ex__(PROTOCOL)[2]
    except Exception:  # no method; or the user's own code
        return {}
    return state if isinstance(state, dict) else {}


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
    except BaseException as error:  # as in pack_call
        return error
    return None
