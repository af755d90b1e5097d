"""What stands for a pool in a task, where there is none."""

from __future__ import annotations

import sys
from typing import NoReturn

from ..errors import UsageError
from ..whole import inside


class Absent:
    """What is behind a view in a task: whatever it is asked for, it refuses."""

    def __str__(self) -> str:
        return "of the driver"

    def __getattr__(self, name: str) -> NoReturn:
        if inside(sys._getframe(1), ("importlib._bootstrap",)):
            raise UsageError(
                "a module that tasks import uses a pool as it is imported: have it do that in a "
                'function, or below `if __name__ == "__main__":`'
            )
        raise UsageError(
            "a task cannot use a pool, for tasks submit none: return what is to be done, and "
            "submit it from the driver"
        )
