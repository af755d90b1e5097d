"""What the driver and its workers do together: when a job begins, and when it opens a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import layout
from ..members.liveness import Liveness, check_proc, this_process
from .control import Choice

if TYPE_CHECKING:
    from .. import rma


def meet(group: rma.Group) -> Liveness:
    """Tell each other who we are.  Collective."""
    check_proc()
    here = this_process()._replace(rank=group.outer(group.rank))
    return Liveness(group.gather(here), here)


def open_window(group: rma.Group, choice: Choice) -> rma.Window:
    """Allocate a table's window.  Collective."""
    geometry = choice.geometry()
    window = group.allocate(
        geometry.nbytes,
        choice.repository,
        geometry.table_nbytes,
        geometry.identity(),
        geometry.watched_nbytes,
    )
    identity = bytearray(layout.IDENTITY_NBYTES)
    window.get(0, identity)
    window.flush()  # the bytes are here only after it
    geometry.check_identity(identity)
    return window
