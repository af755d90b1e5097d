"""The verbs that the protocol is written against.

``rma.Window`` carries them out in MPI; ``testing.MemoryWindow`` does in plain memory, every call a
scheduling point.  Their meaning is stated in ``rma``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: What ``load`` compares with: no control word is negative.
NEVER = -1

#: What ``accumulate`` does, by the names of the standard: for windows over plain memory.
UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}


class Window(Protocol):
    """A window on one rank's memory; all displacements in bytes."""

    nbytes: int

    def load(self, disp: int) -> int: ...
    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int: ...
    def compare_and_swap_all(self, steps: Sequence[tuple[int, int, int]]) -> list[int]: ...
    def fetch_add(self, disp: int, amount: int) -> int: ...
    def put(self, disp: int, buffer: Any) -> None: ...
    def get(self, disp: int, buffer: Any) -> None: ...
    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None: ...
    def get_numbers(self, disp: int, values: NDArray[Any]) -> None: ...
    def flush(self) -> None: ...
    def progress(self) -> None: ...
