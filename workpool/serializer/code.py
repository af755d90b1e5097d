"""What a function's code is while it is on its way; see `code_cache`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .classes import refer_to
from .reach import Reach
from .references import Refer, companion


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
        What is in it by value.
    classes : iterable of class, optional
        Those of the script among that.
    companions : iterable of function or class, optional
        What its data has besides the callable, in this order.
    searched : bool
        Whether arguments are searched for what must not come anew with them; else only each
        argument itself is looked at, and what goes by value.

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
        classes: Iterable[type] = (),
        companions: Iterable[Any] = (),
        searched: bool = False,
    ) -> None:
        self.code_id = code_id
        self.data = data
        self.reach = reach
        self._held = (*companions, *classes)  # so that nothing else gets one of these ids
        references = {id(cls): refer_to(cls) for cls in classes}
        references |= {id(it): (companion, (i,)) for i, it in enumerate(companions)}
        copied = frozenset() if reach is None or not searched else reach.copied
        self.refer = Refer(lambda it: references.get(id(it)), copied)

    def __repr__(self) -> str:
        return f"<Code {self.code_id} nbytes={len(self.data)}>"
