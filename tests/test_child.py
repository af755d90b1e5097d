"""What a worker and its child have between them: messages, what is sent ahead, deaths."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child, payload

from workpool.context import Context, Limits, encode_setup
from workpool.errors import SerializationError
from workpool.loss import Loss, Why
from workpool.serializer import Code, Kind, as_bytes, pack_call, unpack_outcome
from workpool.system import channel, process
from workpool.system.channel import Channel
from workpool.system.inherited import of_us
from workpool.system.memory import empty
from workpool.system.process import ChildProcess
from workpool.worker import isolation


def test_large_arguments_and_results_go_as_they_are() -> None:
    def back(values: list[Any]) -> list[Any]:
        values[0][:] += 1  # its own
        return [*values, values[-1].ctypes.data]

    arrays = [np.full(600, float(n)) for n in range(1500)] + [np.arange(1 << 17)]
    found = Child(back, Limits())
    places = set()
    for _ in range(4):
        encoded = pack_call(print, (arrays,), {}, Code(1, b""))
        first, *others, place = found.call(memoryview(bytearray(as_bytes(encoded))))
        assert (first == 1).all()
        assert all(map(np.array_equal, others, arrays[1:]))
        places.add(place)
    assert len(places) == 1  # memory is used again
    # One large piece after a small one.
    encoded = pack_call(print, (arrays[-1:],), {}, Code(1, b""))
    assert (found.call(memoryview(bytearray(as_bytes(encoded))))[0] == arrays[-1] + 1).all()
    found.runner.leave()


@pytest.fixture
def child(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Child]:
    """Give a child that notes what it runs, and has run one task."""
    monkeypatch.setattr(process, "STOP_S", 10.0)  # however busy this machine is

    def task(n: int, wanted: str = "") -> int | bytes:
        with open(str(tmp_path / "ran"), "a") as ran:
            print(n, file=ran)
        while wanted and not os.path.exists(wanted):
            time.sleep(1e-3)
        if n == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return -n if n < 1000 else bytes(n)

    def start(*arguments: Any) -> ChildProcess:
        found.process = ChildProcess(*arguments)
        return found.process

    monkeypatch.setattr(isolation, "ChildProcess", start)
    found = Child(task, getattr(request, "param", Limits()))
    assert found.call(payload(0)) == 0
    yield found
    found.runner.leave()


def ran(place: Path) -> list[int]:
    return list(map(int, (place / "ran").read_text().split()))


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(1e-3)


def test_tasks_that_are_sent_ahead_do_not_wait_for_the_worker(child: Child, tmp_path: Path) -> None:
    tasks = [payload(n) for n in range(1, 9)]
    child.send_ahead(tasks)
    until(lambda: ran(tmp_path) == list(range(9)))
    assert not child.runner.retract(), "all of it has begun"
    assert [child.call(task) for task in tasks] == [-n for n in range(1, 9)]
    assert child.call(payload(9)) == -9
    assert ran(tmp_path) == list(range(10))


def test_a_large_outcome_does_not_wait_for_the_end_of_the_next_task(
    child: Child, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    tasks = [payload(1 << 22), payload(2, str(go_on))]
    child.send_ahead(tasks)
    late = threading.Timer(10, go_on.touch)
    late.start()
    assert len(child.call(tasks[0])) == 1 << 22
    assert not go_on.exists()
    late.cancel()
    go_on.touch()
    assert child.call(tasks[1]) == -2


def test_what_has_not_begun_is_taken_back(child: Child, tmp_path: Path) -> None:
    for first in (1, 5):  # the second time other requests are refused
        gate = tmp_path / str(first)
        tasks = [payload(first, str(gate)), *(payload(first + n) for n in range(1, 4))]
        child.send_ahead(tasks)
        until(lambda first=first: ran(tmp_path)[-1] == first)
        assert not child.runner.retract(), "the worker has not asked for the one that runs"
        answers: list[int] = []
        worker = threading.Thread(
            target=lambda answers=answers, task=tasks[0]: answers.append(child.call(task))
        )
        worker.start()
        until(child.runner.retract)
        assert child.runner.retract(), "nothing is left"
        gate.touch()
        worker.join()
        assert answers == [-first]
        assert child.call(tasks[3]) == -(first + 3), "after the refusals"
    assert ran(tmp_path) == [0, 1, 4, 5, 8]


def test_a_child_is_not_given_up_while_something_is_taken_back(child: Child) -> None:
    leaving = threading.Thread(target=child.runner.leave)
    with child.runner._lock:
        leaving.start()
        leaving.join(0.1)
        assert child.runner._child is not None
    leaving.join(30)
    assert child.runner._child is None


def test_a_crash_costs_the_task_that_ran(child: Child, tmp_path: Path) -> None:
    tasks = [payload(n) for n in (11, 12, 13, 14)]
    child.send_ahead(tasks)
    until(lambda: ran(tmp_path)[-1] == 13)
    assert [child.call(task) for task in tasks[:2]] == [-11, -12]
    assert child.call(tasks[2]).returncode == -signal.SIGKILL
    assert child.runner.retract(), "with the child goes what it was sent"
    assert child.call(tasks[3]) == -14
    assert ran(tmp_path) == [0, 11, 12, 13, 14]
    child.send_ahead([payload(15), payload(16)])
    until(lambda: ran(tmp_path)[-1] == 16)
    assert not child.runner.retract(), "of its own requests, the new one has begun all"


def test_a_child_that_was_stopped_goes_on(child: Child, tmp_path: Path) -> None:
    assert child.process is not None
    with child.process.stopped() as still:
        assert still
        tasks = [payload(n) for n in range(1, 4)]
        child.send_ahead(tasks)
        time.sleep(0.01)
        assert ran(tmp_path) == [0]
    assert [child.call(task) for task in tasks] == [-1, -2, -3]
    assert ran(tmp_path) == [0, 1, 2, 3]


def test_a_child_that_has_died_meanwhile_cannot_be_stopped(child: Child, tmp_path: Path) -> None:
    tasks = [payload(1, str(tmp_path / "gate")), payload(2)]
    child.send_ahead(tasks)
    until(lambda: ran(tmp_path) == [0, 1])
    assert child.runner._was_sent(tasks[0])
    assert child.process is not None
    pid = child.process.pid
    os.kill(pid, signal.SIGKILL)
    assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not child.runner.retract()
    child.runner._ahead.appendleft(tasks[0])
    assert child.call(tasks[0]).returncode == -signal.SIGKILL
    assert child.call(tasks[1]) == -2


def test_a_child_that_dies_between_two_tasks_costs_none(child: Child, tmp_path: Path) -> None:
    assert child.process is not None
    pid = child.process.pid
    descriptors = len(os.listdir("/proc/self/fd"))
    os.kill(pid, signal.SIGKILL)
    assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert child.call(payload(1)) == -1
    assert ran(tmp_path) == [0, 1]
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_what_is_sent_ahead_to_a_child_that_is_gone_costs_one_task(child: Child) -> None:
    assert child.process is not None
    os.kill(child.process.pid, signal.SIGKILL)
    until(child.process.ended)
    tasks = [payload(1), payload(2)]
    child.send_ahead(tasks)
    assert child.call(tasks[0]).why == Why.CRASHED
    assert child.call(tasks[1]) == -2


def test_a_child_ends_in_peace_though_nobody_reads_what_it_refuses(
    child: Child, tmp_path: Path
) -> None:
    tasks = [payload(1, str(tmp_path / "gate")), payload(2), payload(3)]
    child.send_ahead(tasks)
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(child.call(tasks[0])))
    caller.start()
    until(lambda: ran(tmp_path)[-1] == 1)
    until(child.runner.retract)
    started = child.runner._child
    assert started is not None
    # As after a long answer: nothing of what follows is received along with it.
    started.channel._pull = lambda: pull_one(started.channel)  # type: ignore[method-assign]
    (tmp_path / "gate").touch()
    caller.join()
    assert answers == [-1]
    until(lambda: started.numbers[isolation.child.BEGUN] == 4)
    child.runner.leave()
    assert started._process.returncode == 0


def pull_one(channel: Channel) -> None:
    """Receive no more than the message that is waited for."""
    received = channel._socket.recv(8, socket.MSG_WAITALL)
    channel._ahead = received + channel._socket.recv(int.from_bytes(received, "little"))


def test_tasks_for_which_there_is_no_memory_are_not_sent_ahead(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = isolation._request

    def refuse(*_: Any) -> bytes:
        raise MemoryError

    monkeypatch.setattr(isolation, "_request", refuse)
    tasks = [payload(1), payload(2)]
    child.send_ahead(tasks)
    monkeypatch.setattr(isolation, "_request", genuine)
    assert [child.call(task) for task in tasks] == [-1, -2]
    assert ran(tmp_path) == [0, 1, 2]


def test_a_task_that_forks_leaves_no_signal_blocked() -> None:
    def forks() -> set[int]:
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))

    found = Child(forks, Limits())
    assert found.call(payload()) == set()
    found.runner.leave()


def test_a_child_that_somebody_else_waits_for_can_die(child: Child) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert isinstance(child.call(payload(13)), Loss)
        assert child.call(payload(1)) == -1
        child.runner.leave()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("child", [Limits(timeout_s=1.0)], indirect=True)
def test_a_child_that_no_signal_ends_is_left_behind(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a frozen cgroup, or one that waits for a disk that is gone."""
    assert child.process is not None
    frozen = child.process
    monkeypatch.setattr(process, "GONE_S", 0.1)
    monkeypatch.setattr(process, "STACK_S", 0.1)
    os.kill(frozen.pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda pid, signum: None)
        lost = child.call(payload(1, str(tmp_path / "gate")))
        assert isinstance(lost, Loss)
        assert lost.why == Why.TIMEOUT
        assert not frozen.ended()
    assert child.call(payload(2)) == -2
    os.kill(frozen.pid, signal.SIGCONT)
    until(frozen.ended)


