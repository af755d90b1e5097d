"""What is done when somebody ends MPI while a job needs it."""

from __future__ import annotations

from collections.abc import Callable

from .mpi import MPI

_action: Callable[[], object] | None = None
_keyval: int | None = None


def at_finalize(action: Callable[[], object] | None) -> None:
    """Have `action` done at the start of ``MPI_Finalize``, in place of what was to be done there.

    All of MPI still works then: the first thing that it does is to delete the attributes of
    ``MPI_COMM_SELF`` (MPI-4.1, "Allowing User Functions at MPI Finalization").
    """
    global _action, _keyval
    _action = action
    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval(delete_fn=_act)
        MPI.COMM_SELF.Set_attr(_keyval, None)


def _act(comm: MPI.Comm, keyval: int, value: object) -> None:
    if _action is not None:
        _action()
