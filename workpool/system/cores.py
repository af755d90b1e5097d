"""How many cores this process may keep busy."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

#: What a control group may use of the cores: its time in each period, and that.
_QUOTA_1 = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
_QUOTA_2 = ["cpu.max"]


def cores(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Return how many: those that it may run on, or what the quota of its container is worth.

    ``docker run --cpus=2`` lets processes run on all cores of the host, by turns.

    Parameters
    ----------
    groups : str
        The file that names the control groups of this process.
    root : str
        Where they are.
    """
    most = len(os.sched_getaffinity(0))
    with suppress(OSError):
        for line in os.fsdecode(Path(groups).read_bytes()).splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":  # version 2
                place, names = root, _QUOTA_2
            elif "cpu" in controllers.split(","):
                place, names = f"{root}/cpu", _QUOTA_1
            else:
                continue
            # A container may see the path that its host sees, and the group itself at the root.
            for group in (Path(path), *Path(path).parents):
                with suppress(OSError, ValueError):  # "max": there is none
                    files = [Path(f"{place}{group}", name).read_bytes() for name in names]
                    quota, period = map(int, b" ".join(files).split())
                    if quota > 0:
                        most = min(most, math.ceil(quota / period))
    return most
