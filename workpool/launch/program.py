"""A program as ``python`` takes it, run as ``python`` runs it: a real ``__main__``.

====================  ===========  ============================  ==============
words                 ``argv[0]``  ``sys.path[0]``               ``__file__``
====================  ===========  ============================  ==============
``script.py args``    as given     the script's own directory    the script
``directory args``    as given     the directory or zip file     its __main__
``-m module args``    its file     the current directory         its file
``-c command args``   ``-c``       ``''``                        none
``- args``            ``-``        ``''``                        ``<stdin>``
====================  ===========  ============================  ==============

The ranks that only serve have the same arguments and the same path, so what a task imports is what
the program imports.

Unlike ``runpy.run_path``, the new ``__main__`` stays in ``sys.modules`` when the program has ended:
tasks that are still open, and functions registered for the exit, go on using it.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import (
    BuiltinImporter,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType, ModuleType, TracebackType
from typing import Any, Literal, NamedTuple

from ..errors import UsageError
from ..system.inherited import here
from ..system.streams import say

USAGE = "(pyfile | -m module | -c command | -) [args ...]"

#: Words of the command line ``workpool``: programs to a rank alone; elsewhere ``./run`` is one.
COMMANDS = ("run", "info", "bench", "journal")

#: Modules that start, or wait for, the workers of a program: here they serve already.
_STARTERS = ("workpool", "workpool.futures", "mpi4py.futures")

#: How long a program may take to arrive on standard input; then it is said what may be wrong.
LATE_S = 5.0

_ENDLESS = (
    "still waiting for the end of the program on standard input, which not every mpiexec passes on "
    "(that of Open MPI 5.0 does not): give it as a file, or start it by `workpool run -`"
)

#: The files whose frames come before the program's in its tracebacks.
_OURS = {__file__, os.path.join(os.path.dirname(os.path.dirname(__file__)), "__main__.py")}
_FLAGS: dict[str, Literal["module", "command"]] = {"-m": "module", "-c": "command"}


class Program(NamedTuple):
    """What to run, and its arguments.

    Parameters
    ----------
    kind : {"file", "module", "command", "stdin"}
    target : str
        The file's path, the module's name, the command's text, ``-``.
    args : tuple of str
        What the program finds in ``sys.argv[1:]``.
    """

    kind: Literal["file", "module", "command", "stdin"]
    target: str
    args: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the words that `parse` turns into this program again."""
        flags = [flag for flag, kind in _FLAGS.items() if kind == self.kind]
        return [*flags, self.target, *self.args]

    @property
    def interactive(self) -> bool:
        """Whether it is a shell in which somebody types, or a notebook's kernel.

        Who interrupts cells of a notebook does so by SIGINT, too, and there is no terminal.
        """
        shells = ("code", "IPython", "asyncio", "bpython", "ptpython")
        kernels = ("ipykernel", "ipykernel_launcher")
        return self.kind == "module" and (
            self.target in kernels or (self.target in shells and os.isatty(0))
        )

    def check(self) -> None:
        """Find out whether there is such a program, without importing or running any of it.

        Raises
        ------
        UsageError
            If there is none.
        """
        if self.kind == "file":
            if not os.path.exists(self.target):
                raise UsageError(f"cannot open {self.target!r}: no such file{self._hint()}")
            main = os.path.join(self.target, "__main__.py")
            if os.path.isdir(self.target) and not os.path.exists(main):
                raise UsageError(f"cannot run {self.target!r}: a directory without __main__.py")
        elif self.kind == "module":
            if self.target in _STARTERS:
                raise UsageError(
                    f"-m {self.target} waits for workers, which serve this program already: leave "
                    "it out, and import workpool.futures in place of mpi4py.futures"
                )
            if self.target.endswith(".py") and os.path.isfile(self.target):
                raise UsageError(f"-m {self.target}: this is a file: give it without -m")
            top = self.target.partition(".")[0]
            beside = PathFinder.find_spec(top, [""])  # the working directory, which may be gone
            if not top or (beside is None and importlib.util.find_spec(top) is None):
                raise UsageError(f"no module named {self.target!r}")

    def _hint(self) -> str:
        if re.fullmatch(r"python[\d.]*", self.target):
            return "; give the program without it: workpool runs it by its own Python"
        if self.target == "run":
            return "; give the program without it, or start all of it by `workpool run`"
        if self.target in COMMANDS:
            return f"; that command is `workpool {self.target}`"
        from shutil import which  # no program that is there needs it

        path = which(self.target)
        return f"; if {path} is meant, give that" if path else ""

    def enter(self) -> None:
        """Set ``sys.argv`` and ``sys.path[0]``, as on every rank."""
        first = {"file": self.target, "module": "-m", "command": "-c", "stdin": "-"}[self.kind]
        sys.argv[:] = [first, *self.args]
        place = here()
        safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
        if not safe and (place or not sys.path[0]):  # else python had no directory to put there
            del sys.path[0]
        if self._archive():
            sys.path.insert(0, self._path())
        elif not safe and self.kind == "file":
            sys.path.insert(0, os.path.dirname(os.path.realpath(self.target)))
        elif not safe:
            sys.path.insert(0, place if self.kind == "module" else "")

    def run(self, relayed: bool = False) -> None:
        """Run the program as ``__main__``; whatever it raises, it raises.

        Parameters
        ----------
        relayed : bool
            Whether standard input comes through an mpiexec, which may keep its end to itself.
        """
        module = ModuleType("__main__")
        space = module.__dict__
        sys.modules["__main__"] = module
        # As python has them.
        space.update(__builtins__=builtins, __annotations__={}, __loader__=BuiltinImporter)
        if self.kind == "module" or self._archive():
            spec, code = self._find()
            if self.kind == "module":
                sys.argv[0] = str(spec.origin)
            space.update(
                __file__=spec.origin,
                __cached__=spec.cached,
                __package__=spec.parent,
                __loader__=spec.loader,
                __spec__=spec,
            )
        elif self.kind == "file":
            path = self._path()
            code, loader = _read(path)
            space.update(__file__=path, __cached__=None, __loader__=loader)
        else:
            name = "<string>" if self.kind == "command" else "<stdin>"
            text = self.target if self.kind == "command" else _standard_input(relayed)
            code = compile(text, name, "exec", dont_inherit=True)
            if self.kind == "stdin":
                space.update(__file__=name, __cached__=None)
        if sys.version_info >= (3, 15):  # modules have it no more
            space.pop("__cached__", None)
        exec(code, space)

    def _path(self) -> str:
        if os.path.isabs(self.target):
            return self.target  # the working directory may be gone
        return os.path.join(os.getcwd(), self.target)

    def _archive(self) -> bool:
        """Return whether the file is a directory or a zip file, which hold a ``__main__``."""
        if self.kind != "file" or self.target.endswith(".py"):
            return False
        importer = pkgutil.get_importer(self._path())
        return importer is not None and importer.find_spec("__main__", None) is not None

    def _find(self) -> tuple[ModuleSpec, CodeType]:
        if self.kind == "module":
            spec = importlib.util.find_spec(self.target)  # imports the packages above it
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{self.target}.__main__")
        else:
            spec = PathFinder.find_spec("__main__", [self._path()])
        loader: Any = spec.loader if spec is not None else None
        code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
        if spec is None or code is None:
            raise ImportError(f"{self.target!r} has no code that can be run as __main__")
        return spec, code


