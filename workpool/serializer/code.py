"""What a function's code is while it is on its way; see `code_cache`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .classes import refer_to
from .reach import Reach
from .references import companion

__all__ = ["Code"]


class Code:
    """A callable's code, as it crosses once to each worker.

    Hold it while a task that needs it is under way. When nothing holds it any more, no later
    lookup gives it either, so a `weakref.finalize` on it is the moment to release its memory.

    Parameters
    ----------
    code_id : int
        From 1 upwards, never used again by the same `CodeCache`.
    data : bytes
        What `load_callable` restores.
    reach : Reach, optional
        Of a function by value: what its arguments must not have anew.
    classes : iterable of class, optional
        Those of the script that come with it.
    companions : iterable of function or class, optional
        What its data has besides the callable, in this order.
    """

    __slots__ = ("__weakref__", "_held", "_references", "code_id", "data", "reach")

    def __init__(
        self,
        code_id: int,
        data: bytes,
        reach: Reach | None = None,
        classes: Iterable[type] = (),
        companions: Iterable[Any] = (),
    ) -> None:
        self.code_id = code_id
        self.data = data
        self.reach = reach
        self._held = (*companions, *classes)  # so that no other one gets its id
        self._references = {id(cls): refer_to(cls) for cls in classes}
        self._references |= {id(it): (companion, (i,)) for i, it in enumerate(companions)}

    def refer(self, definition: Any) -> tuple[Any, ...] | None:
        """Return how a worker finds what comes with it, as ``__reduce__`` does; None if nothing."""
        return self._references.get(id(definition))

    def __repr__(self) -> str:
        return f"<Code {self.code_id} nbytes={len(self.data)}>"
