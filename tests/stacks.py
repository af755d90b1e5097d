"""What the Python processes of a job are doing: their stacks, on request, when it does not end.

Each has a `sitecustomize` that has faulthandler write them into a file of its own at a signal,
which is served in C, so it works inside an MPI call too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from processes import PATIENCE

_SIGNAL = signal.SIGRTMAX  # which no test sends, and no MPI

_HOOK = f"""\
import faulthandler, os
_rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
_place = os.environ.get("WORKPOOL_TEST_STACKS")
if _place:
    _name = os.path.join(_place, f"rank {{_rank or 0}}, process {{os.getpid()}}")
    _fd = os.open(_name, os.O_CREAT | os.O_WRONLY)  # not a file, of which Python might complain
    faulthandler.register({int(_SIGNAL)}, file=_fd, all_threads=True)
"""


class Stacks:
    """The stacks of one job's processes.

    Parameters
    ----------
    place : Path
        A directory for their files, which is made.

    Attributes
    ----------
    variables : dict
        Of the job's environment; `path` is to be on its PYTHONPATH.
    path : str
    """

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._place = place / "stacks"
        self._place.mkdir()
        (place / "sitecustomize.py").write_text(_HOOK)
        self.variables = {"WORKPOOL_TEST_STACKS": str(self._place)}
        self.path = str(place)

    def show(self, living: Collection[int]) -> str:
        """Return the stacks of these processes as they are now."""
        asked = {
            file: pid
            for file in sorted(self._place.iterdir())
            if (pid := int(file.name.rpartition(" ")[2])) in living
        }
        for pid in asked.values():
            os.kill(pid, _SIGNAL)
        give_up = time.monotonic() + 5.0 * PATIENCE
        seen, calm = [0], 0
        while (0 in seen or calm < 20) and asked and time.monotonic() < give_up:
            time.sleep(0.02)  # written line by line, the main thread's last
            before, seen = seen, [file.stat().st_size for file in asked]
            calm = calm + 1 if seen == before else 0
        return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in asked)
