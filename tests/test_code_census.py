"""The code census: its figures are right, its check can fail, and its complaints are one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either]

DEMO = Path(__file__).resolve().parents[1] / "demos" / "code_census.py"

SOURCES = {
    "small.py": "def one():\n    if one:\n        return 1\n    elif 2:\n        pass\n",
    "deep/nested.py": "class A:\n  def b(self):\n    for c in ():\n      while c: pass\n",
    "latin.py": "# -*- coding: latin-1 -*-\nname = '\xe9'\n",
    "old.py": "print '\\d'\n",
    "null.py": "a = 1\0\n",
    "site-packages/foreign.py": "x = 1\n",
    "notes.txt": "no Python\n",
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Write a few files, good and bad ones."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    (tmp_path / "broken_link.py").symlink_to("nowhere")
    (tmp_path / "directory.py").mkdir()
    return tmp_path


@pytest.mark.usefixtures("claim")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_figures(ranks: int, sources: Path) -> None:
    stdout = run_ranks(ranks, DEMO, str(sources), "--check").stdout
    for line in (
        "3 files parsed, 3 not",
        "11 lines",
        "2 functions",
        "1 classes",
        "old.py: SyntaxError",
        "null.py: ",
        "broken_link.py: FileNotFoundError",
        "Checked against a serial run: 0 differences",
        f" of {max(1, ranks - 1)} workers busy at a time",
        " in the pool: speed-up ",
    ):
        assert line in stdout, stdout
    assert "foreign" not in stdout
    nesting = stdout.partition("Deepest nesting")[2].split()
    assert nesting[:5] == ["levels", "deep/nested.py", "4", "small.py", "2"]


@pytest.mark.usefixtures("claim")
def test_the_check_names_what_differs(sources: Path) -> None:
    script = f"""
        import runpy, sys
        from workpool.accumulator import Accumulator

        right = Accumulator.value
        Accumulator.value = lambda self: right(self) + 7
        sys.argv = ["code_census.py", {str(sources)!r}, "--check"]
        runpy.run_path({str(DEMO)!r}, run_name="__main__")
    """
    stdout = run_ranks(3, script, expect_status=1).stdout
    assert "ClassDef: serially 1, in the pool 8" in stdout


@pytest.mark.parametrize("wrong", ["missing", "notes.txt", "directory.py"])
def test_a_wrong_directory_is_one_line(wrong: str, sources: Path) -> None:
    stderr = run_ranks(2, DEMO, str(sources / wrong), expect_status=2).stderr
    ours = [line for line in stderr.split("\n") if "code_census" in line]
    assert len(ours) == 1
    assert wrong in ours[0]
    assert "Traceback" not in stderr
