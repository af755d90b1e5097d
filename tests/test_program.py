"""A program runs as python runs it: python itself is the oracle."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from workpool.errors import UsageError
from workpool.launch.program import Program, parse, split, trimmed

ROOT = Path(__file__).resolve().parent.parent

SHOW = """\
import inspect, json, sys
def here(x: int): pass
shown = {
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "package": __package__, "spec": getattr(__spec__, "name", None),
    "is main": sys.modules["__main__"].__dict__ is globals(), "module": here.__module__,
    "doc": __doc__, "builtins": __builtins__.__name__, "cached": globals().get("__cached__"),
    "annotations": repr(here.__annotations__),
    "loader": getattr(__loader__, "__name__", type(__loader__).__name__),
}
if globals().get("__file__", "").endswith(".py") and ".zip" not in __file__:
    shown["source"] = inspect.getsource(here)
print(json.dumps(shown))
"""

RUN = """\
import sys
from workpool.launch.program import parse
found = parse(sys.argv[1:])
found.check()
found.enter()
found.run()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a directory with one program of every kind."""
    (tmp_path / "script.py").write_text(SHOW)
    (tmp_path / "no suffix").write_text(SHOW)
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "compiled.pyc"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "script.py")
    for package in ("package", "directory"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__main__.py").write_text(SHOW)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text(SHOW)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    return tmp_path


def python(place: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run python with these words."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["script.py"],
        ["./script.py", "-x", "--", "a b", ""],
        ["no suffix", "1"],
        ["elsewhere/link.py"],
        ["compiled.pyc"],
        ["directory", "1"],
        ["archive.zip", "1"],
        ["-m", "script", "-m", "2"],
        ["-mscript"],
        ["-m", "package", "1"],
        ["-m", "package.inner"],
        ["-c", SHOW, "-c", "3"],
        ["-", "4"],
    ],
    ids=lambda words: " ".join(words).replace(SHOW, "SHOW"),
)
def test_as_python(place: Path, words: list[str]) -> None:
    text = SHOW if words[0] == "-" else ""
    expected = python(place, *words, text=text)
    assert expected.returncode == 0, expected.stderr
    found = python(place, "-c", RUN, *words, text=text)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == json.loads(expected.stdout)


def test_the_end_of_standard_input_is_not_waited_for_in_silence(place: Path) -> None:
    """Open MPI's mpiexec keeps it to itself."""
    late = RUN.replace("found.run()", "program.LATE_S = 0.1; found.run(relayed=True)")
    command = [sys.executable, "-c", f"from workpool.launch import program\n{late}", "-"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=-1, stdout=-1, stderr=-1
    ) as started:
        assert started.stdin is not None
        assert started.stderr is not None
        started.stdin.write(b"print(5)\n")
        started.stdin.flush()
        assert b"`workpool run -`" in started.stderr.readline()
        assert started.communicate(timeout=60) == (b"5\n", b"")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="python has no -P")
@pytest.mark.parametrize("program", ["script.py", "directory"])
def test_as_python_with_a_safe_path(place: Path, program: str) -> None:
    expected, found = python(place, "-P", program), python(place, "-P", "-c", RUN, program)
    assert json.loads(found.stdout) == json.loads(expected.stdout)


