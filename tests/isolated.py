"""Programs whose tasks run in child processes, for the tests of that."""

from __future__ import annotations

import textwrap

from harness import run_ranks

TASKS = """
import ctypes, itertools, os, resource, signal, subprocess, sys, threading, time
import numpy as np
from workpool import TaskKilled, TaskTimeout, WorkerCrashed, WorkPool
from workpool.job import entry
from workpool.system import process
from workpool.worker import isolation
from workpool.errors import RemoteTraceback, UsageError
from workpool.serializer import CallableCache

def add_one(n):
    return n + 1

def pid():
    return os.getpid()

def crash():
    ctypes.string_at(0)

def leave(status):
    print("last words", file=sys.stderr)
    os._exit(status)

def hang():
    while True:
        time.sleep(0.01)

def until_running(future):
    limit = time.monotonic() + 20
    while not future.running():
        assert time.monotonic() < limit and not future.done()
        time.sleep(0.002)

def until_made(path):
    limit = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < limit
        time.sleep(0.002)

def error(future):
    failure = future.exception(30)
    assert isinstance(failure.__cause__, RemoteTraceback), repr(failure)
    return failure
"""


def run(ranks: int, body: str, timeout: float = 60) -> str:
    script = TASKS + "\nwith WorkPool() as pool:\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return run_ranks(ranks, script, timeout=timeout).stdout
