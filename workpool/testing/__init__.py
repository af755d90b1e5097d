"""A window in plain memory, and an explorer that tries every interleaving of small cases.

    memory      the verbs of a window, with MPI's freedoms taken to the full
    explorer    every interleaving of a few processes
    replay      how these are stopped at any call, copied, and compared
    walk        one long random schedule, for larger cases

Shipped with the package because whoever writes a scheduler on top of ``repository`` needs the same
proof.  Imported by no other module of it.
"""

from __future__ import annotations

from .explorer import Explorer, Found, Report
from .memory import Memory, MemoryWindow
from .walk import walk

__all__ = ["Explorer", "Found", "Memory", "MemoryWindow", "Report", "walk"]
