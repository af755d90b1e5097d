"""Loads MPI, with environment variables that keep it from what nobody needs, or what hurts.

What a user has set stands.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ResourceError
from ..system.shared_memory import may_copy, segments
from ..system.supervisor import on_several_hosts

__all__ = ["MPI", "loading", "unshared"]

#: UCX, which comes with MPICH and with Open MPI, watches every mmap and munmap of the process, lest
#: memory that a network's adapter knows changes unseen.  To begin with that takes 40 ms.
_WATCH = "UCX_MEM_MMAP_HOOK_MODE"

#: Which ways UCX may take.  On one host MPICH takes none of them, but UCX looks at all network
#: interfaces for each, 15 ms of every rank's start; what a rank spawns finds it by these.
_WAYS = "UCX_TLS"

#: Both prepare 4 MB in each rank.  By files, in /dev/shm, 15 ranks find no room for that in the
#: 64 MB of a container, and die of a bus error.
_BY_SEGMENTS, _BY_FILES = "sysv,self", "posix,self"

#: Says to mpi4py where an MPI is.
_LIBRARY = "MPI4PY_LIBMPI"

#: Whether MPICH may copy from process to process.
_COPIES = "MPIR_CVAR_CH4_CMA_ENABLE"

#: Which components Open MPI may take for windows.
_WINDOWS = "OMPI_MCA_osc"

_WITHOUT_ADAPTER = {
    _WINDOWS: "^ucx",  # complains at the start of Open MPI
    "OMPI_MCA_btl": "^ofi",  # looks for an adapter for 1 s
    _WATCH: "none",
}


#: Where a job has several hosts, Open MPI 5 would leave 656 bytes with the target of each Put of 4
#: KB and more, for good, if both ranks are on one host and it copies from process to process.
_COPIES_TWICE = {"OMPI_MCA_smsc": "^cma,knem,xpmem"}


@contextmanager
def loading() -> Iterator[None]:
    """Tell the MPI that is loaded now what to do otherwise than it would.

    Other MPIs do not know these variables, and do not mind them.
    """
    wanted = {
        # Open MPI 4 would take its one-sided component for networks on one host too, and breaks off
        # in it (4.1.4); without this mechanism it takes the one for shared memory.  Version 5 has
        # no such mechanism.
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        # UCX would take SIGHUP for the wish to see all that it does, and the process live on.
        "UCX_DEBUG_SIGNO": "0",
        # MPICH would look in each flush whether others want something done here, and leave the core
        # for it: 0.6 us, and a time slice where ranks share cores.  So it does so seldom, until
        # somebody has wanted something (on another host: on this one they do it themselves).
        "MPIR_CVAR_CH4_RMA_ENABLE_DYNAMIC_AM_PROGRESS": "1",
        # Each accumulate of MPICH 5 would keep 128 bytes for good.
        "MPIR_CVAR_ENABLE_YAKSA_REDUCTION": "0",
        # Open MPI would show the stack of C at a signal that ends the process.  For that it wants
        # memory: where it was the heap that is damaged, the process would never end.
        "OMPI_MCA_opal_signal": "",
        # Open MPI does not start without one.
        "HOME": os.path.expanduser("~"),
    }
    if not os.path.isdir("/sys/class/infiniband"):
        wanted.update(_WITHOUT_ADAPTER)
        if os.environ.get("MPI_LOCALNRANKS") == os.environ.get("PMI_SIZE", ""):
            wanted[_WAYS] = _BY_SEGMENTS if segments() else _BY_FILES
    if on_several_hosts():
        wanted.update(_COPIES_TWICE)
    if not may_copy():
        wanted[_COPIES] = "0"  # MPICH 5 would find that out as it starts, and break off
    # Read, and then taken back: what this process starts may run where there is an adapter.
    spared = {_WATCH, _WAYS, "HOME"} & (wanted.keys() - os.environ.keys())
    for name, value in wanted.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in spared:
            os.environ.pop(name, None)


def unshared() -> str:
    """Return by which choice of the user's Open MPI has no windows in shared memory; else ""."""
    choice = os.environ.get(_WINDOWS, "")
    named = "sm" in choice.lstrip("^").split(",")
    return f"{_WINDOWS}={choice}" if choice and named == choice.startswith("^") else ""


def _library_of(package: str) -> str:
    """Return where an MPI is in the environment that mpi4py itself is in; nothing if there is none.

    mpi4py looks in that of this Python, which `uv run --with` puts on top of another.
    """
    place = os.path.abspath(os.path.join(package, *[os.pardir] * 4, "lib"))
    there = os.path.isdir(place) and any(it.startswith("libmpi.so") for it in os.listdir(place))
    return place if there else ""


def _why(error: Exception) -> str:
    """Return why no MPI was found, and what is amiss with one that was; not where mpi4py looked."""
    first, *more = str(error).splitlines() or [type(error).__name__]
    amiss = [line for line in more if not re.search(r"libmpi[\w.]*: cannot open", line)]
    return "; ".join([first, *amiss])


with loading():
    try:
        try:
            from mpi4py import MPI
        except RuntimeError:  # it has found no MPI
            place = _library_of(sys.modules["mpi4py"].__path__[0])
            if not place or _LIBRARY in os.environ:
                raise
            os.environ[_LIBRARY] = place
            try:
                from mpi4py import MPI
            finally:
                del os.environ[_LIBRARY]
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
            raise ResourceError(
                f"{sys.executable} has no mpi4py: use the Python of the environment that has it, "
                "or install it, and an MPI if there is none: python -m pip install mpi4py mpich"
            ) from None
        raise ResourceError(
            f"mpi4py cannot load an MPI library in {sys.executable}: {_why(error)}: install one, "
            "for example: python -m pip install mpich; or load that of the cluster: module load ..."
        ) from None
