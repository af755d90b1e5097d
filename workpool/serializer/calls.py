"""A task's call as one payload.

A call without keyword arguments whose function travels as `Code` is the pickle of its tuple of
arguments. Any other is the pickle of a list: ``[args, kwargs]`` or ``[fn, args, kwargs]``. The
type of what comes out tells which, so the common case carries no mark.

What could not be pickled is searched for only after pickling has failed, see `blame`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from ..errors import SerializationError, UsageError
from ..interrupts import interrupts
from .frames import Buffer, Encoded, unpack
from .reach import Torn
from .references import Code, Refer, UnknownDefinition
from .values import encode
from .wording import type_name

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
    role: str = "task",
) -> Encoded:
    """Encode a call.

    Parameters
    ----------
    fn : callable or None
        The task's function; part of the payload only when `code` is None.
    args : tuple
    kwargs : dict
    code : Code, optional
        What `CodeCache.lookup` gave for `fn`, when that travels on its own: unless the arguments
        have something in common with it that must be one, see `reach`.
    refer : Refer, optional
        As for `encode`.
    role : str
        What is called, for messages.

    Raises
    ------
    SerializationError
        Names the argument or the function that cannot be pickled; ``__cause__`` says why, unless
        the message is a complaint of ours in full.
    UnknownDefinition
        As for `encode`.

    Notes
    -----
    Cost: 0.1 us without arguments, 0.6 us with three floats; 20 us more for a function by value.
    """
    call: object
    if code is None:
        call = [fn, args, kwargs]  # in this order `encode` sees that it is of the script
    elif kwargs:
        call = [args, kwargs]
    elif args:
        call = args
    else:
        return _NO_ARGUMENTS
    beside = None if code is None else code.reach
    try:
        if beside is not None and beside.copied:
            beside.check(args)
            if kwargs:
                beside.check(kwargs.values())
        return encode(call, refer=refer, beside=beside)
    except Torn:
        return pack_call(fn, args, kwargs, role=role)
    except (interrupts(), UnknownDefinition):
        raise
    except BaseException as error:  # __reduce__ may raise anything, SystemExit included
        from .blame import as_called, culprit

        told = isinstance(error, UsageError)  # in full, by the message: a future, an accumulator
        raise culprit(fn, args, kwargs, error, role) from (None if told else as_called(error))


def unpack_call(
    buffer: Buffer, what: str = "the function or the arguments of a task"
) -> tuple[Callable[..., Any] | None, tuple[Any, ...], dict[str, Any]]:
    """Restore a call: its function, None when that travels as `Code`, and its arguments.

    Parameters
    ----------
    buffer : contiguous buffer
        Exactly the bytes of the encoding; `unpack` says what becomes of it.
    what : str
        What the message says cannot be restored.

    Raises
    ------
    SerializationError
        The encoding is damaged, or something in it cannot be restored here.

    Notes
    -----
    Cost: 0.2 us for atoms.
    """
    call = unpack(buffer, what)
    if type(call) is tuple:
        return None, call, {}
    if type(call) is list and len(call) == 2:
        return None, call[0], call[1]
    if type(call) is list and len(call) == 3:
        return call[0], call[1], call[2]
    raise SerializationError(f"a payload of type {type_name(call)} is not a task's call")
