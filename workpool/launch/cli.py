"""``workpool run | info | bench | journal``: start ranks, look at the MPI, at what was stored."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ..errors import ResourceError, UsageError
from ..system.cores import cores
from ..system.python import python
from ..system.ranks import room
from ..system.status import GRACE_S
from ..system.streams import flush_last
from . import launcher, mpiexec, program

_RUN_TEXT = f"""\
Run a Python program with N workers: start N + 1 ranks under the mpiexec that belongs to mpi4py's
MPI. Rank 0 runs the program as its __main__, the others are its workers. The exit status is the
program's; Ctrl-C is a KeyboardInterrupt in the program, a second one soon after ends the job.

program:
  {program.USAGE}
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes no beginning of an option for the option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if words is None else words)
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if words == ["--version"]:
        from importlib.metadata import version  # a job starts sooner without it

        print(version("workpool"))
        return 0
    options, rest = words, list[str]()
    if words[0] not in (*_COMMANDS, "-h", "--help"):
        parser.error(
            f"no command {words[0]!r}: there are {', '.join(_COMMANDS)}; to run a program: "
            f"workpool run [-w N] {program.USAGE}"
        )
    if words[0] == "run":
        options, rest = program.split(words[1:], _VALUED)
        options.insert(0, "run")
    given, unknown = parser.parse_known_args(_joined(options), argparse.Namespace(program=rest))
    try:
        if unknown:
            remedy = f"see workpool {given.task} --help"
            if given.task == "run":
                remedy = f"-w N is the number of workers, --mpi-args is for mpiexec's own; {remedy}"
            raise UsageError(f"unknown option {unknown[0]} ({remedy})")
        return _COMMANDS[given.task](given)
    except (UsageError, ResourceError) as error:
        print(f"workpool {given.task}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:  # before there was a job
        return 130


def _joined(words: Sequence[str]) -> list[str]:
    """Return words with the value of --mpi-args in the same one: it begins like an option."""
    joined: list[str] = []
    rest = iter(words)
    for word in rest:
        value = next(rest, None) if word == "--mpi-args" else None
        joined.append(word if value is None else f"{word}={value}")
    return joined


#: The options that take the next word as their value.
_VALUED = ("-w", "--workers", "--mpiexec", "--mpi-args", "--grace")


def _parser() -> argparse.ArgumentParser:
    job = _Parser(add_help=False)
    job.add_argument("--mpiexec", metavar="PATH", help="default: the one of mpi4py's MPI")
    job.add_argument(
        "--mpi-args",
        metavar="'ARGS'",
        type=_split,
        default=[],
        help="more options for mpiexec, in one word",
    )
    job.add_argument(
        "--grace",
        metavar="SECONDS",
        type=_seconds,
        default=GRACE_S,
        help="how long the program may take to end after a signal; running tasks have 60 %% of "
        "that (default: %(default)g)",
    )
    parser = _Parser(
        prog="workpool",
        description="A task queue in one MPI window.",
        epilog="`workpool COMMAND --help` tells the options of a command.",
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="task", metavar="COMMAND", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        parents=[job],
        help="run a Python program with workers",
        description=_RUN_TEXT,
        usage=f"workpool run [-w N] [options] {program.USAGE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "-w",
        "--workers",
        metavar="N",
        type=_workers,
        default=_usual_workers(),
        help="how many workers (default: one for each core, or what a batch job has room for "
        "beside the driver; here %(default)d)",
    )
    run.add_argument(
        "--survive",
        action="store_true",
        help="go on when a worker rank dies; without it MPI ends the job",
    )
    commands.add_parser(
        "info",
        parents=[job],
        help="show the MPI in use, and what its atomics cost here",
        description="Show the MPI in use, and what its one-sided calls cost here (2 ranks).",
    )
    commands.add_parser(
        "bench",
        parents=[job],
        help="measure tasks per second, and the time from submit to result",
        description="Measure no-op tasks: throughput with 2 workers, latency with 1 worker.",
    )
    stored = commands.add_parser(
        "journal",
        help="show what is in a journal",
        description="Show how many results a journal has, of which functions, and since when. It "
        "may be open in a job that runs. MPI is not started.",
    )
    stored.add_argument("file", metavar="FILE", help="as in WorkPool(journal=FILE)")
    return parser


#: What a rank takes of its host's memory, at the least.
_RANK_NBYTES = 10 << 20


def _run(given: argparse.Namespace) -> int:
    found = program.parse(given.program)
    found.check()
    if not mpiexec.placed(given.mpi_args):
        _check_memory(given.workers)
    words = ["workpool", *found.words()]
    interactive, survive = found.interactive, given.survive
    return _start(given, given.workers + 1, words, interactive=interactive, survive=survive)


def _info(given: argparse.Namespace) -> int:
    print(f"{'mpiexec':<22}{mpiexec.find(given.mpiexec).path}", flush=True)
    return _start(given, 2, ["workpool.launch.report", "info"])


def _bench(given: argparse.Namespace) -> int:
    return _start(given, 3, ["workpool", "-m", "workpool.launch.report", "bench"])


def _journal(given: argparse.Namespace) -> int:
    from ..journal import report  # a job starts sooner without it

    with suppress(BrokenPipeError):  # nobody reads on: ``workpool journal FILE | head``
        report.show(given.file)
    flush_last()
    return 0


#: What the first word may be, and what it does.
_COMMANDS = {"run": _run, "info": _info, "bench": _bench, "journal": _journal}


def _start(given: argparse.Namespace, ranks: int, words: list[str], **options: bool) -> int:
    """Have so many ranks run ``python -m`` and these words; return the driver's exit status.

    With the options that this Python was given, as processes of ``multiprocessing`` are.
    """
    return launcher.run(
        [*python(), "-m", *words],
        ranks,
        mpiexec=given.mpiexec,
        mpi_args=given.mpi_args,
        grace_s=given.grace,
        **options,
    )


def _check_memory(workers: int) -> None:
    """Raise if so many ranks would take all of this host's memory, and with it the host."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (workers + 1) * _RANK_NBYTES > here:
        raise UsageError(
            f"-w {workers}: so many ranks take more than the {here >> 30} GiB of memory that this "
            "host has; to start them on several hosts, see --mpi-args"
        )


def _usual_workers() -> int:
    """Return one worker for each core, or for each rank but one that a batch system has given."""
    ranks = room()
    if ranks is not None and ranks > 1:
        return ranks - 1
    return cores()


def _workers(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} workers: give a number from 1 up")
    return number


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:  # a quotation without an end
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
