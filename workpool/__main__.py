"""``mpiexec -n 5 python -m workpool driver.py``: rank 0 runs the program, the others serve it."""

from __future__ import annotations

import gc

gc.disable()  # until everything is imported: what that makes is there to stay

import atexit
import functools
import os
import signal
import sys
import time
from typing import TextIO

from .errors import ResourceError, UsageError
from .job import survival
from .launch import program
from .launch.program import Program
from .members.liveness import check_proc
from .system.ranks import (
    forget_line,
    is_alone,
    is_by_intel,
    may_be_first,
    rank_here,
    size_here,
    step_size,
)
from .system.shared_memory import too_little
from .system.status import Reporter
from .system.streams import flush, say, write_files

#: How long the other ranks leave rank 0 to say what is wrong.
_PATIENCE_S = 3.0

_HELP = f"""\
usage: mpiexec -n N python -m workpool {program.USAGE}

Run a Python program on rank 0 as its __main__; the other N - 1 ranks are its workers.

  pyfile      a script, or a directory or a zip file with a __main__.py
  -m module   a module, found as python finds it
  -c command  a program as text
  -           a program from standard input
  -h, --help  show this and exit

Easier: `workpool run -w N {program.USAGE}` finds mpiexec by itself.
"""


def main() -> int:
    """Run this rank's part of the program, and return the rank's exit status."""
    words = sys.argv[1:]
    if words and words[0] in program.COMMANDS and (rank_here() is None or is_alone()):
        from .launch import cli  # no rank needs it

        gc.enable()
        return cli.main(words)
    # Before the reporter, so called after it: a launcher that was told of the end leaves us
    # `--grace` seconds for all the rest.
    atexit.register(write_files)
    reporter = Reporter()
    if words[:1] in (["-h"], ["--help"]):
        return _say_once(_HELP, sys.stdout, 0)
    if not words:
        return _say_once(_HELP, sys.stderr, 2)
    try:
        found = program.parse(words)
    except UsageError as error:
        return _say_once(f"python -m workpool: {error}\n", sys.stderr, 2)
    found.enter()
    _import_half()
    if may_be_first() and (text := too_little(size_here())):  # Open MPI may manage with that
        say(text)
    try:
        if size_here() > 1:
            check_proc()
        from . import rma
    except ResourceError as error:  # there is no MPI, or no /proc: mostly on no rank
        status = _say_once(f"python -m workpool: {error}\n", sys.stderr, 1)
        if not may_be_first():  # rank 0 has not failed by it: it would have ended us
            say(f"{rank_here()} on {os.uname().nodename}: {error}")
        if not survival.survives():
            _end_by_signal()
        return status

    gc.freeze()  # without the group: a pool refers to it, and what is frozen is never freed
    try:
        group = rma.Group(mortal=survival.survives())
        if group.size == 1 and (tasks := step_size() or 1) > 1:
            raise UsageError(
                f"srun has started this {tasks} times, and MPI knows of this process alone: they "
                "speak no PMI in common; try others (srun --mpi=list), or `workpool run`"
            )
    except UsageError as error:
        return _say_once(f"python -m workpool: {error}\n", sys.stderr, 2)
    if survival.survives():
        survival.spare_programs()
    forget_line()
    gc.enable()
    if group.rank > 0:
        from .job import service

        return service.launch(group)
    from .job import entry

    status = entry.launch(group, functools.partial(_drive, found, reporter), reporter)
    reporter.ended(status)
    return 0 if reporter.heard else status  # MPI remarks upon every status but 0


def _import_half() -> None:
    """Import what this rank is going to need, the driver's half or the worker's.

    Before MPI is started, for there the ranks that are first keep the cores busy with waiting.
    """
    if may_be_first():
        from .job import entry  # noqa: F401
        from .pool import executor  # noqa: F401
    else:
        from .job import service  # noqa: F401
        from .worker import worker  # noqa: F401


def _drive(found: Program, reporter: Reporter) -> None:
    """Run the program on rank 0."""
    from .job import entry
    from .job.drain import leave

    reporter.begin()
    liveness = entry.current().liveness
    if liveness is not None:
        reporter.hosts([process.host for process in liveness.members])
    if reporter.heard:
        for signum in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) is signal.SIG_DFL:
                signal.signal(signum, leave)
    try:
        found.check()  # here alone: the hosts of the others may not have it, and need not
    except UsageError as error:
        print(f"python -m workpool: {error}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None
    try:
        found.run(relayed=not (reporter.heard or os.isatty(0)))
    except SystemExit:
        raise
    except BaseException as error:
        # Not by its own method, which may be the program's.
        BaseException.with_traceback(error, program.trimmed(error.__traceback__))
        raise


def _say_once(text: str, stream: TextIO, status: int) -> int:
    """Write `text` if this is rank 0, as far as one can know before MPI is started."""
    if may_be_first():
        print(text, end="", file=stream, flush=True)
    elif status:  # the first rank to fail ends the job under Open MPI: let rank 0 say why
        time.sleep(_PATIENCE_S)
    return status


def _end_by_signal(error: BaseException | None = None) -> None:
    """End this rank by a signal if it fails before it has joined the others, and say by what error.

    MPICH's mpiexec lets them wait for ever for one that has left by itself before MPI was started;
    Intel's for one that was killed as well, unless whoever started us ends.
    """
    if size_here() > 1 and "mpi4py.MPI" not in sys.modules:
        if error is not None:  # else that is said
            sys.excepthook(type(error), error, error.__traceback__)
        flush()
        # Mpiexec may lose what was written just before the end.  And it ends the others at once:
        # before that the launcher is to see which files MPI has made for them.
        time.sleep(0.5)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getppid() if is_by_intel() else os.getpid(), signal.SIGTERM)


def run() -> None:
    """Run this rank's part of the program, and end as its status says."""
    if not survival.survives():
        try:
            status = main()
        except BaseException as error:
            _end_by_signal(error)
            raise
        exec("")  # else Python ends by SIGINT if a text (-c) has raised KeyboardInterrupt
        if status:  # SystemExit is an error where Python is to go on with its prompt
            raise SystemExit(status)
        return
    try:
        status = main()
    except BaseException as error:  # already told to a launcher, which then has ended us
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    survival.exit_without_mpi(status)


if __name__ == "__main__":
    run()
