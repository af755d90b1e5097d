"""The processes of a job on this host, found by a mark in their environment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..clock import Stopwatch
from ..system.shared_memory import mpi_files
from ..system.supervisor import RANK_VARIABLES

#: How long mpiexec may take to notice that a rank, or what has started it, is gone; and how long it
#: may take from the first rank of this host until there are all.
_BROKEN_S = 10.0

#: By which an Open MPI rank knows how many of them are on its host.
_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"

#: How many processes a message names, and how many characters of their commands.
_NAMED = 4
_SHOWN = 80


class Processes:
    """Mpiexec, the ranks, and whatever they have started.

    Parameters
    ----------
    mark : str
        ``NAME=value``, in the environment of each of them and of no other process.

    Attributes
    ----------
    mpi_files : set of str
        Files, as far as they were noted, that MPI forgets when its ranks are killed.
    """

    def __init__(self, mark: str) -> None:
        self.mpi_files: set[str] = set()
        self._mark = os.fsencode(mark)
        self._held: set[int] = set()  # ranks whose parent was mpiexec, or a proxy of it
        self._broken = False  # whether a rank, or what had started it, was gone at the last note
        self._clock = Stopwatch()
        self._whole_s = 0.0  # when that was last not so

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
        named = {pid: _named(variables) for pid, variables in found.items()}
        ranks = {pid: rank for pid, it in named.items() if (rank := _rank(it))}
        managers = found.keys() - ranks.keys()
        held = {pid for pid in ranks if _parent(pid) in managers}
        sizes = [int(it[_LOCAL_SIZE]) for it in named.values() if _LOCAL_SIZE in it]
        missing = bool(ranks) and len(set(ranks.values())) < max(sizes, default=0)
        self._broken = missing or not self._held.isdisjoint(ranks.keys() - held)
        self._held |= held

    def broken(self) -> bool:
        """Return whether ranks have long waited for one that is gone, or have lost their parent.

        As long as they start MPI, they cannot notice that, and not every mpiexec does.
        """
        now = self._clock.look()
        if not self._broken:
            self._whole_s = now
        return now > self._whole_s + _BROKEN_S

    def left(self) -> str:
        """Name what is left of the ranks: themselves, or what their tasks have started."""
        left = []
        for pid, variables in self.find().items():
            rank = _rank(_named(variables))
            if not rank:  # mpiexec, or a proxy of it
                continue
            with suppress(OSError):  # ended meanwhile
                text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                path, *words = text.strip("\0").split("\0")
                command = " ".join([os.path.basename(path), *words])[:_SHOWN]
                left.append(f"process {pid} of rank {rank} ({command})")
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        return ", ".join(left[:_NAMED]) + more or "mpiexec itself"


def _named(variables: list[bytes]) -> dict[str, str]:
    """Return an environment by name."""
    return dict(word.decode(errors="replace").partition("=")[::2] for word in variables)


def _rank(named: dict[str, str]) -> str:
    """Return the rank to which a process with this environment belongs; "" if to none."""
    return next((named[name] for name in RANK_VARIABLES if name in named), "")


def _parent(pid: int) -> int:
    """Return who has started a process, or has it now; 0 if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0
