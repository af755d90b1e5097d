"""The command that runs this Python anew, with the options that it was given."""

from __future__ import annotations

import subprocess
import sys


def python() -> list[str]:
    """Return its words, before those of the program: ``-O``, ``-X dev``, ``-W error`` and the rest.

    What stands in the environment need not be passed on, but may be.
    """
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    for name, value in sys._xoptions.items():  # of these it returns but a few
        flags.append(f"-X{name}" if value is True else f"-X{name}={value}")
    if getattr(sys.__stdout__, "write_through", False):
        flags.append("-u")  # which is in none of `sys.flags`
    return [sys.executable, *flags]
