"""What no task can have is refused, wherever it is: ends of pipes, shared locks, files to write."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest

from workpool.errors import SerializationError
from workpool.serializer import pack_call, pack_value

REMEDY = "an end of a pipe, which only this process has: take a queue of a multiprocessing.Manager"


@pytest.fixture
def end() -> Iterator[Connection]:
    end, other = multiprocessing.Pipe()
    with end, other:
        yield end


class Keeps:
    def __init__(self, end: Connection) -> None:
        self.end = end

    def run(self) -> None:
        self.end.send(1)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda end: (print, (1, end)), "argument 2 of 2"),
        (lambda end: (print, ([{"at": end}],)), "argument 1 of 1"),
        (lambda end: (Keeps(end).run, ()), "self.end, which comes along,"),
        (lambda end: (lambda: end.send(1), ()), "'end', which the function reads,"),
    ],
)
def test_a_task_gets_no_end_of_a_pipe(
    call: Callable[[Connection], tuple[Callable[..., Any], tuple[Any, ...]]],
    what: str,
    end: Connection,
) -> None:
    function, args = call(end)
    with pytest.raises(SerializationError, match=f"cannot pickle {what}.*: it is {REMEDY}"):
        pack_call(function, args, {})


def test_nor_does_it_return_one(end: Connection) -> None:
    with pytest.raises(SerializationError, match=REMEDY):
        pack_value([end], print)


def test_multiprocessing_itself_may_pass_it_on(end: Connection) -> None:
    with pytest.raises(SerializationError):
        pack_call(print, (end,), {})
    assert ForkingPickler.dumps(end)


def test_locks_that_tasks_would_have_to_share_cannot_travel(
    run_script: Callable[..., object],
) -> None:
    run_script("""
        import threading
        lock, ended = threading.Lock(), (n for n in ())
        def enclosing():
            lock = threading.Lock()
            return lambda: lock.locked()
        def takes(lock): return lock.locked()
        class Memory:
            def __init__(self): self.lock = threading.Lock()
        memory = Memory()
        def task(): return lock.locked(), memory, ended
        def encloses():
            another = threading.Lock()
            return lambda: (memory, another)
        assert "argument 1 of 1" in str(failure(takes, lock))
        assert "'lock', which the function reads" in str(failure(enclosing()))
        assert "'ended', which the function reads" in str(failure(task))
        assert "argument 1 of 1" in str(failure(takes, memory))
        assert "'another', which the function reads" in str(failure(encloses()))
    """)


def test_a_file_that_a_task_would_write_to_in_vain_cannot_travel(
    run_script: Callable[..., object], tmp_path: Path
) -> None:
    run_script(f"""
        import sys
        path = {str(tmp_path / "file.txt")!r}
        class Log:
            def __init__(self, mode): self.file = open(path, mode)
            def __call__(self, line): return self.file.write(line)
        for mode in ("a+", "w+", "r+"):
            log = Log(mode)
            written = log.file
            for error in (failure(log, "line"), failure(lambda: written.write("line"))):
                assert "what a task writes to a copy of the file" in str(error), error
        log.file.write("line")
        log.file.close()
        read = open(path)
        assert run(lambda: read.read()) == "line"
        assert run(lambda: sys.stdout.write("")) == 0
        out = sys.stdout = open(path, "a+")
        assert run(lambda: out is sys.stdout)
    """)
