"""Starts one measurement in a process or an MPI job of its own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from workpool.launch import mpiexec

from .peers import PEERS
from .request import Request

PATIENCE_S = 120
GRACE_S = 10


class Failed(Exception):
    """A measurement that came to nothing; its text is why."""


def measure(request: Request, mpi_args: Sequence[str] = ()) -> dict[str, float]:
    """Carry out a measurement and return its figures.

    Parameters
    ----------
    request : Request
    mpi_args : sequence of str
        More options of mpiexec.

    Raises
    ------
    Failed
        If it does not end in time, or prints no figures.
    """
    found = _mpiexec()
    words = command(request._replace(launched_s=time.monotonic()), mpi_args)
    program = subprocess.Popen(
        words,
        env=mpiexec.environment(found.kind, os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        output, errors = program.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"not ended in {PATIENCE_S} s") from None
    finally:
        _end(program)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines or program.returncode:
        last = (errors.strip() or output.strip()).splitlines()[-12:]
        raise Failed("\n".join([f"status {program.returncode}", *last]))
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def command(request: Request, mpi_args: Sequence[str] = ()) -> list[str]:
    """Return the command that carries out a measurement."""
    peer = PEERS[request.peer]
    words = [sys.executable, *peer.runner, "-m", peer.program, request.encode()]
    if peer.ranks is None:
        return words
    return mpiexec.command_line(_mpiexec(), request.workers + peer.ranks, words, mpi_args)


@functools.lru_cache(maxsize=1)
def _mpiexec() -> mpiexec.Mpiexec:
    return mpiexec.find()


def _end(program: subprocess.Popen[str]) -> None:
    """End a program that is still there; an mpiexec that is asked to takes its ranks with it."""
    if program.poll() is None:
        program.terminate()
        try:
            program.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
