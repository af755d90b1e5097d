"""The verbs of a window that work on arrays of numbers, element by element."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import WindowError
from ..whole import whole
from .mpi import MPI
from .ops import DATATYPES, OPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Longest piece of one Accumulate or Get_accumulate.  It runs under a lock that all ranks share:
#: keep it short.
ACCUMULATE_NBYTES = 1 << 16


class Elements:
    """The part of a ``Window`` that works on arrays, and says what is wrong with a call."""

    host: int
    nbytes: int
    _win: MPI.Win
    _lock: threading.Lock
    _under_way: bool

    @whole
    def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None:
        """Combine numbers into the window, element by element; complete at the next flush.

        Parameters
        ----------
        disp : int
            Displacement, aligned to the element.
        values : ndarray
            C-contiguous: MPI reads its memory until the flush.  Of booleans, or of integers, real
            or complex numbers of up to 8 bytes a part.
        op : str
            One of ``OPS``.

        Notes
        -----
        RMA cost: 1 accumulate for every ``ACCUMULATE_NBYTES``.  Atomic for each element, not for
        the whole (MPI-4.1, 12.7.1).
        """
        self._in_parts(
            "accumulate",
            disp,
            values,
            lambda part, target: self._win.Accumulate(part, self.host, target, OPS[op]),
        )

    @whole
    def get_numbers(self, disp: int, values: NDArray[Any]) -> None:
        """Fill an array of numbers that others may be accumulating to; complete at the next flush.

        Parameters
        ----------
        disp : int
            Displacement, aligned to the element.
        values : ndarray
            C-contiguous and writable, of the dtype that is accumulated: MPI fills its memory until
            the flush.

        Notes
        -----
        RMA cost: 1 get_accumulate for every ``ACCUMULATE_NBYTES``.  Atomic for each element, not
        for the whole; what a ``get`` finds where an accumulate is under way is undefined (MPI-4.1,
        12.7.1).
        """

        def get(part: list[Any], target: int) -> None:
            # NO_OP reads nothing from the origin: of that, only the datatype counts.
            array, count, datatype = part
            origin, place = [array, 0, datatype], (target, count, datatype)
            self._win.Get_accumulate(origin, part, self.host, place, MPI.NO_OP)

        self._in_parts("get_numbers", disp, values, get)

    def _in_parts(
        self,
        verb: str,
        disp: int,
        values: NDArray[Any],
        call: Callable[[list[Any], int], None],
    ) -> None:
        if disp % values.itemsize or not 0 <= disp <= self.nbytes - values.nbytes:
            self._outside(verb, disp, values.nbytes)
        flat = values.reshape(-1)
        datatype = DATATYPES[values.dtype.str[1:]]
        step = max(1, ACCUMULATE_NBYTES // values.itemsize)
        with self._lock:
            self._under_way = True
            try:
                for i in range(0, flat.size, step):
                    part = flat[i : i + step]
                    call([part, part.size, datatype], disp + i * values.itemsize)
            except MPI.Exception as error:
                self._failed(verb, disp, error)

    def _outside(self, verb: str, disp: int, nbytes: int) -> NoReturn:
        raise WindowError(
            f"{verb} of {nbytes} bytes at displacement {disp} of rank {self.host}: "
            f"outside the window of {self.nbytes:,} bytes, or not aligned"
        )

    def _failed(self, verb: str, disp: int, error: MPI.Exception) -> NoReturn:
        raise WindowError(
            f"{verb} at displacement {disp} of rank {self.host}: {error.Get_error_string()}"
        ) from error
