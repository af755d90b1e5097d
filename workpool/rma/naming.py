"""An MPI and its window described in words: for ``workpool info``, and for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..system.shared_memory import SHM, free
from .mpi import MPI

if TYPE_CHECKING:
    from .group import Group
    from .window import Window

LEVELS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def library_version() -> str:
    """Return the first line with which the MPI library names itself.  MPI need not be started."""
    return " ".join(MPI.Get_library_version().strip("\x00").splitlines()[0].split())


def info(group: Group, window: Window) -> dict[str, str]:
    """Return what can be said about an MPI and a window in it."""
    flavors = {MPI.WIN_FLAVOR_ALLOCATE: "allocate", MPI.WIN_FLAVOR_SHARED: "shared"}  # ours
    models = {MPI.WIN_SEPARATE: "separate", MPI.WIN_UNIFIED: "unified"}
    left = free()
    return {
        "MPI library": library_version(),
        "MPI standard": ".".join(map(str, MPI.Get_version())),
        "thread level": LEVELS[MPI.Query_thread()],
        "ranks": f"{group.size} on {'one host' if group.one_host else 'several hosts'}",
        "window flavour": flavors[window._win.flavor],
        "memory model": models[window._win.model],
        "progress": "by a thread on the host" if window._ticker else "without the host",
        "shared memory free": "none" if left is None else f"{left / 2**30:.2f} GiB in {SHM}",
    }
