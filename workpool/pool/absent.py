"""What stands for a pool in a task, where there is none."""

from __future__ import annotations

from typing import NoReturn

from ..errors import UsageError


class Absent:
    """What is behind a view in a task: whatever it is asked for, it refuses."""

    def __str__(self) -> str:
        return "of the driver"

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(
            "a task cannot use a pool, for tasks submit none: return what is to be done, and "
            "submit it from the driver"
        )
