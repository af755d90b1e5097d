"""What a function's code is while it is on its way; see `code_cache`."""

from __future__ import annotations

from collections.abc import Container

from .reach import Reach

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
    classes : container of int
        The ids of the classes of the script that come with it.
    """

    __slots__ = ("__weakref__", "_classes", "code_id", "data", "reach")

    def __init__(
        self,
        code_id: int,
        data: bytes,
        reach: Reach | None = None,
        classes: Container[int] = (),
    ) -> None:
        self.code_id = code_id
        self.data = data
        self.reach = reach
        self._classes = classes

    def has(self, cls: type) -> bool:
        """Tell whether a class of the script comes with it."""
        return id(cls) in self._classes

    def __repr__(self) -> str:
        return f"<Code {self.code_id} nbytes={len(self.data)}>"
