"""The processes of a job on this host, found by a mark in their environment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..clock import Stopwatch
from ..system.shared_memory import mpi_files
from ..system.supervisor import RANK_VARIABLES

#: How long it may take from the first rank until there are all.
_COMPLETE_S = 10.0

#: How many processes a message names, and how many characters of their commands.
_NAMED = 4
_SHOWN = 80


class Processes:
    """Mpiexec, the ranks, and whatever they have started.

    Parameters
    ----------
    mark : str
        ``NAME=value``, in the environment of each of them and of no other process.
    ranks : int
        How many there will be.

    Attributes
    ----------
    mpi_files : set of str
        Files, as far as they were noted, that MPI forgets when its ranks are killed.
    """

    def __init__(self, mark: str, ranks: int) -> None:
        self.mpi_files: set[str] = set()
        self._mark = os.fsencode(mark)
        self._ranks = ranks
        self._some = False  # whether some ranks lived when they were noted last, and others did not
        self._clock = Stopwatch()
        self._since_s = 0.0

    def find(self) -> dict[int, list[bytes]]:
        """Return those that live: their environments, by process id."""
        pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
        return {pid: variables for pid in pids if (variables := self._variables(pid))}

    def lives(self, pid: int | None) -> bool:
        """Return whether a process is one of them, and more than a zombie."""
        return pid is not None and bool(self._variables(pid))

    def _variables(self, pid: int) -> list[bytes]:
        """Return the environment of one of them; nothing if it is none."""
        with suppress(OSError):  # gone, or somebody else's
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if self._mark in variables:
                return variables
        return []

    def note(self) -> None:
        """Note which ranks live, and the files that MPI has made for them."""
        found = self.find()
        self.mpi_files.update(path for pid in found for path in mpi_files(pid))
        words = (word.partition(b"=") for variables in found.values() for word in variables)
        ranks = {rank for name, _, rank in words if os.fsdecode(name) in RANK_VARIABLES}
        self._some = 0 < len(ranks) < self._ranks

    def lack_a_rank(self) -> bool:
        """Return whether one was gone before anybody could note it: the others wait for it."""
        now = self._clock.look()
        if not self._some:
            self._since_s = now
        return now > self._since_s + _COMPLETE_S

    def left(self) -> str:
        """Name what is left of the ranks: themselves, or what their tasks have started."""
        left = []
        for pid, variables in self.find().items():
            named = dict(word.decode(errors="replace").partition("=")[::2] for word in variables)
            ranks = [named[name] for name in RANK_VARIABLES if name in named]  # or those above it
            with suppress(OSError):  # ended meanwhile
                text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                path, *words = text.strip("\0").split("\0")
                command = " ".join([os.path.basename(path), *words])[:_SHOWN]
                left += [f"process {pid} of rank {rank} ({command})" for rank in ranks[:1]]
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        return ", ".join(left[:_NAMED]) + more or "mpiexec itself"
