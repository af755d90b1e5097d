"""The verbs that the protocol is written against.

``rma.Window`` carries them out in MPI; ``testing.MemoryWindow`` does in plain memory, every call a
scheduling point.  ``rma`` says in full what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .lazy import np
from .reduction import OPERATIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What ``load`` compares with: no control word is negative.
NEVER = -1


def ufunc(op: str) -> Any:
    """Return NumPy's function for an operation, by its name in the standard."""
    return getattr(np, OPERATIONS[op].ufunc)


class Window(Protocol):
    """A window on one rank's memory; all displacements in bytes."""

    nbytes: int

    def busy(self) -> bool:
        """Return whether this thread is in the middle of a call, where a finalizer has come."""

    def load(self, disp: int) -> int: ...
    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int: ...
    def compare_and_swap_all(self, steps: Sequence[tuple[int, int, int]]) -> list[int]: ...
    def put_and_swap(
        self, disp: int, buffer: bytes, steps: Sequence[tuple[int, int, int]]
    ) -> list[int]: ...
    def get_and_swap(
        self, disp: int, nbytes: int, steps: Sequence[tuple[int, int, int]]
    ) -> tuple[memoryview, list[int]]: ...
    def fetch_add(self, disp: int, amount: int) -> int: ...
    def peek(self, *disps: int) -> list[int]: ...
    def await_change(self, seen: Sequence[int], *disps: int, seconds: float) -> list[int]: ...
    def put(self, disp: int, buffer: Any) -> None: ...
    def get(self, disp: int, buffer: Any) -> None: ...
    def read(self, disp: int, nbytes: int) -> memoryview: ...
    def copy(self, disp: int, nbytes: int) -> memoryview: ...
    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None: ...
    def get_numbers(self, disp: int, values: NDArray[Any]) -> None: ...
    def flush(self) -> None: ...
