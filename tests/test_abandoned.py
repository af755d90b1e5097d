"""Mutexes in shared memory, as MPICH has them, whose owners die."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from workpool.system.abandoned import unlock
from workpool.system.shared_memory import SHM

LIBC = ctypes.CDLL(None)
ERRORCHECK = 2

LOCKS = """
import ctypes, mmap, sys, time

with open(sys.argv[1], "r+b") as file:
    mutex = (ctypes.c_char * 64).from_buffer(mmap.mmap(file.fileno(), 0))
print("waits", flush=True)
assert ctypes.CDLL(None).pthread_mutex_lock(mutex) == 0
print("has it", flush=True)
time.sleep(60)
"""


class Mutex:
    """One at the start of a mapping: between processes, and unlocked by its owner alone."""

    def __init__(self, file: IO[bytes]) -> None:
        file.truncate(mmap.PAGESIZE)
        self.path = file.name
        self.place = mmap.mmap(file.fileno(), 0)
        self._mutex = (ctypes.c_char * 64).from_buffer(self.place)
        attributes = (ctypes.c_char * 64)()
        LIBC.pthread_mutexattr_init(attributes)
        LIBC.pthread_mutexattr_setpshared(attributes, 1)
        LIBC.pthread_mutexattr_settype(attributes, ERRORCHECK)
        LIBC.pthread_mutex_init(self._mutex, attributes)

    def lock(self) -> bool:
        return bool(LIBC.pthread_mutex_trylock(self._mutex) == 0)

    def unlock(self) -> None:
        assert LIBC.pthread_mutex_unlock(self._mutex) == 0

    def close(self) -> None:
        del self._mutex
        self.place.close()

    @contextmanager
    def locked_by_another(self) -> Iterator[subprocess.Popen[str]]:
        """Start a process that locks it, as soon as it can, and does nothing more."""
        words = [sys.executable, "-c", LOCKS, self.path]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            try:
                yield process
            finally:
                process.kill()


def has_it(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "has it\n"


@contextmanager
def mapped(prefix: str = "mpich_shar_tmp") -> Iterator[Mutex]:
    with tempfile.NamedTemporaryFile(prefix=prefix, dir=SHM) as file:
        mutex = Mutex(file)
        try:
            yield mutex
        finally:
            mutex.close()


def test_what_the_dead_have_locked_is_unlocked_and_nothing_else() -> None:
    with mapped() as mutex, mapped() as other:
        assert other.lock()
        with mutex.locked_by_another() as owner:
            assert has_it(owner)
            assert unlock({1, 2}) == 0
            assert not mutex.lock()
        assert unlock({owner.pid}) == 1
        assert unlock({owner.pid}) == 0
        assert mutex.lock()
        assert unlock({owner.pid}) == 0  # it is ours now
        mutex.unlock()
        other.unlock()


def test_who_waits_for_it_goes_on() -> None:
    with mapped() as mutex, mutex.locked_by_another() as owner:
        assert has_it(owner)
        with mutex.locked_by_another() as waits:
            while mutex.place[0] != 2:  # somebody sleeps until it is unlocked
                time.sleep(0.001)
            owner.kill()
            owner.wait()
            assert unlock({owner.pid}) == 1
            assert has_it(waits)


def test_mutexes_of_other_programs_are_left_alone() -> None:
    with mapped("some_program") as mutex:
        with mutex.locked_by_another() as owner:
            assert has_it(owner)
        assert unlock({owner.pid}) == 0
        assert not mutex.lock()


@pytest.mark.parametrize(
    "words", [(1, 0, 12345, 1, 2), (0, 0, 12345, 1, 130)], ids=["of one process", "not locked"]
)
def test_what_is_no_locked_mutex_between_processes_is_left_alone(words: tuple[int, ...]) -> None:
    """Another version of MPICH may have anything there."""
    with mapped() as mutex:
        there = array("i", words).tobytes()
        mutex.place[: len(there)] = there
        assert unlock({12345}) == 0
        assert mutex.place[: len(there)] == there
