"""``collect`` and ``compose`` of ``mpi4py.futures``, for the futures of a pool.

mpi4py makes each new future of the class of an old one, and ends it itself; but the future of a
pool is ended by its task alone.  So mpi4py is given a plain future that *follows* it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from ..pool.future import PoolFuture
from . import mpi4py_own

F = TypeVar("F", bound="Future[Any]")

_theirs = mpi4py_own("mpi4py.futures")


def collect(fs: Iterable[Future[Any]]) -> Future[list[Any]]:
    """Return one future of the results of several, in their order.

    Parameters
    ----------
    fs : iterable of Future
        The same one may come more than once.

    Returns
    -------
    Future
        It fails, or is cancelled, as soon as one of them does; then, and if it is cancelled itself,
        the others are cancelled.

    Notes
    -----
    RMA cost: that of the cancels.
    """
    found = list(fs)
    plain = {future: _plain(future) for future in found}
    result: Future[list[Any]] = _theirs.collect([plain[future] for future in found])
    return result


def compose(
    future: Future[Any],
    resulthook: Callable[[Any], Any] | None = None,
    excepthook: Callable[[BaseException], Any] | None = None,
) -> Future[Any]:
    """Return a future of what a function makes of the outcome of another.

    Parameters
    ----------
    future : Future
    resulthook : callable, optional
        Called with the result; what it returns is that of the new future.
    excepthook : callable, optional
        Called with the exception.  If it returns one, the new future has that; else what it returns
        is the result.

    Returns
    -------
    Future
        It fails if a function fails.  To cancel it is to cancel the other, and the other way round.

    Notes
    -----
    RMA cost: that of a cancel.
    """
    result: Future[Any] = _theirs.compose(_plain(future), resulthook, excepthook)
    return result


def _plain(future: Future[Any]) -> Future[Any]:
    return follow(future, Future) if isinstance(future, PoolFuture) else future


def follow(future: Future[Any], kind: type[F]) -> F:
    """Return a future of some kind that ends as another does; to cancel it is to cancel that."""
    follower = kind()
    # Each is dropped when it is not needed any more: else they would keep each other, and a result.
    leading, following = [future], [follower]

    def leader_ended(leader: Future[Any]) -> None:
        try:
            follower = following.pop()
        except IndexError:  # it was cancelled first
            return
        if leader.cancelled():
            follower.cancel()
        if follower.set_running_or_notify_cancel():
            if (error := leader.exception()) is not None:
                follower.set_exception(error)
            else:
                follower.set_result(leader.result())

    def follower_ended(follower: Future[Any]) -> None:
        leader = leading.pop()
        if not follower.cancelled():
            return
        try:
            following.pop()
        except IndexError:  # by the leader, which has ended
            return
        follower.set_running_or_notify_cancel()
        leader.cancel()

    follower.add_done_callback(follower_ended)
    future.add_done_callback(leader_ended)
    return follower
