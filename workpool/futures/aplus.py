"""Promises/A+ for futures, by ``mpi4py.futures.aplus``: for those of a pool as well."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from . import mpi4py_own
from .chains import follow

_theirs = mpi4py_own("mpi4py.futures.aplus")

if TYPE_CHECKING:
    from mpi4py.futures.aplus import ThenableFuture
else:
    ThenableFuture = _theirs.ThenableFuture

__all__ = ["ThenableFuture", "catch", "then"]


def then(
    future: Future[Any],
    on_success: Callable[[Any], Any] | None = None,
    on_failure: Callable[[BaseException], Any] | None = None,
) -> ThenableFuture[Any]:
    """Return a future of what a function makes of the outcome of another.

    Parameters
    ----------
    future : Future
    on_success : callable, optional
        Called with the result; the new future has what it returns, or ends as that does if it is a
        future.
    on_failure : callable, optional
        Called with the exception.  If it returns one, the new future has that; else as before.

    Returns
    -------
    ThenableFuture
        It fails if a function fails, and is cancelled if the other is.  It has methods `then` and
        `catch`.

    Notes
    -----
    RMA cost: none.
    """
    result: ThenableFuture[Any] = _theirs.then(_thenable(future), on_success, on_failure)
    return result


def catch(
    future: Future[Any], on_failure: Callable[[BaseException], Any] | None = None
) -> ThenableFuture[Any]:
    """Return ``then(future, None, on_failure)``; without a function, failures become None."""
    result: ThenableFuture[Any] = _theirs.catch(_thenable(future), on_failure)
    return result


def _thenable(future: Future[Any]) -> ThenableFuture[Any]:
    if isinstance(future, ThenableFuture):
        return future
    return follow(future, ThenableFuture)
