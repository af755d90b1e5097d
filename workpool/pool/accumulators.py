"""The accumulators of one pool, and their room in its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accumulator import Accumulator
from ..contributions import Spec
from ..errors import UsageError
from ..extents import Extent

if TYPE_CHECKING:
    from ..driver.driver import Driver
    from ..job.runtime import Runtime


class PoolAccumulators:
    """Opens the accumulators of a pool.  Not thread-safe.

    Parameters
    ----------
    job : Runtime
    driver : Driver
        Of its table.
    pool_id : int
    """

    def __init__(self, job: Runtime, driver: Driver, pool_id: int) -> None:
        self._job = job
        self._driver = driver
        self._pool_id = pool_id
        self._open: list[tuple[Spec, Extent]] = []

    def open(self, spec: Spec) -> Accumulator:
        """Return numbers in the repository's window, or on the driver where workers may die.

        Raises
        ------
        UsageError
            If there is no room.
        """
        driver = self._driver
        extent = driver.reserve(spec.nbytes)
        if extent is None:
            taken = sum(it.nbytes for it, _ in self._open)
            raise UsageError(
                f"an accumulator of {spec.nbytes:,} bytes finds no room in the driver's half of "
                f"the arena of {driver.geometry.arena_nbytes:,}, of which those made before keep "
                f"{taken:,} until this pool is shut down: make a pool for each step of the "
                "program that wants some, or raise arena_nbytes="
            )
        spec = spec._replace(pool=self._pool_id, offset=extent.offset)
        self._open.append((spec, extent))
        window = None if self._job.survive else driver.window
        return self._job.accumulators.open(spec, window)

    def close(self, settled: bool) -> None:
        """Keep the last values, and give back the room if nobody adds any more."""
        while self._open:
            spec, extent = self._open.pop()
            self._job.accumulators.close(spec)
            if settled:
                self._driver.release(extent)
