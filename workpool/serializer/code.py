"""What a function's code is while it is on its way; see `code_cache`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .classes import refer_to
from .reach import Reach
from .references import Refer, companion

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
    companions : iterable of function or class, optional
        What its data has besides the callable, in this order.
    classes : iterable of class, optional
        Those of the script that come with it.
    apart : iterable of object, optional
        What its data has that arguments must not have anew.
    passed : iterable of object, optional
        The same, for arguments that refer to functions among the companions.

    Attributes
    ----------
    refer : Refer
        How arguments refer to it.
    """

    __slots__ = ("__weakref__", "_held", "code_id", "data", "reach", "refer")

    def __init__(
        self,
        code_id: int,
        data: bytes,
        reach: Reach | None = None,
        companions: Iterable[Any] = (),
        classes: Iterable[type] = (),
        apart: Iterable[object] = (),
        passed: Iterable[object] = (),
    ) -> None:
        self.code_id = code_id
        self.data = data
        self.reach = reach
        # So that nothing else gets one of these ids.
        self._held = (*companions, *classes, *apart, *passed)
        references = {id(cls): refer_to(cls) for cls in classes}
        references |= {id(it): (companion, (i,)) for i, it in enumerate(companions)}
        ids = frozenset(map(id, apart))
        if reach is not None:
            reach.apart = ids
        self.refer = Refer(lambda it: references.get(id(it)), ids, ids.union(map(id, passed)))

    def __repr__(self) -> str:
        return f"<Code {self.code_id} nbytes={len(self.data)}>"
