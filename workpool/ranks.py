"""What a process knows of its rank before MPI is started."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from .supervisor import RANK_VARIABLES

__all__ = ["is_alone", "may_be_first", "rank_here", "size_here", "without_rank"]

#: Variables by which an mpiexec tells a process of how many ranks it is one.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")

#: Beginnings of the names of variables that make a process a rank.
_OF_A_RANK = re.compile("PMI_|PMIX_(?!MCA_)|OMPI_COMM_WORLD_")


def rank_here() -> str | None:
    """Return the variable that makes this process a rank, as ``NAME=rank``, None if none does."""
    found = (name for name in RANK_VARIABLES if name in os.environ)
    return next((f"{name}={os.environ[name]}" for name in found), None)


def may_be_first() -> bool:
    """Return whether this process may be rank 0, as far as one can know."""
    here = rank_here()
    return here is None or here.endswith("=0")


def size_here() -> int:
    """Return how many ranks an mpiexec has started, as far as one can know; else 1."""
    found = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdigit()]
    return max(map(int, found), default=1)


def is_alone() -> bool:
    """Return whether this is the only process of its job, as the shell of ``srun --pty`` is."""
    alone = os.environ.get("SLURM_STEP_NUM_TASKS") == "1"
    return alone if not any(name in os.environ for name in _SIZES) else size_here() == 1


def without_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that is no rank of this job."""
    return {name: value for name, value in environ.items() if not _OF_A_RANK.match(name)}
