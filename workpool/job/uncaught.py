"""An error that nobody has caught: whether one has ended the program, and how it is shown."""

from __future__ import annotations

import sys
from contextlib import suppress

from ..system.status import exit_status


def uncaught() -> BaseException | None:
    """Return the error that has ended the program; None if none has."""
    error: BaseException | None = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    trace = None if error is None else error.__traceback__
    if trace is None or hasattr(sys, "ps1"):  # the second in an interactive session
        return None
    # It may have been shown by something else than the program's end: C that has called Python.
    frame = trace.tb_frame
    main = vars(sys.modules.get("__main__", sys))
    return error if frame.f_globals is main or "runpy" in frame.f_code.co_filename else None


def show(error: BaseException) -> int:
    """Show an error that nobody has caught, and return the status of the job, as Python does."""
    if isinstance(error, SystemExit):
        return exit_status(error)
    status = 130 if isinstance(error, KeyboardInterrupt) else 1
    trace = None
    try:
        trace = error.__traceback__
        if trace is not None:
            trace = trace.tb_next  # from the program's first frame
        sys.excepthook(type(error), BaseException.with_traceback(error, trace), trace)
    except SystemExit as end:
        status = exit_status(end)
    except BaseException as failure:  # the program's own hook
        with suppress(BaseException):
            print("Error in sys.excepthook:", file=sys.stderr)
            own = failure.__traceback__.tb_next if failure.__traceback__ else None
            sys.__excepthook__(type(failure), failure.with_traceback(own), own)
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(type(error), error, trace)
    return status
