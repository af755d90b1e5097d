"""The window of a rank that is alone: plain memory, and a lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..lazy import np
from ..reduction import ufunc
from ..verbs import Swap
from ..whole import whole
from .window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OwnWindow(Window):
    """A window that no other rank can reach, only the threads of this one.

    No verb calls MPI.  Such a call lets go of the interpreter, so the two threads of a rank that is
    alone would change places several times for every task; on a busy machine each change costs a
    turn of the scheduler.
    """

    @whole
    def compare_and_swap(self, disp: int, expected: int, desired: int) -> int:
        """Store `desired` where `expected` stands; return what stood there."""
        with self._lock:
            return self._swap([(disp, expected, desired)])[0]

    def _swap(self, steps: Sequence[Swap]) -> list[int]:
        assert self._words is not None
        answers = []
        for disp, expected, desired in steps:
            if disp not in self._places:
                self._outside("compare_and_swap", disp, 8)
            found = self._words[disp >> 3]
            if found == expected:
                self._words[disp >> 3] = desired
            answers.append(found)
        return answers

    @whole
    def put_and_swap(self, disp: int, buffer: bytes, steps: Sequence[Swap]) -> list[int]:
        """Write bytes, and then carry out a few compare_and_swap."""
        self.put(disp, buffer)
        return self.compare_and_swap_all(steps)

    @whole
    def fetch_add(self, disp: int, amount: int) -> int:
        """Add to a counter word; return what stood there."""
        if disp not in self._places:
            self._outside("fetch_add", disp, 8)
        with self._lock:
            assert self._words is not None
            found = self._words[disp >> 3]
            self._words[disp >> 3] = found + amount
            return found

    @whole
    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None:
        """Combine numbers into the window, element by element."""
        with self._lock, np.errstate(all="ignore"):
            target = self._numbers("accumulate", disp, values)
            ufunc(op)(target, values.reshape(-1), out=target, casting="unsafe")

    @whole
    def get_numbers(self, disp: int, values: NDArray[Any]) -> None:
        """Fill an array of numbers that others may be accumulating to."""
        with self._lock:
            values.reshape(-1)[:] = self._numbers("get_numbers", disp, values)

    def _numbers(self, verb: str, disp: int, like: NDArray[Any]) -> NDArray[Any]:
        if disp % like.itemsize or not 0 <= disp <= self.nbytes - like.nbytes:
            self._outside(verb, disp, like.nbytes)
        assert self._memory is not None
        return np.frombuffer(self._memory, like.dtype, like.size, disp)

    def _sync(self) -> None:
        """Nothing: every call is complete when it returns."""
