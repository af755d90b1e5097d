"""What a task came to, carried back: its value, or its exception with the traceback as text.

An exception crosses in an envelope::

    pickled     the exception, or nothing if it cannot travel
    summary     its type and message, as text
    text        the remote traceback, with the chain of causes
    reason      why it cannot travel, or nothing
    task, rank, host    where it was raised; no task where its function was not known yet

The worker restores what it pickled before sending it. The exception inside the envelope is
restored last, so whatever fails on the driver, the rest of the envelope makes a `TaskError`.  How
it is built again: see `exceptions`.

References: ``_ExceptionWithTraceback`` of ``concurrent.futures.process``.
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from enum import IntEnum
from io import BytesIO
from pickle import Unpickler, dumps, loads
from types import CoroutineType, GeneratorType
from typing import Any, Final, NamedTuple

from ..errors import RemoteTraceback, SerializationError, TaskError
from ..interrupts import interrupts
from .byname import PROTOCOL, names_by_value
from .classes import away, refer_home, set_first, update_class
from .exceptions import dumps_exception
from .frames import Buffer, Encoded, decode
from .references import Refer, UnknownDefinition
from .values import encode
from .wording import said, task_name, type_name, unrestored

_PACKAGE: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
"""Frames of files below this directory are not part of the user's traceback."""


class Kind(IntEnum):
    """What the bytes of an outcome hold."""

    VALUE = 0
    EXCEPTION = 1
    BROKEN = 2  # an exception of the pool's initializer: the task did not run
    BATCH = 3  # the outcomes of several tasks
    TURN = 4  # what a worker reports of its turn in a range
    LOST = 5  # how the task's process was ended, or has ended, under it


CONTRIBUTES: Final = 1 << 4
"""Added to a kind.  Of a row: the outcome carries what its tasks add to accumulators.  Of one task
of a batch: the outcome counts when the row is DONE and not before, because what was added does."""

APART: Final = 1 << 5
"""Added to a kind of one task of a batch: what follows says where in the window the outcome is."""

_VALUE: Final = int(Kind.VALUE)
_EXCEPTION: Final = int(Kind.EXCEPTION)
_NONE: Final = encode(None)
_HOME: Final = Refer(refer_home)


class _Envelope(NamedTuple):
    """What crosses for an exception; the module's docstring has the words."""

    pickled: bytes
    summary: str
    text: str
    reason: str
    task: str
    rank: int | None
    host: str


def pack_value(value: object, task: object = None) -> Encoded:
    """Encode what a task returned, for `unpack_outcome` with ``Kind.VALUE``.

    Parameters
    ----------
    value : object
    task : callable or str, optional
        The task's function, or its name: for the message.

    Raises
    ------
    SerializationError
        The value cannot be pickled: send this error on by `pack_exception`.

    Notes
    -----
    Cost: 0.1 us for None, else as `encode`.
    """
    if value is None:
        return _NONE
    try:
        if away():
            with suppress(UnknownDefinition):
                return encode(value, refer=_HOME)
        return encode(value)
    except (interrupts(), MemoryError):
        raise
    except BaseException as error:  # __reduce__ may raise anything, SystemExit included
        if isinstance(value, CoroutineType):
            value.close()  # nobody awaits it
            raise SerializationError(
                f"task {task_name(task)} is an async function: have a task call asyncio.run itself"
            ) from None
        if isinstance(value, GeneratorType):
            raise SerializationError(
                f"task {task_name(task)} yields its results, or returns a generator: have it "
                "return a list"
            ) from None
        from .blame import as_called

        raise SerializationError(
            f"cannot pickle the result of task {task_name(task)}, which is of type "
            f"{type_name(value)}: {said(error)}; return plain data from it, or give its class "
            "__reduce__"
        ) from as_called(error)


def pack_exception(exc: BaseException, *, task: object, rank: int | None, host: str) -> bytes:
    """Encode what a task raised, or what has come between its outcome and its future.

    For `unpack_outcome` with ``Kind.EXCEPTION``.  It is restored once here, to be sure that it can
    be.  Raises nothing, whatever the methods of the exception do.

    Parameters
    ----------
    exc : BaseException
    task : callable, str or None
        The task's function, or its name; None where that is not known.
    rank : int or None
        The worker's rank; None for the driver.
    host : str
        Where that is.

    Notes
    -----
    Cost: 100 us, mostly for the traceback.
    """
    pickled, reason = _pickle_exception(exc)
    name = "" if task is None else task_name(task)
    envelope = _Envelope(pickled, said(exc), _traceback_text(exc), reason, name, rank, host)
    return dumps(tuple(envelope), PROTOCOL)


