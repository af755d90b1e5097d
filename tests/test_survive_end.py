"""How a job that outlives its workers ends: who must not die, who is told, what is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from jobs import LIMIT_S, ROOT, Ended, Job
from launching import run
from processes import PATIENCE
from surviving import BUSY, HEAD, deaths, end, survive

from workpool.launch.mpiexec import Kind, find

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]


@pytest.mark.smoke
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_the_driver_dies(signum: int) -> None:
    with survive(BUSY.format(options="")) as started:
        started.until("busy")
        os.kill(started.ranks()[0], signum)
        ended = end(started, 10)
    assert ended.status == 128 + signum
    assert f"was killed by signal {signum}" in ended.err
    assert "no job outlives its driver" in ended.err
    assert "leaves" not in ended.err  # who has a launcher does not say it as well


def test_the_driver_dies_with_its_supervisor_before_anything_has_begun() -> None:
    with survive("time.sleep(60)") as started:
        driver, begun = 0, dict[int, int]()  # the supervisors, by their ranks' processes
        while driver not in begun:
            assert started.process.poll() is None
            ranks = started.ranks()
            driver = ranks[0] if len(ranks) == 4 else 0
            notes = started.place.glob("workpool-*/begun.*")
            begun = {int(rank): int(pid) for _, pid, rank in (n.name.split(".") for n in notes)}
        os.kill(begun[driver], signal.SIGKILL)
        ended = end(started)
    assert ended.status in (1, 137)
    assert "start it again" in ended.err or "all that its program knew" in ended.err


def test_a_supervisor_dies_before_its_rank_has_begun() -> None:
    """It has noted nothing by then.  MPICH's mpiexec ends the job, and Open MPI's does nothing."""
    with survive("") as started:
        supervisors: list[int] = []
        while not supervisors:
            members = started.members()
            supervisors = [n for n, line in members.items() if line.split()[1:3] == ["-I", "-S"]]
        os.kill(supervisors[0], signal.SIGKILL)
        ended = end(started)
    assert ended.status in (9, 137)
    told = "start it again" in ended.err
    assert told or (find().kind is Kind.MPICH and "the driver never started" in ended.err), ended


def test_the_driver_leaves_the_hard_way() -> None:
    with survive("print('leaves', flush=True); os._exit(0)") as started:
        started.until("leaves")
        ended = end(started, 10)
    assert ended.status == 1
    assert "the driver (rank 0, process" in ended.err


def test_the_repository_dies() -> None:
    with survive(BUSY.format(options="repository=2")) as started:
        started.until("busy")
        os.kill(started.ranks()[2], signal.SIGKILL)
        ended = end(started, 10)
    assert ended.status == 1
    assert "it held the repository of a pool" in ended.err
    assert "repository=0" in ended.err


def test_every_worker_dies() -> None:
    with survive(BUSY.format(options="")) as started:
        started.until("busy")
        for pid in started.ranks()[1:]:
            os.kill(pid, signal.SIGKILL)
        ended = end(started, 10)
    assert ended.status == 1
    assert "BrokenPool: " in ended.err
    assert len([line for line in deaths(ended) if "signal 9" in line]) == 3


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_the_drivers(signum: int) -> None:
    seen = """
    while not entry.current().tables.drivers[0].recovery.ran:
        time.sleep(0.01)
    print("seen", flush=True)
    futures[0].result()
"""
    text = HEAD + BUSY.replace("\n    futures[0].result()\n", seen).format(options="")
    with run("--survive", "--grace", "8", "-w", "3", "-c", text) as started:
        started.until("busy")
        os.kill(started.ranks()[1], signal.SIGKILL)
        started.signal(signum, after="seen")
        ended = end(started, 15)
    assert ended.status == 128 + signum
    assert deaths(ended) == ["workpool: worker rank 1 died, signal 9, while it ran task sleep"]


def test_an_error_in_the_script() -> None:
    with survive(BUSY.replace("futures[0].result()", "1 / 0").format(options="")) as started:
        ended = end(started, 15)
    assert ended.status == 1
    assert ended.err.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_dies_before_the_job_has_begun(tmp_path: Path, victim: int) -> None:
    died = tmp_path / "died"
    (tmp_path / "sitecustomize.py").write_text(f"""\
import os, signal
if "{victim}" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    open({str(died)!r}, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
""")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = ["-m", "workpool.launch.cli", "run", "--survive", "-w", "3", "-c", "pass"]
    with Job([sys.executable, *words], environment) as started:
        give_up = time.monotonic() + LIMIT_S * PATIENCE
        while not died.exists():
            assert time.monotonic() < give_up
            time.sleep(0.02)
        ended = started.wait(10)
    assert ended.status == 137
    assert "killed by signal 9, before the job had begun" in ended.err


DEAF = """
def lose_stderr_and_sleep():
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(read)
    os.close(write)
    print("deaf", flush=True)
    time.sleep(60)

with WorkPool() as pool:
    each(pool, os.getpid)
    futures = [pool.submit(lose_stderr_and_sleep) for _ in range(3)]
    futures[0].result()
"""


def by_hand(text: str, until: str, times: int) -> Ended:
    """Kill the driver of a job that was started without a launcher, and wait for its end."""
    from workpool.launch.mpiexec import command_line, environment, find

    program = find()
    command = command_line(
        program, 4, [sys.executable, "-m", "workpool", "-c", HEAD + text], survive=True
    )
    variables = {**environment(program.kind, os.environ), "PYTHONPATH": str(ROOT)}
    with Job(command, variables, lasting=True) as started:
        started.until(until, times)
        os.kill(started.ranks()[0], signal.SIGKILL)
        return end(started, 10)


def test_by_hand() -> None:
    """Without a launcher, the workers notice themselves that the driver is dead."""
    ended = by_hand(BUSY.format(options=""), "busy", 1)
    assert "leaves: the driver has died" in ended.err  # mpiexec may be gone before all have said it


def test_by_hand_and_nobody_reads_what_workers_say() -> None:
    by_hand(DEAF, "deaf", 3)
