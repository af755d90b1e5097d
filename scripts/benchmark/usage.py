"""What processes use, as the system counts it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def reset_peak() -> None:
    """Begin anew with the peak of this process's memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_nbytes() -> int:
    """Return the peak of this process's memory, without what it shares."""
    status = Path("/proc/self/status").read_text().split("\n")
    found = {line.split(":")[0]: line.split()[1] for line in status if line.endswith(" kB")}
    return (int(found["VmHWM"]) - int(found["RssShmem"])) * 1024


def resident_nbytes() -> int:
    """Return the memory of this process that is in use, with what it shares."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def used_s(process: int) -> float:
    """Return the processor time that the threads of a process have used."""
    total_ns = 0
    for place in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread may end
            total_ns += int(place.read_text().split()[0])
    return total_ns * 1e-9
