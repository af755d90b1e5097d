"""What is done when somebody ends MPI while a job needs it."""

from __future__ import annotations

from collections.abc import Callable

from .mpi import MPI

#: What is said where nothing else can be done; `where` is a task, or a kind of job; `what` ends.
HANGS = "MPI.Finalize() in {where} would never return: leave it out; the {what} ends here"

_finalize = MPI.Finalize
_before: Callable[[], object] | None = None
_within: Callable[[], object] | None = None
_keyval: int | None = None


def at_finalize(
    before: Callable[[], object] | None, within: Callable[[], object] | None = None
) -> None:
    """Have this done when the program calls ``MPI.Finalize``, in place of what was given before.

    Parameters
    ----------
    before : callable or None
        Called before, by mpi4py's ``MPI.Finalize``.
    within : callable, optional
        Called at the start of ``MPI_Finalize``, whoever has called that.  It must not wait for
        other threads: MPICH keeps them out of MPI meanwhile.

    Notes
    -----
    The first thing that ``MPI_Finalize`` does is to delete the attributes of ``MPI_COMM_SELF``
    (MPI-4.1, "Allowing User Functions at MPI Finalization").
    """
    global _before, _within, _keyval
    _before, _within = before, within
    if _keyval is None:
        MPI.Finalize = _finalize_after
        _keyval = MPI.Comm.Create_keyval(delete_fn=_delete)
        MPI.COMM_SELF.Set_attr(_keyval, None)


def _finalize_after() -> None:
    """End the job that needs MPI, and then MPI: in the place of mpi4py's ``MPI.Finalize``."""
    if _before is not None:
        _before()
    _finalize()


def _delete(comm: MPI.Comm, keyval: int, value: object) -> None:
    if _within is not None:
        _within()