def unpack_outcome(
    kind: int, buffer: Buffer, task: object = None
) -> tuple[Any, BaseException | None]:
    """Restore an outcome; `buffer` and `task` are as for `unpack` and `pack_value`.

    Returns
    -------
    value : object
        What the task returned; None if it raised.
    exception : BaseException or None
        What the task raised, with a `RemoteTraceback` as its cause. A `TaskError` stands in for
        an exception that could not travel, and a `SerializationError` for a value that cannot
        be restored here.

    Notes
    -----
    Cost: 0.2 us for a value that is an atom, 5 us for an exception.
    """
    try:
        if kind == _VALUE:
            return decode(buffer), None
        if kind not in (_EXCEPTION, Kind.BROKEN):
            raise SerializationError(f"an outcome is of kind 0 to 2, not {kind}")
        envelope = _Envelope(*decode(buffer))
    except interrupts():
        raise
    except MemoryError as error:
        return None, error
    except BaseException as error:  # __setstate__ may raise anything, SystemExit included
        what, remedy = f"the outcome of task {task_name(task)}", "return plain data from it"
        failure = unrestored(what, error, "the driver", remedy)
        failure.__cause__ = error
        return None, failure
    return None, _open(envelope, task)


def _open(envelope: _Envelope, task: object) -> BaseException:
    """Return the exception in an envelope, or the TaskError that stands in for it."""
    exc: BaseException | None = None
    reason = envelope.reason
    if not reason:
        try:
            exc = loads(envelope.pickled)
        except interrupts():
            raise
        except BaseException as error:  # __setstate__ may raise anything, SystemExit included
            reason = f"it cannot be restored here: {said(error)}"
    if not isinstance(exc, BaseException):
        exc = TaskError(
            f"task {task_name(task)} raised {envelope.summary} [this TaskError stands in for "
            f"it: {reason}; give its class __reduce__, or raise an exception of plain data]"
        )
    name, rank, host = envelope.task or task_name(task), envelope.rank, envelope.host
    where = "the driver" if rank is None else f"worker rank {rank}"
    cause = RemoteTraceback(f"{envelope.text}### task {name}, {where} on {host}", name, rank, host)
    # Past what its class makes of attributes: that of a frozen dataclass cannot be assigned to.
    BaseException.__dict__["__cause__"].__set__(exc, cause)
    return exc


class _Rehearsal(Unpickler):
    """Restores a pickle where it was made, without writing to the classes that it contains."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what the pickle names; for what fills classes, what does nothing."""
        found = super().find_class(module, name)
        fills = found is update_class or found is set_first
        return (lambda cls, content: None) if fills else found


def _by_name(exc: BaseException) -> bytes | None:
    pickled = dumps_exception(exc)
    return None if names_by_value(pickled) else pickled


def _by_value(exc: BaseException) -> bytes:
    from .byvalue import ExceptionPickler, dumps_by_value  # and with it cloudpickle

    return dumps_by_value(exc, pickler=ExceptionPickler)


def _as_its_class_says(exc: BaseException) -> bytes:
    from .byvalue import dumps_by_value

    return dumps_by_value(exc)


def _pickle_exception(exc: BaseException) -> tuple[bytes, str]:
    """Return an exception's pickle, or nothing and the reason why it has none."""
    reason = ""
    for dump in (_by_name, _by_value, _as_its_class_says):
        try:
            pickled = dump(exc)
            if pickled is None:
                continue
            copy = _Rehearsal(BytesIO(pickled)).load()
            if isinstance(copy, BaseException):
                return pickled, ""
            reason = f"its pickle restores an object of type {type_name(copy)}"
        except BaseException as error:  # the exception's own methods
            reason = f"it cannot be pickled and restored: {said(error)}"
    return b"", reason


def _traceback_text(exc: BaseException) -> str:
    """Return an exception's traceback with its chain, from the first frame of the user's."""
    try:
        first = exc.__traceback__
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            first = first.tb_next
        shown = traceback.TracebackException(type(exc), exc, first or exc.__traceback__)
        return "".join(shown.format())
    except BaseException as error:  # the exception's own methods
        return f"{type_name(exc)}, whose traceback cannot be formatted: {said(error)}\n"
