"""The verbs that the protocol is written against.

``rma.Window`` carries them out in MPI; ``testing.MemoryWindow`` does in plain memory, every call a
scheduling point.  ``rma`` says in full what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What ``load`` compares with: no control word is negative.
NEVER = -1

#: A compare-and-swap: displacement, what is expected there, what takes its place.
Swap: TypeAlias = tuple[int, int, int]


class Window(Protocol):
    """A window on one rank's memory; all displacements in bytes."""

    nbytes: int
    #: Whether every rank has the memory: elsewhere each step takes a message there and one back.
    shared: bool

    def entered(self) -> bool:
        """Return whether this thread is in a call: then a finalizer or a signal's handler asks."""

    def load(self, disp: int) -> int: ...
    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int: ...
    def compare_and_swap_all(self, steps: Sequence[Swap]) -> list[int]: ...
    def put_and_swap(self, disp: int, buffer: bytes, steps: Sequence[Swap]) -> list[int]: ...
    def get_and_swap(
        self, disp: int, nbytes: int, steps: Sequence[Swap]
    ) -> tuple[memoryview, list[int]]: ...
    def fetch_add(self, disp: int, amount: int) -> int: ...
    def peek(self, *disps: int) -> list[int]: ...
    def await_change(self, seen: Sequence[int], *disps: int, seconds: float) -> list[int]: ...
    def put(self, disp: int, buffer: Any, buffered: bool = False) -> None: ...
    def get(self, disp: int, buffer: Any) -> None: ...
    def copy(self, disp: int, nbytes: int) -> memoryview: ...
    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None: ...
    def get_numbers(self, disp: int, values: NDArray[Any]) -> None: ...
    def flush(self) -> None: ...
