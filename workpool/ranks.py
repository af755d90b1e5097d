"""What a process knows of its rank before MPI is started."""

from __future__ import annotations

import os

from .supervisor import RANK_VARIABLES

__all__ = ["may_be_first", "rank_here", "size_here"]

#: Variables by which an mpiexec tells a process of how many ranks it is one.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


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
