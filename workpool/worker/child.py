"""The child process of a worker, which runs tasks that may be killed: see ``isolation``.

It knows nothing of MPI, answers one request at a time, and ends when its worker does.
"""

from __future__ import annotations

import faulthandler
import io
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pickle import PickleBuffer
from types import ModuleType
from typing import NamedTuple

from ..clock import monotonic
from ..contributions import Parts
from ..serializer import Encoded, Kind, Packed, join_apart, leave_script, segments, split
from ..system.channel import Channel
from ..system.process import NUMBERS, map_numbers
from ..system.spares import EASE_S, spares
from ..system.supervisor import die_with
from .runner import SPARES_NBYTES, Runner

#: Makes the process write the stack of its main thread, even if that holds the interpreter lock,
#: and then ends it: so the stack is known to be whole.
STACK_SIGNAL = signal.SIGRTMAX - 3

# Messages that are no answers.
READY = b"ready"  # it can begin
CONTEXT = b"context"  # it lacks the context of the task
ENTERED = b"entered"  # the pool's initializer has run, if there is one
RESTORED = b"restored"  # it lacks nothing any more, and calls the task's function
CODE = b"code"  # it lacks the code of the task's function
REFUSED = b"refused"  # it has not begun the task, and will not

#: What stands in the memory that worker and child share: the number of the request that the child
#: has begun or refused last, and the first of those that it shall refuse and the one after the last
#: of them.  Requests are counted from 1.
BEGUN, FROM, TO = range(NUMBERS)

#: Signals that are sent to the whole job: what they ask for is the worker's matter, which ends us.
_OF_THE_WORKER = (signal.SIGINT, signal.SIGTERM)


class Request(NamedTuple):
    """A task, as the worker sends it."""

    pool_id: int
    code_id: int
    kind: int
    payload: object  # a buffer
    memory_nbytes: int | None


class Answer(NamedTuple):
    """What became of the task of a request."""

    kind: int
    encoded: Encoded
    contributions: Parts | None  # what the task has added to accumulators

    def message(self) -> Encoded:
        """Return the answer as it is sent."""
        pieces = [PickleBuffer(piece) for piece in segments(self.encoded)]
        return join_apart((self.kind, pieces, self.contributions))

    @classmethod
    def of(cls, message: memoryview) -> Answer:
        """Return the answer that was sent."""
        kind, pieces, contributions = split(message)
        if len(pieces) == 1 and isinstance(pieces[0], bytes):
            return cls(kind, pieces[0], contributions)
        return cls(kind, Packed([memoryview(piece) for piece in pieces], lent=True), contributions)


def main(fd: int, stack_fd: int, numbers_fd: int, parent: int, rank: int, host: str) -> None:
    """Answer requests until the worker closes the connection.

    Parameters
    ----------
    fd : int
        Of a socket to the worker.
    stack_fd : int
        Of the file for stacks.
    numbers_fd : int
        Of the file of the numbers.
    parent : int
        Process id of the worker.
    rank : int
        Its MPI rank, for messages.
    host : str
        The name of its host, for messages.
    """
    die_with(parent)
    for signum in _OF_THE_WORKER:
        signal.signal(signum, lambda signum, frame: None)
    for descriptor in (fd, stack_fd):
        os.set_inheritable(descriptor, False)
    os.register_at_fork(
        # One that comes in between is for the new process, in which they have their usual effect.
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_WORKER),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_WORKER),
        after_in_child=_be_ordinary,
    )
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, stack_fd, all_threads=False, chain=True)
    sys.meta_path.insert(0, _NoMPI())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    leave_script()
    runner = Runner(rank, host)
    runner.begin()
    # Else the first task with an array, or of a class of the script, pays with its time and memory.
    for needed in ("numpy", "cloudpickle"):
        import_module(needed)
    channel = Channel(socket.socket(fileno=fd))
    numbers = map_numbers(numbers_fd)
    os.close(numbers_fd)
    spares.most_nbytes = SPARES_NBYTES
    channel.send([READY])
    with suppress(EOFError, ConnectionError):  # nobody asks any more, or reads what we answer
        while True:
            spares.ease(monotonic())
            if not channel.ready(EASE_S):
                continue
            request = channel.receive()
            numbers[BEGUN] += 1
            # Only after the step above: the worker has stopped us before it looks at BEGUN, so it
            # either finds that we have begun this request, or we find that we shall refuse it.
            if numbers[FROM] <= numbers[BEGUN] < numbers[TO]:
                channel.send([REFUSED])
                continue
            answer = _run(runner, Request(*split(request)), channel)
            channel.send(segments(answer.message()))
            channel.flush()  # the next task may take long
            del request, answer  # their memory is that of the next ones
    channel.close()


def _be_ordinary() -> None:
    """Be a process like any other after a fork."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_WORKER)


def _run(runner: Runner, request: Request, channel: Channel) -> Answer:
    def ask(what: bytes) -> memoryview:
        channel.send([what])
        return channel.receive()

    code_id = request.code_id
    pool = runner.find(request.pool_id)
    # Before the memory limit holds: what is received, and the initializer's, is not the task's.
    context = bytes(ask(CONTEXT)) if pool is None else b""
    lacks_code = code_id and (pool is None or code_id not in pool.callables)
    code = ask(CODE) if lacks_code else None
    # What is restored for the first time may import modules, and take longer than the task.
    restored = partial(channel.send, [RESTORED]) if pool is None or lacks_code else None
    try:
        if pool is None:
            pool = runner.enter(request.pool_id, context)
            channel.send([ENTERED])
        if pool.failure is not None:
            return Answer(Kind.BROKEN, pool.failure, None)
        if code is not None:
            pool.callables.add(code_id, code)
    except BaseException as error:  # restoring a function may run anything
        return Answer(Kind.EXCEPTION, runner.failure(error), None)
    with _memory(request.memory_nbytes):
        kind, encoded = runner.call(pool, request.kind, code_id, request.payload, restored)
    return Answer(kind, encoded, runner.contributions.take())


@contextmanager
def _memory(nbytes: int | None) -> Iterator[None]:
    """Bound what may be allocated besides what there is; beyond it comes MemoryError."""
    if nbytes is None:
        yield
        return
    with io.FileIO("/proc/self/status") as file:  # a task before may have replaced `open`
        held = int(file.read().partition(b"VmData:")[2].split(None, 1)[0]) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(held + nbytes, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        with suppress(ValueError):  # the task has lowered what it cannot raise again
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class _NoMPI(Loader):
    """Finds mpi4py, for who asks whether it is there, and says why it cannot be imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.partition(".")[0] == "mpi4py" else None

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(
            "no MPI here: a task with isolate=True, a time limit or a memory limit runs in a "
            "child process of its worker; without them it runs in the rank itself",
            name=module.__name__,
        )
