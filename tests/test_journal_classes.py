"""Results in a journal that are of classes of the script: as the script has them now."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from launching import alone, run

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_results_of_classes_of_the_script_are_those_that_it_has_now(tmp_path: Path) -> None:
    script = """
        import dataclasses
        from workpool import WorkPool

        @dataclasses.dataclass
        class Point:
            x: int

        def make(x):
            open("ran", "a").write("x")
            return Point(x)

        def make_some(x):
            open("ran", "a").write("x")
            return Point(x)

        with WorkPool(journal="run.db") as pool:
            for _ in range(3):
                assert pool.submit(make, 1).result() == Point(1)
            found = list(pool.map(make_some, range(1000)))
            assert found == [Point(x) for x in range(1000)]
            assert type(found[0]) is Point
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(script))
    for workers in ("1", "2"):
        with run("-w", workers, "driver.py", cwd=tmp_path) as started:
            ended = started.wait()
        assert ended.status == 0, ended
    assert len((tmp_path / "ran").read_text()) == 1003
    assert os.path.getsize(tmp_path / "run.db") < 200_000


def test_a_result_is_of_no_other_class_of_that_name(tmp_path: Path) -> None:
    script = """
        from workpool import WorkPool

        made = []
        for number in range(3):
            class Made:
                n = number
                def get(self):
                    return self.n
            made.append(Made)

        def make():
            open("ran", "a").write("x")
            return [cls() for cls in made]

        with WorkPool(journal="run.db") as pool:
            found = pool.submit(make).result()
            assert [it.get() for it in found] == [0, 1, 2], [it.get() for it in found]
            assert type(found[2]) is Made
    """
    for _ in range(2):
        alone(tmp_path, script)
    assert (tmp_path / "ran").read_text() == "x"
    (tmp_path / "run.db").unlink()
    for _ in range(2):
        with run("-w", "2", "driver.py", cwd=tmp_path) as started:
            ended = started.wait()
        assert ended.status == 0, ended
    assert (tmp_path / "ran").read_text() == "xx"


def test_a_result_is_of_the_script_s_class_whatever_module_that_names(tmp_path: Path) -> None:
    script = """
        import dataclasses
        from workpool import WorkPool

        Point = dataclasses.make_dataclass("Point", ["x"])
        Point.__module__ = "types"  # as before Python 3.12

        def make():
            open("ran", "a").write("x")
            return Point(1), lambda: 0

        with WorkPool(journal="run.db") as pool:
            point, _ = pool.submit(make).result()
        assert point == Point(1)
    """
    for _ in range(2):
        alone(tmp_path, script)
    assert (tmp_path / "ran").read_text() == "x"


def test_a_cell_that_is_run_again_gets_results_of_its_own_classes(tmp_path: Path) -> None:
    cell = """
        import dataclasses, enum
        from workpool import WorkPool

        @dataclasses.dataclass
        class Point:
            x: int
            class Inner:
                pass

        class Status(enum.Enum):
            DONE = 1

        def make(x):
            open("ran", "a").write("x")
            return Point(x), Status.DONE, Point.Inner()

        with WorkPool(journal="run.db") as pool:
            found = [pool.submit(make, 0).result(), *pool.map(make, range(1, 20))]
        for x, (point, status, inner) in enumerate(found):
            assert point == Point(x) and status is Status.DONE and type(inner) is Point.Inner
    """
    (tmp_path / "cell.py").write_text(textwrap.dedent(cell))
    alone(tmp_path, "for _ in range(2):\n    exec(open('cell.py').read())\n    first = found")
    assert (tmp_path / "ran").read_text() == "x" * 20
