"""The harness itself: a hang is shown with every rank's stacks, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from harness import END_OF_JOB, Batch, case_names, run_ranks
from jobs import HangError, JobError
from processes import END_GRACE_S, marked

pytestmark = pytest.mark.mpi


def processes_of_jobs() -> list[str]:
    """Return the commands of all live processes that this harness has started."""
    return list(marked(f"{os.getpid()}-").values())


def stacks_of_a_hang(ranks: int, script: str, where: str, spmd: bool = False) -> str:
    """Return what is said of a job that hangs; on a busy machine it takes long to come so far."""
    for timeout in (8, 40):
        with pytest.raises(HangError) as caught:
            run_ranks(ranks, script, timeout=timeout, spmd=spmd)
        if where in str(caught.value):
            break
    return str(caught.value)


def test_output_arguments_and_status() -> None:
    script = """
        import os, sys
        print(sys.argv[1:], os.environ["COLOUR"])
        print("to stderr", file=sys.stderr)
        sys.exit(4)
    """
    env = {"COLOUR": "blue"}
    result = run_ranks(2, script, "a", "b c", env=env, expect_status=4)
    assert "['a', 'b c'] blue" in result.stdout
    assert "to stderr" in result.stderr
    assert result.status == 4
    with pytest.raises(JobError, match="expected status 0, got status 4"):
        run_ranks(2, script, env=env)


def test_script_may_be_a_file(tmp_path: Path) -> None:
    script = tmp_path / "own_name.py"
    script.write_text("print(__file__)\n")
    assert "own_name.py" in run_ranks(1, script).stdout


def test_hang_in_a_task_shows_the_stacks_of_every_rank() -> None:
    script = """
        import time
        from workpool import WorkPool

        def never_ends():
            time.sleep(1000)

        def patient(future):
            return future.result()

        with WorkPool() as pool:
            patient(pool.submit(never_ends))
    """
    text = stacks_of_a_hang(3, script, "in never_ends")
    for rank in range(3):
        assert f"--- rank {rank}, process" in text
    assert "in patient" in text, text
    assert "in never_ends" in text, text
    assert not processes_of_jobs()


def test_hang_inside_an_mpi_call_shows_the_stacks_of_every_rank() -> None:
    script = """
        import time
        from mpi4py import MPI

        def waits_for_a_message():
            MPI.COMM_WORLD.recv(source=1)  # which spins

        def sends_none():
            time.sleep(1000)

        print("before", flush=True)
        waits_for_a_message() if MPI.COMM_WORLD.rank == 0 else sends_none()
    """
    text = stacks_of_a_hang(2, script, "in sends_none", spmd=True)
    assert "in waits_for_a_message" in text, text
    assert "in sends_none" in text, text
    assert "before" in text, text
    assert not processes_of_jobs()


def test_process_left_behind_is_an_error_and_is_ended() -> None:
    script = """
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                         start_new_session=True, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    """
    with pytest.raises(JobError, match=r"left behind[^$]*time.sleep\(1000\)"):
        run_ranks(1, script)
    assert not processes_of_jobs()


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_batch_attributes_hangs_and_deaths_by_name(workers: int | None) -> None:
    names = [*case_names("faulty"), END_OF_JOB]
    batch = Batch("faulty", names, workers)
    with contextlib.closing(batch):
        outcomes = {name: batch.outcome(name) for name in names}
    assert {name: outcome.outcome for name, outcome in outcomes.items()} == {
        "case_passes": "passed",
        "case_fails": "failed",
        "case_skips": "skipped",
        "case_hangs": "failed",
        "case_passes_after_a_hang": "passed",
        "case_takes_the_job_down": "failed",
        "case_exits": "failed",
        "case_passes_at_last": "passed",
        END_OF_JOB: "passed",
    }
    assert "on purpose" in outcomes["case_fails"].text
    assert outcomes["case_skips"].text == "for a reason"
    assert "in case_hangs" in outcomes["case_hangs"].text
    for rank in range((workers or 0) + 1):
        assert f"--- rank {rank}, process" in outcomes["case_hangs"].text
    assert "the job ended in here" in outcomes["case_takes_the_job_down"].text
    assert "SystemExit: 3" in outcomes["case_exits"].text
    assert not processes_of_jobs()


def test_batch_closed_in_the_middle_leaves_nothing() -> None:
    batch = Batch("faulty", ["case_passes", "case_hangs"], 1)
    assert batch.outcome("case_passes").outcome == "passed"
    batch.close()
    give_up = time.monotonic() + END_GRACE_S
    while processes_of_jobs() and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not processes_of_jobs()
