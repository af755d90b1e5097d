"""Processes of a job, known by a mark in their environment, and how long they may take."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PATIENCE = float(os.environ.get("WORKPOOL_TEST_PATIENCE", "1"))
"""Every limit is multiplied by this; a slow or a busy machine sets it higher."""

END_GRACE_S = 3.0 * PATIENCE
"""How long a job may take to end by itself: after SIGTERM, and after its mpiexec has returned (of
MPICH's, the proxy of a host that has aborted may still be there)."""


def marked(mark: str) -> dict[int, str]:
    """Return the command lines of all live processes of a job, by process id.

    Parameters
    ----------
    mark : str
        How the job's ``WORKPOOL_TEST_JOB`` begins.
    """
    wanted = f"WORKPOOL_TEST_JOB={mark}".encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime, or somebody else's
            if wanted in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(entry.name)] = " ".join(words)
    return found


def outlives(mark: str) -> dict[int, str]:
    """Return the command lines of what outlives mpiexec by more than its grace, as `marked`."""
    give_up = time.monotonic() + END_GRACE_S
    while (left := marked(mark)) and time.monotonic() < give_up:
        time.sleep(0.02)
    return left