def test_as_python_where_the_working_directory_is_gone(place: Path) -> None:
    (place / "run.py").write_text(RUN)
    shown = []
    for words in (f"{place}/script.py", f"-m run {place}/script.py"):
        command = f"rmdir {place}/gone; PYTHONPATH={ROOT}:{place} exec {sys.executable} {words}"
        (place / "gone").mkdir()
        ended = subprocess.run(
            command, shell=True, cwd=place / "gone", capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 0, ended.stderr
        shown.append(json.loads(ended.stdout))
    assert shown[1] == shown[0]


def test_a_pipe_is_read_once(place: Path) -> None:
    assert python(place, "-c", RUN, "/dev/stdin", text="print(5)").stdout == "5\n"


def test_main_stays(place: Path) -> None:
    script = "import atexit, sys\nx = 5\natexit.register(lambda: print(sys.modules['__main__'].x))"
    (place / "script.py").write_text(script)
    assert python(place, "-c", RUN, "script.py").stdout == "5\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["missing.py"], "cannot open 'missing.py': no such file$"),
        (["python3", "script.py"], "'python3': no such file; give the program without it"),
        (["run", "-w", "2", "script.py"], "'run': no such file; give the program without it, or"),
        (["info"], "'info': no such file; that command is `workpool info`$"),
        (["env", "x"], "cannot open 'env': no such file; if /.*/env is meant, give that$"),
        (["elsewhere"], "'elsewhere'.*without __main__"),
        (["-m", "missing_module"], "no module named 'missing_module'"),
        (["-m", ""], "no module named ''"),
        (["-m", "script.py"], "this is a file: give it without -m"),
        (["-m", "missing.py"], "no module named 'missing.py'"),
        (["-m", "workpool.futures", "script.py"], "serve this program already: leave it out"),
        (["-m", "mpi4py.futures", "script.py"], "import workpool.futures in place of mpi4py"),
    ],
)
def test_there_is_no_such_program(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(UsageError, match=complaint):
        parse(words).check()


def test_what_is_raised_before_the_program_begins_has_none_of_its_frames() -> None:
    with pytest.raises(ImportError, match=r"'json\.missing' has no code") as caught:
        parse(["-m", "json.missing"])._find()
    assert trimmed(caught.tb.tb_next) is None


def test_check_imports_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "package" / "__init__.py").write_text("1 / 0")
    (place / "json").touch()
    monkeypatch.chdir(place)
    for words in (["-m", "package.inner"], ["-m", "json"], ["directory"]):
        parse(words).check()


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["a.py", "-m", "x"], Program("file", "a.py", ("-m", "x"))),
        (["-m", "a.b", "-c"], Program("module", "a.b", ("-c",))),
        (["-ma.b"], Program("module", "a.b")),
        (["-c", "pass", "x"], Program("command", "pass", ("x",))),
        (["-c0"], Program("command", "0")),
        (["-", "x"], Program("stdin", "-", ("x",))),
    ],
)
def test_parse(words: list[str], program: Program) -> None:
    assert parse(words) == program
    assert parse(program.words()) == program


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("words", "interactive"),
    [
        (["-m", "code"], "at a terminal"),
        (["-m", "IPython"], "at a terminal"),
        (["-m", "ipykernel_launcher", "-f", "connection.json"], "always"),
        (["-m", "ipykernel", "-f", "connection.json"], "always"),
        (["-m", "json.tool"], "never"),
        (["IPython"], "never"),
    ],
)
def test_what_is_a_session(
    monkeypatch: pytest.MonkeyPatch, words: list[str], interactive: str, terminal: bool
) -> None:
    """There an interrupt ends a cell, and the next one, however soon, not the job."""
    monkeypatch.setattr(os, "isatty", lambda descriptor: terminal and descriptor == 0)
    held = interactive == "always" or (interactive == "at a terminal" and terminal)
    assert parse(words).interactive == held


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no program"),
        (["-m"], "-m needs a module"),
        (["-c"], "-c needs a command"),
        (["--frob"], "unknown option '--frob'"),
    ],
)
def test_parse_refuses(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse(words)


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("-w 3 a.py -w 4", "-w 3", "a.py -w 4"),
        ("-w 3 -m a -w 4", "-w 3", "-m a -w 4"),
        ("-w 3 -ma -w 4", "-w 3", "-ma -w 4"),
        ("--w=3 - x", "--w=3", "- x"),
        ("-w 3 -- a.py -- b", "-w 3", "a.py -- b"),
        ("-x", "-x", ""),
        ("", "", ""),
    ],
)
def test_split(words: str, options: str, rest: str) -> None:
    assert split(words.split(), ["-w"]) == (options.split(), rest.split())
