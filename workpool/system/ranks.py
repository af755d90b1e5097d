"""What the environment tells a process of its rank, before MPI is started.

The process manager says so by some variables.  By others it names the *line* that each rank has to
it, a PMI or PMIx connection.  When MPI has taken up the line, a rank drops these (`forget_line`): a
program that a task starts, if it uses MPI, would seize the line and fail.  A rank's number without
a line is an ancestor's, and counts for nothing here.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from .supervisor import RANK_VARIABLES

#: Variables by which an mpiexec tells a process of how many ranks it is one.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")

#: The variable by which srun tells a process of how many it is one, whether they are ranks or not.
_STEP = "SLURM_STEP_NUM_TASKS"

#: Variables by which batch systems say for how many ranks they have room.
_ROOM = ("SLURM_NTASKS", "PBS_NP", "LSB_DJOB_NUMPROC", "NSLOTS")

#: Beginnings of the names of variables that make a process a rank.
_OF_A_RANK = re.compile("PMI_|PMIX_(?!MCA_)|OMPI_COMM_WORLD_")

#: Those that name the line: of hydra and Slurm, of process managers with a port, of Cray, of PMIx.
_LINE = re.compile("PMI_FD$|PMI_PORT$|PMI_CONTROL_PORT$|PMIX_(?!MCA_)")


def rank_here() -> str | None:
    """Return the variable that makes this process a rank, as ``NAME=rank``, None if none does."""
    found = (name for name in RANK_VARIABLES if name in os.environ and _has_line())
    return next((f"{name}={os.environ[name]}" for name in found), None)


def may_be_first() -> bool:
    """Return whether this process may be rank 0, as far as one can know."""
    here = rank_here()
    return here is None or here.endswith("=0")


def size_here() -> int:
    """Return how many ranks an mpiexec has started, as far as one can know; else 1."""
    found = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdigit()]
    return max(map(int, found), default=1) if _has_line() else 1


def is_alone() -> bool:
    """Return whether this is the only process of its job, as the shell of ``srun --pty`` is."""
    return step_size() == 1 if not any(name in os.environ for name in _SIZES) else size_here() == 1


def is_by_intel() -> bool:
    """Return whether the mpiexec of Intel MPI has started this rank."""
    return "I_MPI_HYDRA_UUID" in os.environ


def step_size() -> int | None:
    """Return how many processes srun has started, if that is all that is known of ranks."""
    given = os.environ.get(_STEP, "")
    return int(given) if given.isdigit() and not any(map(os.environ.get, _SIZES)) else None


def room() -> int | None:
    """Return for how many ranks a batch system has room; None if there is none, or it is silent."""
    for name in _ROOM:
        given = os.environ.get(name, "")
        if given.isdigit():
            return int(given)
    with suppress(OSError), open(os.environ.get("PBS_NODEFILE", ""), "rb") as nodes:
        return len(nodes.read().split())
    return None  # it may be a file of another host


def forget_line() -> None:
    """Drop the variables that name the line to the process manager, which MPI has taken up.

    And what srun says of this process: it does not hold for a program that a task starts.

    The numbers stay: programs look at them, to share out a host's devices for example.  Processes
    that are forked drop hydra's line itself, for its end is how hydra sees that a rank has died.
    """
    fd = os.environ.get("PMI_FD", "")
    line = [int(fd)] if fd.isdigit() else []

    def let_go() -> None:
        while line:  # once: to a fork of the fork the number is another file's
            with suppress(OSError):
                os.close(line.pop())

    os.register_at_fork(after_in_child=let_go)
    for name in (os.environ.keys() - without_line().keys()) | ({_STEP} & os.environ.keys()):
        del os.environ[name]


def without_line() -> dict[str, str]:
    """Return our environment for a process that must not seize the line of this rank."""
    return {name: value for name, value in os.environ.items() if not _LINE.match(name)}


def without_rank() -> dict[str, str]:
    """Return our environment for a process that is no rank of this job."""
    return {name: value for name, value in os.environ.items() if not _OF_A_RANK.match(name)}


def _has_line() -> bool:
    return any(map(_LINE.match, os.environ))
