"""What messages say of tasks, values and errors, and of what cannot be restored."""

from __future__ import annotations

import functools
from typing import Final

from ..errors import SerializationError, UsageError

_REMEDY: Final = (
    "build what cannot be pickled and restored in the task or in the initializer, "
    "and read what a module has as module.name"
)


def unrestored(
    what: str, error: BaseException, where: str = "a worker", remedy: str = _REMEDY
) -> SerializationError:
    """Return the error of what cannot be restored; whoever raises it gives it its cause.

    `error` is what restoring it has raised; `remedy` is for where it lacks neither module nor key.
    """
    if isinstance(error, UsageError):  # it says itself what to do
        return SerializationError(f"cannot restore {what}: {error}")
    if isinstance(error, ImportError):
        remedy = f"{where} must be able to import every module that this comes from"
        if where == "a worker":
            remedy += (
                ", along its own sys.path and the script's as it was when the pool was made; "
                "one on neither can be given to cloudpickle.register_pickle_by_value"
            )
    elif type_name(error) == "multiprocessing.context.AuthenticationError":
        remedy = (
            "a pool knows the key of multiprocessing's managers if that is imported before the "
            "pool is made"
        )
    return SerializationError(f"cannot restore {what}: {said(error)}; {remedy}")


def task_name(task: object) -> str:
    """Return what messages call a task: the qualified name of its callable; a str is itself."""
    if task is None:
        return "of unknown name"
    if isinstance(task, str):
        return task
    if isinstance(task, functools.partial):
        return f"partial({task_name(task.func)})"
    try:
        name = getattr(task, "__qualname__", None)
    except Exception:  # the user's own code
        name = None
    return name if isinstance(name, str) else type_name(task)


def type_name(value: object) -> str:
    """Return the name of a value's type, with its module unless it is a builtin."""
    of_type = type.__getattribute__  # past what a metaclass makes of attributes
    try:
        module, name = of_type(type(value), "__module__"), of_type(type(value), "__qualname__")
    except Exception:  # the user's own code all the same
        return "a type without a name"
    return str(name) if module == "builtins" else f"{module}.{name}"


def said(error: BaseException) -> str:
    """Return the type and the message of an error on one line, whatever its ``__str__`` does."""
    try:
        text = str(error)
    except BaseException as failure:  # the user's own code
        text = f"<its __str__ raised {type(failure).__name__}>"
    return f"{type_name(error)}: {text}" if text else type_name(error)
