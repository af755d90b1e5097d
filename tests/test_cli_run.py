"""A program under ``workpool run`` is what it is under python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import Job
from launching import by_hand, run

pytestmark = pytest.mark.mpi

ALIKE = {
    "prints": "print('to stdout'); import sys; print('to stderr', file=sys.stderr)",
    "returns": "import sys; sys.exit()",
    "zero": "import sys; sys.exit(0)",
    "three": "import sys; sys.exit(3)",
    "true": "import sys; sys.exit(not False)",
    "more than a byte": "import sys; sys.exit(2**40 + 5)",
    "more than a long": "import sys; sys.exit(2**70)",
    "message": "import sys; sys.exit('what was wrong')",
    "own with_traceback": (
        "class Own(Exception):\n    with_traceback = __str__ = lambda *_: 1 / 0\n\nraise Own"
    ),
    "raises": "def f():\n    1 / 0\n\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e",
    "syntax": "def f(:\n    pass",
    "arguments": "import sys; print(sys.argv)",
    "path": "import sys; print(sys.path[0]); import beside; print(beside.x)",
    "stdin": "import sys; print(sys.stdin.read().upper())",
    "exit function": "import atexit; atexit.register(print, 'later'); print('now')",
    "exit functions called by itself": (  # as viztracer does
        "import atexit, sys; atexit.register(print, 'now'); atexit._run_exitfuncs(); sys.exit(3)"
    ),
    "output is not a terminal": "import sys; print(sys.stdout.isatty(), sys.stdin.isatty())",
    "system exit in a thread": "import sys, threading; threading.Thread(target=sys.exit).start()",
    "a lot": "print('x' * 3_000_000)",
    "excepthook": "import sys; sys.excepthook = lambda *e: print('mine', e[0].__name__); 1 / 0",
}


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_as_under_python(tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    (tmp_path / "beside.py").write_text("x = 5")
    words = [str(script), "-w", "a b", "--", ""]
    with Job([sys.executable, *words], text="from stdin") as under_python:
        expected = under_python.wait()
    with run("-w", "2", *words, text="from stdin") as under_us:
        ended = under_us.wait()
    assert ended == expected


def test_a_task_that_exits_does_not_end_the_script_unsaid() -> None:
    text = "import sys; from workpool import WorkPool; pool = WorkPool(); "
    for call, whose in (
        ("pool.submit(sys.exit).result()", "task exit"),
        ("list(pool.map(lambda n: n or sys.exit(), [1, 0]))", "task <lambda>, item 1 of its map,"),
    ):
        with run("-w", "1", "-c", text + call) as started:
            ended = started.wait()
        assert (ended.status, ended.out) == (0, "")
        assert ended.err.startswith(f"workpool: {whose} has called sys.exit, which has ended the")
        assert ended.err.count("\n") == 1


@pytest.mark.smoke
def test_tasks_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from workpool import WorkPool\n"
        "def task(x):\n"
        "    print('in a task', x)\n"
        "    return x * x, os.getpid(), sys.argv[1:], sys.path[0]\n"
        "with WorkPool() as pool:\n"
        "    squares, pids, argv, path = zip(*pool.map(task, range(8)))\n"
        "print(squares, os.getpid() not in pids, argv[0], path[0])\n"
    )
    with run("-w", "2", str(script), "-x") as started:
        ended = started.wait()
    assert ended.status == 0, ended.err
    assert ended.err == ""
    lines = ended.out.splitlines()
    tasks = sorted(line for line in lines if line.startswith("in a task"))
    assert tasks == [f"in a task {x}" for x in range(8)]
    assert f"(0, 1, 4, 9, 16, 25, 36, 49) True ['-x'] {tmp_path}" in lines


def test_no_encoding_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNDEFAULTENCODING", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error::EncodingWarning")
    text = "from workpool import WorkPool\nwith WorkPool() as pool: " + (
        "print(*(pool.with_options(memory_limit_nbytes=n).submit(abs, -7).result() "
        "for n in (None, 1 << 28)))"
    )
    with run("-w", "1", "-c", text) as started:
        assert started.wait() == (0, "7 7\n", "")


def test_workers_that_python_would_inspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONINSPECT", "1")
    text = "import sys; from workpool import WorkPool; print(WorkPool().submit(abs, -7).result())"
    with by_hand("-c", text) as started:
        assert started.wait() == (0, "7\n", "")


def test_the_options_of_python_are_those_of_its_ranks() -> None:
    text = """
import sys
from workpool import WorkPool
def task():
    return sys.flags.optimize, sys.flags.dev_mode, sys._xoptions, sys.warnoptions
with WorkPool() as pool:
    isolated = pool.with_options(isolate=True)
    print({repr(it) for it in (task(), pool.submit(task).result(), isolated.submit(task).result())})
    print("unbuffered:", sys.stdout.write_through)
"""
    options = ["-OO", "-u", "-X", "dev", "-X", "mine=1", "-W", "error::UserWarning"]
    command = [sys.executable, *options, "-m", "workpool", "run", "-w", "1", "-c", text]
    with Job(command) as started:
        ended = started.wait()
    given = (2, True, {"dev": True, "mine": "1"}, ["default", "error::UserWarning"])
    assert ended == (0, f"{ {repr(given)} }\nunbuffered: True\n", "")


def test_program_from_standard_input() -> None:
    with run("-w", "1", "-", "x", text="import sys; print(sys.argv)") as started:
        assert started.wait() == (0, "['-', 'x']\n", "")


def test_the_standard_input_is_the_drivers() -> None:
    text = """
from workpool import WorkPool
with WorkPool() as pool:
    print(repr(pool.submit(input).exception(20)), input())
"""
    with run("-w", "1", "-c", text, text="typed") as started:
        assert started.wait() == (0, "EOFError('EOF when reading a line') typed\n", "")


def test_module(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("x = 3")
    (tmp_path / "package" / "__main__.py").write_text("from . import x; print(__name__, x)")
    with run("-w", "1", "-m", "package", cwd=tmp_path) as started:
        assert started.wait() == (0, "__main__ 3\n", "")
