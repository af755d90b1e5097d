"""Every demo is right on two numbers of ranks, can be wrong, and complains in one line."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either]

DEMOS = Path(__file__).resolve().parents[1] / "demos"
RANKS = 3, 4


class Demo(NamedTuple):
    """A program, with sizes that a test has time for."""

    path: str
    sizes: tuple[str, ...] = ()


RMA = [
    Demo("01_window.py"),
    Demo("02_fence.py", ("--late-ms", "10")),
    Demo("03_ring.py", ("--nbytes", "8", "4096", "--steps", "10")),
    Demo("04_synchronizations.py", ("--nbytes", "8", "8192", "--calls", "2", "--late-ms", "5")),
    Demo("05_billboard.py", ("--rounds", "40", "--limit-s", "1")),
    Demo("06_ring_sum.py"),
    Demo("07_gather.py", ("--hold-ms", "5")),
    Demo("08_tour.py"),
    Demo("09_halo.py", ("--rows", "60", "--columns", "40", "--steps", "10")),
    Demo("10_allgather.py"),
    Demo("11_countdown.py"),
    Demo("12_requests.py", ("--numbers", "2048")),
    Demo("13_counter.py", ("--items", "50", "--rounds", "5")),
    Demo("14_pointer.py", ("--rows", "40", "--rounds", "5")),
    Demo("15_repository.py", ("--updates", "30")),
    Demo("16_epochs.py", ("--updates", "30")),
    Demo("17_broken.py"),
]
POOL = [
    Demo("pi.py", ("--tasks", "64", "--darts", "20000")),
    Demo("mandelbrot.py", ("--width", "96", "--iterations", "300")),
    Demo("schedules.py", ("--items", "100", "--seconds", "0.1")),
    Demo("sweep.py", ("--columns", "9", "--rows", "5")),
    Demo(
        "serve.py", ("--clients", "4", "--requests", "10", "--limit", "3000000", "--bound", "20000")
    ),
]


@pytest.mark.parametrize("demo", RMA, ids=lambda demo: demo.path)
def test_windows(demo: Demo) -> None:
    path = DEMOS / "rma" / demo.path
    for ranks in RANKS:
        stdout = run_ranks(ranks, path, *demo.sizes, spmd=True).stdout
        assert "check: " in stdout
        assert "WRONG" not in stdout
        assert "in workpool: " in stdout
    stdout = run_ranks(3, path, *demo.sizes, "--sabotage", spmd=True, expect_status=1).stdout
    assert "WRONG on ranks" in stdout
    stderr = run_ranks(1, path, spmd=True, expect_status=2).stderr
    assert f"{demo.path}: runs on " in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("demo", POOL, ids=lambda demo: demo.path)
def test_pools(demo: Demo, tmp_path: Path) -> None:
    path = DEMOS / demo.path
    output = ("--output", str(tmp_path / "picture.png")) if demo.path == "mandelbrot.py" else ()
    for ranks in RANKS:
        stdout = run_ranks(ranks, path, *demo.sizes, *output).stdout
        assert "WRONG" not in stdout
    stdout = run_ranks(3, path, *demo.sizes, *output, "--sabotage", expect_status=1).stdout
    assert "WRONG" in stdout
    stderr = run_ranks(2, path, "--no-such-option", expect_status=2).stderr
    assert f"{demo.path}: " in stderr
    assert "Traceback" not in stderr


def test_no_demo_is_left_out() -> None:
    tested = {demo.path for demo in (*RMA, *POOL)} | {"code_census.py", "run_all.py"}
    found = {path.name for path in (*DEMOS.glob("*.py"), *DEMOS.glob("rma/[0-9]*.py"))}
    assert found == tested


@pytest.mark.parametrize("demo", RMA, ids=lambda demo: demo.path)
def test_the_place_that_it_names_is_there(demo: Demo) -> None:
    (told,) = re.findall(r"demo\.end\((.*?)\n    \)", (DEMOS / "rma" / demo.path).read_text(), re.S)
    named = re.findall(r"([\w/]+\.py)(?:, (\w+)(?:\.(\w+))?)?", ast.literal_eval(f"({told})"))
    assert named
    for path, name, method in named:
        (place,) = (DEMOS.parent / "workpool").rglob(path.removeprefix("workpool/"))
        defined = {
            node.name: {inner.name for inner in ast.walk(node) if hasattr(inner, "name")}
            for node in ast.parse(place.read_text()).body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        }
        assert not name or name in defined, f"{path}, {name}"
        assert not method or method in defined[name], f"{path}, {name}.{method}"