def parse(words: Sequence[str]) -> Program:
    """Read a program from the words of a command line.

    Raises
    ------
    UsageError
        If they begin with something else than a program.
    """
    if not words:
        raise UsageError(f"no program: give one of {USAGE}")
    first, rest = words[0], tuple(words[1:])
    if first == "-":
        return Program("stdin", "-", rest)
    if not first.startswith("-"):
        return Program("file", first, rest)
    kind = _FLAGS.get(first[:2])
    if kind is None:
        raise UsageError(f"unknown option {first!r}: give one of {USAGE}")
    if len(first) > 2:  # -mmodule
        return Program(kind, first[2:], rest)
    if not rest:
        raise UsageError(f"{first} needs a {kind}")
    return Program(kind, rest[0], rest[1:])


def split(words: Sequence[str], valued: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the options before the program and the program.

    Parameters
    ----------
    words : sequence of str
    valued : sequence of str
        The options that take the next word as their value.
    """
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if word == "-" or not word.startswith("-") or word[:2] in _FLAGS:
            break
        at += 2 if word in valued else 1
    return list(words[:at]), list(words[at:])


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames, at its beginning, of those who run the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


def _standard_input(relayed: bool) -> str:
    """Return all of standard input; if it is relayed, say what is wrong when its end stays away."""
    late = threading.Timer(LATE_S, say, [_ENDLESS])
    late.daemon = True
    if relayed:
        late.start()
    try:
        return sys.stdin.read()
    finally:
        late.cancel()
        if relayed:
            late.join()  # what it may be writing, Python's end would wait for in vain


def _read(path: str) -> tuple[CodeType, SourceFileLoader | SourcelessFileLoader]:
    """Return the code of a file, source or compiled, and its loader."""
    with io.open_code(path) as file:
        content = file.read()  # at once: a pipe gives it but once
    compiled: CodeType | None = pkgutil.read_code(io.BytesIO(content))
    if compiled is not None:
        return compiled, SourcelessFileLoader("__main__", path)
    code = compile(content, path, "exec", dont_inherit=True)
    return code, SourceFileLoader("__main__", path)