def fail() -> None:
    raise ValueError("no setup")


def test_nothing_is_sent_ahead_of_what_a_child_lacks() -> None:
    """It would take the next request for the code that it has asked for."""
    found = Child(abs, Limits())
    setup = encode_setup(of_us(None), fail, ())
    broken = found.runner.enter(2, Context(2, Limits(), setup).encoded())
    tasks = [payload(-n) for n in range(1, 5)]
    kinds = [found.runner.call(broken, 0, 1, tasks[0])[0]]
    found.runner.send_ahead(broken, 0, 1, tasks[1:])
    kinds += [found.runner.call(broken, 0, 1, task)[0] for task in tasks[1:]]
    assert kinds == [Kind.BROKEN] * 4
    assert [found.call(task) for task in tasks] == [1, 2, 3, 4]
    found.runner.leave()


def test_what_is_no_text_in_the_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("nowhere")])
    found = Child(abs, Limits())
    assert found.call(payload(-1)) == 1
    found.runner.leave()


def test_what_is_damaged_fails_its_task(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: bytes) -> None:
        raise MemoryError("no room for a copy")

    with monkeypatch.context() as poor:
        poor.setattr(isolation.child.Answer, "of", refuse)
        kind, encoded = child.runner.call(child.pool, 0, 1, payload(1))
    assert isinstance(unpack_outcome(kind, encoded)[1], MemoryError)
    assert child.call(payload(2)) == -2


