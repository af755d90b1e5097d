"""What workers have from the program: its search path, its variables, its working directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness import run_ranks

from workpool.system.inherited import Environment, adopt, of_us

both = pytest.mark.usefixtures("claim")


def test_what_is_no_text_in_the_path_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["text", Path("nowhere"), b"bytes"])
    assert of_us(None)[0] == ["text"]


def test_the_path_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["a", "c"])
    adopt((["a", "b", "c", "d"], None, {}, None))
    assert sys.path == ["a", "b", "c", "d"]


def test_what_was_changed_once_is_told_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WP_KEPT", "1")
    monkeypatch.setenv("WP_BACK", "1")
    monkeypatch.delenv("WP_NEW", raising=False)
    environment = Environment()
    assert environment.variables() == {}
    monkeypatch.setenv("WP_NEW", "2")
    monkeypatch.delenv("WP_BACK")
    assert environment.variables() == {"WP_NEW": "2", "WP_BACK": None}
    monkeypatch.delenv("WP_NEW")
    monkeypatch.setenv("WP_BACK", "1")
    assert environment.variables() == {"WP_NEW": None, "WP_BACK": "1"}


def test_the_directory_is_told_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.getcwd()
    environment = Environment()
    assert environment.place() is None
    monkeypatch.chdir(tmp_path)
    assert environment.place() == str(tmp_path)
    monkeypatch.chdir(before)
    assert environment.place() == before
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert environment.place() is None


def test_variables_are_set_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WP_OLD", "1")
    monkeypatch.setenv("WP_NEW", "1")
    adopt(([], None, {"WP_OLD": None, "WP_NEW": "\udcff", "WP_NONE": None}, None))
    assert "WP_OLD" not in os.environ
    assert os.environb[b"WP_NEW"] == b"\xff"


def test_a_directory_that_another_host_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    adopt(([], None, {}, str(tmp_path / "elsewhere")))
    assert os.getcwd() == str(tmp_path)
    said = capfd.readouterr().err
    assert "has not the script's working directory" in said
    assert f"tasks run in {str(tmp_path)!r}" in said


@pytest.mark.mpi
@pytest.mark.either
@both
def test_tasks_run_with_the_variables_and_where_the_script_was(tmp_path: Path) -> None:
    script = """
        import os, sys
        from workpool import WorkPool

        def seen():
            return os.environ.get("WP_SET"), os.environ.get("WP_UNSET"), os.getcwd()

        def begun_with():  # libraries read theirs when they are loaded
            with open("/proc/self/environ", "rb") as file:
                return b"WP_SET=1" in file.read().split(b"\\0")

        def early():
            assert "numpy" not in sys.modules, "it has taken its variables already"
            assert seen() == expected

        def agree(pool):
            for isolate in (False, True):
                view = pool.with_options(isolate=isolate)
                found = [view.submit(seen) for _ in range(4)]
                assert {future.result() for future in found} == {expected}

        first = os.getcwd()
        os.environ["WP_SET"] = "1"
        del os.environ["WP_UNSET"]
        os.chdir(sys.argv[1])
        expected = "1", None, sys.argv[1]
        with WorkPool(initializer=early) as pool:
            pool.submit(seen).result()
        with WorkPool() as pool:
            assert pool.with_options(isolate=True).submit(begun_with).result()
            agree(pool)
        os.environ["WP_SET"] = "2"
        os.environ["WP_UNSET"] = "0"
        os.chdir(first)
        expected = "2", "0", first
        with WorkPool() as pool:
            agree(pool)
            os.environ["WP_SET"] = "3"  # not told: the pool is there
            agree(pool)
    """
    run_ranks(3, script, str(tmp_path), env={"WP_UNSET": "0"})


@pytest.mark.mpi
@pytest.mark.either
def test_ranks_of_an_spmd_program_have_their_own(tmp_path: Path) -> None:
    script = """
        import os, sys
        import workpool
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.Get_rank()
        os.environ["WP_OWN"] = str(rank)
        before = os.getcwd()

        def seen():
            return MPI.COMM_WORLD.Get_rank(), os.environ["WP_OWN"], os.getcwd()

        def main(pool):
            os.chdir(sys.argv[1])
            with workpool.WorkPool() as another:
                for one in (pool, another):
                    rank, own, place = one.submit(seen).result()
                    assert own == str(rank) and place == before, (rank, own, place)

        workpool.run(main)
    """
    run_ranks(2, script, str(tmp_path), spmd=True)
