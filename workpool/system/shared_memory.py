"""Shared memory as MPI uses it: how much there is, and what it leaves there.

Ranks that end without ``MPI_Finalize`` leave the files behind that MPI has made for them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import resource
from contextlib import suppress
from io import FileIO  # a task may have replaced `open`

SHM = "/dev/shm"

#: What to say of a process that died of a bus error.
WAS_FULL = (
    f"if it found too little memory, {SHM} was full: lower arena_nbytes=, or enlarge it "
    "(docker run --shm-size=1g)"
)

# shmget(2), shmctl(2)
_IPC_PRIVATE = 0
_IPC_RMID = 0

#: What MPICH takes to start: in each rank, and at the least.
_RANK_NBYTES = 1_100_000
_LEAST_NBYTES = 4 << 20

#: By the names that the MPIs give it.
_MPI_FILES = re.compile(
    rf"{SHM}/(mpich_shm_|sm_segment\.|vader_segment\.|osc_sm\.|ucx_shm_posix_|Intel_MPI_)"
    "|/tmp/hydra_hwloc_xmlfile_"
)


def free() -> int | None:
    """Return the free bytes of /dev/shm, or None where there is no such file system.

    No more than this process may write to one file.
    """
    try:
        shm = os.statvfs(SHM)
    except OSError:
        return None
    most_nbytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    free_nbytes = shm.f_bavail * shm.f_frsize
    return free_nbytes if most_nbytes == resource.RLIM_INFINITY else min(free_nbytes, most_nbytes)


def unmappable(nbytes: int, fds: int, private: bool) -> str:
    """Return why this process cannot map so many bytes more, with so many descriptors; else "".

    `private` ones are memory of its own, others are shared and have been counted elsewhere.
    """
    opened: list[int] = []
    try:
        for _ in range(fds):
            opened.append(os.open(os.devnull, os.O_RDONLY))
        if nbytes:
            access = mmap.PROT_READ | mmap.PROT_WRITE if private else mmap.PROT_READ
            mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, access).close()
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for fd in opened:
            os.close(fd)
    return ""


def too_little(ranks: int = 1) -> str:
    """Return what to say where MPICH dies of a bus error before anybody can say why; else ""."""
    left = free()
    needed = max(_LEAST_NBYTES, ranks * _RANK_NBYTES)
    if left is None or left >= needed:
        return ""
    return (
        f"{SHM} has {left:,} bytes free, and MPICH needs some {needed:,} to start: "
        "remove left-over files there, or enlarge it (docker run --shm-size=1g), or raise what a "
        "file may have (ulimit -f)"
    )


def segments() -> bool:
    """Return whether this process can have shared memory that lies in no file system: System V's.

    Not every kernel has it, nor may every process in a sandbox.
    """
    libc = ctypes.CDLL(None)
    segment: int = libc.shmget(_IPC_PRIVATE, 1, 0o600)
    return segment >= 0 and not libc.shmctl(segment, _IPC_RMID, None)


def may_copy() -> bool:
    """Return whether processes may copy from each other's memory, which some sandboxes refuse."""
    byte = ctypes.create_string_buffer(1)
    piece = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 1)  # struct iovec
    one, flags = ctypes.c_ulong(1), ctypes.c_ulong(0)
    copied: int = ctypes.CDLL(None).process_vm_readv(os.getpid(), piece, one, piece, one, flags)
    return copied == 1


def mpi_files(pid: int) -> set[str]:
    """Return the files that MPI made for a process and that nobody removes if it is killed."""
    paths: set[str] = set()
    with suppress(OSError):
        with FileIO(f"/proc/{pid}/maps") as file:  # names of files need not be text
            lines = os.fsdecode(file.read()).splitlines()
        paths |= {line.split(maxsplit=5)[5].strip() for line in lines if _MPI_FILES.search(line)}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                paths.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {path for path in paths if _MPI_FILES.match(path)}


def remove(paths: set[str]) -> None:
    """Remove files; who has them mapped goes on using them."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