def test_a_function_that_cannot_be_restored_fails_its_task(child: Child) -> None:
    child.pool.callables.add(2, b"damaged")
    kind, encoded = child.runner.call(child.pool, 0, 2, payload(1))
    assert kind == Kind.EXCEPTION
    assert isinstance(unpack_outcome(kind, encoded)[1], SerializationError)
    assert child.call(payload(2)) == -2


def test_a_child_that_ends_before_it_begins_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: Any) -> ChildProcess:
        started.append(ChildProcess(*arguments))
        if len(started) < isolation.STARTS:
            os.kill(started[-1].pid, signal.SIGKILL)
        return started[-1]

    started: list[ChildProcess] = []
    monkeypatch.setattr(isolation, "ChildProcess", start)
    found = Child(abs, Limits())
    assert found.call(payload(-1)) == 1
    assert [one._process.returncode for one in started] == [-9] * (isolation.STARTS - 1) + [None]
    found.runner.leave()


def test_a_result_without_memory_is_not_taken_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(nbytes: int) -> memoryview:
        if nbytes > 1 << 20:
            raise MemoryError
        return empty(nbytes)

    found = Child(bytes, Limits())
    with monkeypatch.context() as poor:
        poor.setattr(channel, "empty", refuse)
        kind, encoded = found.runner.call(found.pool, 0, 1, payload(1 << 21))
    assert isinstance(unpack_outcome(kind, encoded)[1], MemoryError)
    assert found.call(payload(3)) == bytes(3)
    found.runner.leave()


@pytest.mark.parametrize(
    "child",
    [Limits(timeout_s=60), Limits(memory_nbytes=1 << 30), Limits(tasks_per_child=9)],
    indirect=True,
)
def test_tasks_with_limits_are_sent_one_by_one(child: Child, tmp_path: Path) -> None:
    tasks = [payload(n) for n in range(1, 4)]
    child.send_ahead(tasks)
    time.sleep(0.05)
    assert ran(tmp_path) == [0]
    assert [child.call(task) for task in tasks] == [-1, -2, -3]


def test_a_thread_that_finds_no_memory_to_begin_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda *args: 0)
    monkeypatch.setattr(process, "BEGIN_S", 0.1)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError, match="did not begin"):
        process.ChildProcess("workpool.worker.child", 1, "host")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors, "nothing of it is left"
