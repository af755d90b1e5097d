"""Locks inside MPI which a process held when it was killed.

For each atomic operation on a window that ranks of a host share, MPICH takes a mutex of the C
library.  Who is killed with it leaves it locked, and all others wait for it without end.  The mutex
names its owner, though, and is the first thing in a mapping of its own: so it can be found, and
unlocked in the place of a dead owner.

What it guards is then as before the operation or as after it, if that was on a single element: that
is one store.  An ``Accumulate`` of several may be half done.

Open MPI's locks do not name who holds them: nothing can be done about those.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import struct
import sys
import threading
from collections.abc import Collection
from io import FileIO  # a task may have replaced `open`

from .shared_memory import SHM

#: Where such a mutex may be, in /proc/self/maps.
_MAPPED = re.compile(rf"^([0-9a-f]+)-\S+ rw-s 0+ .* {SHM}/mpich_shar_tmp", re.MULTILINE)

#: ``pthread_mutex_t`` of 64-bit Linux: whether it is locked, depth, owner (a thread), users, kind.
_MUTEX = struct.Struct("=iIiIi")
_OWNER_OFFSET = 8
_SHARED = 0x80  # in the kind: between processes


def unlock(dead: Collection[int]) -> int:
    """Unlock what dead processes have locked, which this process has mapped as well.

    Parameters
    ----------
    dead : collection of int
        Process ids that nobody has any more.

    Returns
    -------
    int
        How many locks were theirs.

    Raises
    ------
    OSError
        If there is no descriptor for what this takes, or another process is just at it.

    Notes
    -----
    Thread-safe, and safe while other processes do the same: one of them at a time.
    """
    turn = os.open(SHM, os.O_RDONLY)
    try:
        # One process at a time: of two that find the same dead owner, the second would unlock what
        # somebody else has locked by then.
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with FileIO("/proc/self/maps") as maps:
            places = _MAPPED.findall(os.fsdecode(maps.read()))
        with FileIO("/proc/self/mem", "r+") as memory:  # unlike a pointer, it may point to nothing
            return sum(_unlock(memory.fileno(), int(place, 16), dead) for place in places)
    finally:
        os.close(turn)


def _unlock(memory: int, place: int, dead: Collection[int]) -> bool:
    """Unlock what is at an address, if that is a mutex which the dead have locked."""
    locked, _, owner, _, kind = _MUTEX.unpack(os.pread(memory, _MUTEX.size, place))
    if not (locked and owner in dead and kind & _SHARED):
        return False
    own = threading.get_native_id().to_bytes(4, sys.byteorder)
    os.pwrite(memory, own, place + _OWNER_OFFSET)  # nobody but its owner may unlock it
    failed: int = ctypes.CDLL(None).pthread_mutex_unlock(ctypes.c_void_p(place))
    return not failed
