"""Which mpiexec belongs to mpi4py's MPI, and what that MPI needs on its command line.

A library and an mpiexec of two MPIs do not fail together: every rank starts, and believes that it
is alone.  So the library is asked who it is, and only an mpiexec that says the same is taken.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ..errors import ResourceError
from ..system import supervisor
from ..system.ranks import room
from ..system.shared_memory import too_little

#: Options of mpiexec by which its caller decides where ranks run.
_PLACED = re.compile(
    r"-H|--?(f|hosts?|hostfile|machinefile|map-by|rankfile|(no)?oversubscribe)(=|$)"
)

#: Variables by which a batch system, or the user, has decided it.
_ALLOCATED = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE")

#: Variables by which Slurm names the hosts of a job.
_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")

#: Options and variables by which the user decides how MPICH's mpiexec starts ranks.
_STARTED = re.compile(r"--?(launcher|bootstrap|rmk)")
_STARTED_BY = re.compile(r"HYDRA_(LAUNCHER|BOOTSTRAP|RMK)(_EXEC)?$")


class Kind(Enum):
    """A family of MPIs: library and mpiexec must be of one."""

    INTEL = "Intel MPI"
    OPENMPI = "Open MPI"
    MPICH = "MPICH"
    OTHER = "an MPI unknown to workpool"

    @classmethod
    def of(cls, text: str) -> Kind:
        """Return the kind that a version text names."""
        signs = {
            "Intel(R) MPI": cls.INTEL,  # first: it names MPICH too
            "Open MPI": cls.OPENMPI,
            "OpenRTE": cls.OPENMPI,
            "PRRTE": cls.OPENMPI,
            "MPICH": cls.MPICH,
            "MVAPICH": cls.MPICH,
            "HYDRA": cls.MPICH,
        }
        return next((kind for sign, kind in signs.items() if sign in text), cls.OTHER)


class Library(NamedTuple):
    """The MPI that mpi4py loads in this Python."""

    kind: Kind
    version: str
    #: The shared library, where the system can tell.
    path: Path | None


class Mpiexec(NamedTuple):
    """An mpiexec, and whose it is."""

    path: str
    kind: Kind


@functools.lru_cache(maxsize=1)
def library() -> Library:
    """Load mpi4py's MPI, without starting it, and return what it is.

    Raises
    ------
    ResourceError
        If mpi4py finds none.
    """
    before = os.environ.get("MPI4PY_RC_INITIALIZE")
    os.environ["MPI4PY_RC_INITIALIZE"] = "false"  # else importing mpi4py.MPI starts MPI
    try:
        from .. import rma

        version = rma.library_version()
    finally:
        if before is None:
            del os.environ["MPI4PY_RC_INITIALIZE"]
        else:
            os.environ["MPI4PY_RC_INITIALIZE"] = before
    return Library(Kind.of(version), version, _mapped_library())


def find(given: str | None = None) -> Mpiexec:
    """Return the mpiexec that belongs to mpi4py's MPI.

    Looked for beside the MPI library (in the ``bin`` of each directory above it), beside this
    Python, and on the PATH; the first one of the right kind is taken.

    Parameters
    ----------
    given : str, optional
        The one to use instead; it may be of an unknown kind, but not of a wrong one.

    Raises
    ------
    ResourceError
        If there is none.
    """
    mpi = library()
    loads = f"mpi4py loads {mpi.version}" + (f" from {mpi.path}" if mpi.path else "")
    if given is not None:
        path = shutil.which(given)
        if path is None:
            raise ResourceError(f"--mpiexec {given}: no such program")
        kind = _kind_of(path)
        if kind not in (mpi.kind, Kind.OTHER):
            raise ResourceError(f"--mpiexec {path} is that of {kind.value}, but {loads}")
        return Mpiexec(path, kind)
    above = list(mpi.path.resolve().parents)[1:5] if mpi.path else []
    places = [str(p / "bin") for p in above] + [str(Path(sys.prefix, "bin"))]
    places += [str(Path(sys.executable).parent), *os.get_exec_path()]
    others: list[str] = []
    for place in dict.fromkeys(places):
        for name in ("mpiexec", f"mpiexec.{mpi.kind.name.lower()}", "mpirun"):
            path = shutil.which(name, path=place)
            if path is not None:
                kind = _kind_of(path)
                if kind is mpi.kind:
                    return Mpiexec(path, kind)
                others.append(f"{path} is that of {kind.value}")
    raise ResourceError(
        f"no mpiexec of {mpi.kind.value}, but {loads}; "
        + (f"{'; '.join(dict.fromkeys(others))}; " if others else "")
        + "install the one that belongs to it, or name it with --mpiexec"
    )


def placed(mpi_args: Sequence[str]) -> bool:
    """Return whether somebody else decides which hosts the ranks run on."""
    return _chosen(mpi_args) or any(name in os.environ for name in _ALLOCATED)


def _chosen(mpi_args: Sequence[str]) -> bool:
    return any(_PLACED.match(word) for word in mpi_args)


def _kind_of(path: str) -> Kind:
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=20,
        )
        return Kind.of(answer.stdout.decode(errors="replace"))
    return Kind.OTHER


def _mapped_library() -> Path | None:
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_bytes().splitlines():  # names need not be text
            place = os.fsdecode(line).split(maxsplit=5)[5:]
            if place and re.fullmatch(r"lib\w*mpi\w*\.so[.\d]*", os.path.basename(place[0])):
                return Path(place[0])
    return None


#: Options by which an mpiexec lets the other ranks live when one dies.
_SURVIVE = {
    Kind.MPICH: ["-disable-auto-cleanup"],
    Kind.INTEL: ["-disable-auto-cleanup"],
    Kind.OPENMPI: ["--enable-recovery"],
}


def command_line(
    mpiexec: Mpiexec,
    ranks: int,
    command: Sequence[str],
    mpi_args: Sequence[str] = (),
    survive: bool = False,
) -> list[str]:
    """Return the command that starts `ranks` ranks, with what this MPI needs for it.

    Parameters
    ----------
    mpiexec : Mpiexec
    ranks : int
    command : sequence of str
    mpi_args : sequence of str
        More options, of the user's choice.
    survive : bool
        Whether the job is to outlive the death of ranks.

    Raises
    ------
    ResourceError
        If this mpiexec cannot do that.
    """
    words = [mpiexec.path]
    if survive:
        if mpiexec.kind not in _SURVIVE:
            raise ResourceError(
                f"{mpiexec.path} is that of {mpiexec.kind.value}: --survive needs one of MPICH, "
                "Intel MPI or Open MPI"
            )
        words += _SURVIVE[mpiexec.kind]
        command = supervisor.command(command)
    if mpiexec.kind is Kind.OPENMPI:
        # The driver mostly waits: it needs no core of its own.  And a batch job of one task with
        # many cores has room for many ranks that count as one.
        if not placed(mpi_args) or (not _chosen(mpi_args) and ranks > (room() or ranks)):
            words.append("--oversubscribe")
        if "--bind-to" not in mpi_args:
            words += ["--bind-to", "none"]  # a task's threads may use every core
    return [*words, *mpi_args, "-n", str(ranks), *command]


def check_room(kind: Kind, ranks: int) -> None:
    """Raise ResourceError if this host has too little shared memory for so many to start."""
    if kind is Kind.MPICH and (text := too_little(ranks)):
        raise ResourceError(text)


def check_srun(kind: Kind, mpi_args: Sequence[str]) -> None:
    """Raise ResourceError if mpiexec would wait for ever for an srun that is not there."""
    slurm = "SLURM_TASKS_PER_NODE" in os.environ and any(map(os.environ.get, _NODES))
    if kind is not Kind.MPICH or not slurm or shutil.which("srun"):
        return
    if not any(map(_STARTED.match, mpi_args)) and not any(map(_STARTED_BY.match, os.environ)):
        raise ResourceError(
            "in a Slurm job MPICH's mpiexec starts ranks by srun, which is not on the PATH: add "
            "its directory, or on a single host give --mpi-args '-launcher fork'"
        )


def leash(kind: Kind) -> Callable[[], None]:
    """Return what the process that becomes mpiexec calls, so that it does not outlive the launcher.

    When the launcher itself is killed, mpiexec gets a signal.
    """
    # Each in its way: Open MPI's ends its ranks at SIGINT, MPICH's proxies when it is gone.  At
    # SIGTERM, which batch systems send to every process, Open MPI's would not let the driver end.
    by_open_mpi = kind is Kind.OPENMPI
    signum = signal.SIGINT if by_open_mpi else signal.SIGKILL
    blocked = {signal.SIGTERM} if by_open_mpi else set()
    parent = os.getpid()

    def tie() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        supervisor.die_with(parent, signum)

    return tie


def environment(kind: Kind, given: Mapping[str, str], place: str = "") -> dict[str, str]:
    """Return the environment for mpiexec: the caller's, and what this MPI needs besides.

    Parameters
    ----------
    kind : Kind
    given : mapping
        The caller's.
    place : str, optional
        A directory of this job's own, on this host.
    """
    wanted = {}
    if kind is Kind.OPENMPI:
        if place:
            # Its session directory is named after its process id, and it does not start where a
            # killed one has left that name behind.
            wanted["PRTE_MCA_prte_local_tmpdir_base"] = place
        wanted["HOME"] = os.path.expanduser("~")  # does not start without one
        if os.geteuid() == 0:
            wanted["OMPI_ALLOW_RUN_AS_ROOT"] = wanted["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return {**wanted, **given}
