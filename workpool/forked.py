"""What stands for a lock in a process that was forked from the driver's."""

from __future__ import annotations

from typing import Final, NoReturn

from .errors import UsageError

FORKED: Final = (
    "a pool in a process that was forked from the driver's: it is the driver's alone; submit "
    "there, or have processes started by spawn or forkserver"
)


class Forked:
    """Refuses to be held, and to be asked whether it is: the table is the parent's alone.

    A child that went on with it would publish into the same rows, collect the same outcomes, and
    call the MPI of its parent.
    """

    def __enter__(self) -> NoReturn:
        self._is_owned()

    def __exit__(self, *raised: object) -> None:
        """Nothing was entered."""

    def _is_owned(self) -> NoReturn:
        raise UsageError(FORKED)
