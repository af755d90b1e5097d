"""Ranks that fail before the program begins: that is told, and nobody waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import run_ranks
from jobs import LIMIT_S, ROOT, Ended, Job

from workpool.launch.mpiexec import Kind, find


def with_bad_rank(tmp_path: Path, rank: int, fault: str, limit_s: float = LIMIT_S) -> Ended:
    """Run a program in a job of which one rank begins with a statement that makes it fail."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def fail(): raise OSError('no memory for this')\n"
        "ranks = [os.environ.get(name) for name in ('PMI_RANK', 'OMPI_COMM_WORLD_RANK')]\n"
        f"if '{rank}' in ranks:\n"
        f"    {fault}\n"
    )
    words = ["-w", "2", "-c", "print('never')"]
    command = [sys.executable, "-m", "workpool.launch.cli", "run", *words]
    with Job(["env", f"PYTHONPATH={tmp_path}:{ROOT}", *command]) as started:
        ended = started.wait(limit_s)
    assert "never" not in ended.out
    return ended


@pytest.mark.mpi
@pytest.mark.parametrize("missing", ["workpool.serializer", "workpool.layout"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_before_mpi_is_started(tmp_path: Path, rank: int, missing: str) -> None:
    ended = with_bad_rank(tmp_path, rank, f"sys.modules['{missing}'] = None")
    assert ended.status != 0
    assert "ImportError" in ended.err or "ModuleNotFoundError" in ended.err


def test_a_rank_of_intel_mpi_that_fails_ends_what_has_started_it() -> None:
    broken = "import sys; sys.modules['workpool.worker'] = None"
    rank = f"{broken}; import workpool.__main__ as m; m.run()"
    words = [sys.executable, "-c", rank, "-c", "pass"]
    text = f"import subprocess; subprocess.run({words}); print('on')"
    env = {**os.environ, "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "99", "I_MPI_HYDRA_UUID": "a"}
    ran = subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=60
    )
    assert "ModuleNotFoundError" in ran.stderr
    assert (ran.returncode, ran.stdout) == (-signal.SIGTERM, "")


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_finds_no_mpi(tmp_path: Path, rank: int) -> None:
    ended = with_bad_rank(tmp_path, rank, "os.environ['MPI4PY_LIBMPI'] = '/nowhere/libmpi.so'")
    assert ended.status != 0
    assert ended.err.count("cannot load an MPI library") == 1
    assert "Traceback" not in ended.err


@pytest.mark.mpi
def test_no_rank_finds_an_mpi() -> None:
    env = {"MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    for ranks in (1, 3):
        ended = run_ranks(ranks, "print('never')", env=env, expect_status=None)
        assert ended.status != 0
        assert "never" not in ended.stdout
        assert ended.stderr.count("cannot load an MPI library") == 1
        assert "Traceback" not in ended.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_before_the_program_begins(tmp_path: Path, rank: int) -> None:
    fault = "from workpool.members import liveness; liveness.this_process = fail"
    ended = with_bad_rank(tmp_path, rank, fault, 20)
    assert ended.status == 1
    assert "OSError: no memory for this" in ended.err


@pytest.mark.mpi
@pytest.mark.either
@pytest.mark.parametrize("survive", [[], ["--survive"]], ids=["", "survive"])
def test_what_has_started_the_ranks_is_killed_before_they_begin(
    tmp_path: Path, survive: list[str]
) -> None:
    if find().kind is not Kind.MPICH:
        pytest.skip("Open MPI's mpiexec starts them itself")
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nif 'PMI_RANK' in os.environ: time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "workpool.launch.cli", "run", *survive, "-w", "2", "-c", ""]
    with Job(["env", f"PYTHONPATH={tmp_path}:{ROOT}", *command]) as started:
        while len(started.ranks()) < 3:
            assert started.process.poll() is None
        time.sleep(0.5)  # the launcher has seen who has started them
        (proxy,) = (pid for pid, line in started.members().items() if "hydra_pmi_proxy" in line)
        os.kill(proxy, signal.SIGKILL)
        ended = started.wait(25)
    assert ended.status == 137
    assert "a rank, or what has started it, was killed by signal 9, before" in ended.err
