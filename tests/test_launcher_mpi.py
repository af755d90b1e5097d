"""How jobs of MPI end: what each rank may do to them, and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs import Ended, Job
from launching import SIGNALS, run
from processes import PATIENCE

from workpool.launch import advice
from workpool.launch.mpiexec import Kind, find

BUSY = """\
import sys, time
from workpool import WorkPool
def task():
    print("busy", flush=True)
    time.sleep(60)
"""


def small_shm(size: str, *words: str) -> list[str]:
    """Return the command that runs another where /dev/shm is so large."""
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    apart = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if os.geteuid() or subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this machine lets nobody mount a file system of their own")
    return [*apart, *words]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("text", "status"),
    [("pass", 0), ("import sys; sys.exit(3)", 3), ("1 / 0", 1), ("raise KeyboardInterrupt", 130)],
)
def test_status_with_mpi(text: str, status: int) -> None:
    with run("-w", "2", "-c", text) as started:
        ended = started.wait()
    assert (ended.status, ended.out) == (status, "")
    assert "mpi" not in ended.err.lower()  # nothing but Python's own traceback


@pytest.mark.mpi
def test_driver_that_leaves_the_hard_way_is_no_success() -> None:
    with run("-w", "2", "-c", "import os; os._exit(0)") as started:
        ended = started.wait()
    assert ended.status != 0
    assert "--survive" in ended.err  # the same where it was a task that did it


@pytest.mark.mpi
def test_a_file_that_ranks_have_mapped_may_have_any_name(tmp_path: Path) -> None:
    text = """
import builtins, mmap, os, sys
from workpool import WorkPool

def task():
    with open(os.fsencode(sys.argv[1]) + b"/\\xe9t\\xe9", "w+b") as file:
        file.write(b"text")
        file.flush()
        builtins.mapped = mmap.mmap(file.fileno(), 0)
        return bytes(mapped)

with WorkPool() as pool:
    task()
    print(pool.submit(task).result())
"""
    with run("--survive", "-w", "1", "-c", text, str(tmp_path)) as started:
        assert started.wait() == (0, "b'text'\n", "")


@pytest.mark.mpi
def test_windows_of_open_mpi_that_share_no_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if find().kind is not Kind.OPENMPI:
        pytest.skip("only Open MPI has such a choice")
    monkeypatch.setenv("OMPI_MCA_osc", "rdma")  # as a cluster's modules set it
    with run("-w", "2", "-c", "import workpool as w; w.WorkPool()") as started:
        ended = started.wait()
    assert ended.status == 1
    assert "OMPI_MCA_osc=rdma leaves out sm" in ended.err


@pytest.mark.mpi
def test_little_shared_memory_is_enough_to_start() -> None:
    """More ranks, of which each prepares the same, fill the 64 MB that a container has."""
    if find().kind is not Kind.MPICH:
        pytest.skip("Open MPI needs 16 MB")
    text = "from workpool import *\nwith WorkPool() as p: print(sum(p.map(len, ['1' * 9999] * 99)))"
    words = [sys.executable, "-m", "workpool.launch.cli", "run", "-w", "3", "-c", text]
    with Job(small_shm("8m", *words)) as started:
        assert started.wait() == (0, f"{99 * 9999}\n", "")


@pytest.mark.mpi
@pytest.mark.parametrize("survive", [[], ["--survive"]], ids=["", "survive"])
def test_who_reads_what_tasks_print_may_leave(survive: list[str]) -> None:
    # For ever: Open MPI's mpiexec takes in what nobody reads yet, and a job that ends meanwhile has
    # met nobody who left.
    text = "import workpool as w; p = w.WorkPool()\nwhile True: list(p.map(print, range(10_000)))"
    launcher = [sys.executable, "-m", "workpool.launch.cli", "run", *survive, "-w", "2", "-c", text]
    with Job(["sh", "-c", '"$@" | head -n 1', "sh", *launcher]) as started:
        ended = started.wait()
    assert "whoever read its output is gone" in ended.err
    assert "--survive" not in ended.err


def test_a_full_disk_below_the_output_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "out", "wb") as out:
        monkeypatch.setattr(advice, "_STDOUT", out.fileno())
        assert not advice.output_lost()
        for blocks in (0, 1):  # 0: nobody knows; 1: what MPICH's mpiexec does not survive
            disk = SimpleNamespace(f_blocks=blocks, f_bavail=0)
            monkeypatch.setattr(os, "fstatvfs", lambda fd, disk=disk: disk)
            assert ("is full" in advice.output_lost()) == bool(blocks)


@pytest.mark.mpi
@pytest.mark.parametrize("group", [False, True], ids=["launcher", "process group"])
@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_with_mpi(signum: int, group: bool) -> None:
    text = "import time\ntry:\n print('ready', flush=True); time.sleep(60)\nfinally: print('tidy')"
    with run("-w", "2", "-c", text) as started:
        started.signal(signum, after="ready", group=group)
        ended = started.wait(5)
    assert (ended.status, ended.out) == (128 + signum, "ready\ntidy\n")
    assert ended.err.count("Traceback") == (signum == signal.SIGINT)


@pytest.mark.mpi
def test_interrupt_that_the_program_handles() -> None:
    text = """\
import sys, time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("saved")
    sys.exit(5)
"""
    with run("-w", "2", "-c", text) as started:
        started.signal(signal.SIGINT, after="ready")
        assert started.wait(5) == Ended(5, "ready\nsaved\n", "")


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
@pytest.mark.smoke
@pytest.mark.parametrize("group", [False, True], ids=["launcher", "process group"])
def test_interrupt_while_workers_are_busy(group: bool) -> None:
    text = BUSY + "with WorkPool() as pool:\n    pool.submit(task).result()"
    with run("-w", "2", "--grace", "1", "-c", text) as started:
        started.signal(signal.SIGINT, after="busy", group=group)
        assert started.wait(8).status == 130


LEFT_OPEN = """
import os
from workpool import WorkPool
def begin():
    global own
    own = open(str(os.getpid()), "w")
def task(n):
    own.write(f"{n}\\n")
    return n
class Last:
    def __del__(self, write=os.write):
        write(1, b"freed")
last, results = Last(), open("results", "w")
with WorkPool(initializer=begin) as pool:
    for n in pool.map(task, range(9), chunksize=1):
        results.write(f"{n}\\n")
"""


@pytest.mark.mpi
@pytest.mark.parametrize("options", [(), ("--survive",)], ids=["", "survive"])
@pytest.mark.parametrize(("end", "status"), [("", 0), ("1 / 0", 1)], ids=["end", "error"])
def test_files_that_are_left_open_are_written(
    options: tuple[str, ...], end: str, status: int, tmp_path: Path
) -> None:
    with run(*options, "-w", "2", "-c", LEFT_OPEN + end, cwd=tmp_path) as started:
        ended = started.wait()
    assert ended.status == status, ended
    lines = sorted("".join(file.read_text() for file in tmp_path.iterdir()).split())
    all_of_them = [str(n) for n in range(9)]
    assert ended.out == ("" if options or status else "freed")  # the others leave without that
    # An error in the script ends the workers at once.
    assert lines == sorted(all_of_them * 2) if status == 0 else set(lines) == set(all_of_them)


@pytest.mark.mpi
def test_files_are_written_though_it_takes_long_to_free_what_the_program_has_left(
    tmp_path: Path,
) -> None:
    script = """
import time
class Last:
    def __del__(self, sleep=time.sleep):
        sleep(60)
last = Last()
file = open("results", "w")
file.write("written")
"""
    with run("--grace", "0.5", "-w", "1", "-c", script, cwd=tmp_path) as started:
        ended = started.wait()
    assert ended.status == 0, ended
    assert (tmp_path / "results").read_text() == "written"


NOTING = """
import sys, time
from pathlib import Path
from workpool import WorkPool
def task(place, n):
    print("task", n, flush=True)
    while not Path(place, "gate").exists():
        time.sleep(0.01)
    Path(place, str(n)).touch()
with WorkPool() as pool:
    for future in [pool.submit(task, sys.argv[1], n) for n in range(8)]:
        future.result()
"""


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.stderr.close(); sys.exit('said to nobody')", 1),
        ("sys.exit(type('Silent', (), {'__str__': lambda self: 1 / 0})())", 1),
        ("sys.excepthook = lambda *error: sys.exit(7); 1 / 0", 7),
        ("sys.excepthook = lambda *error: {}['hook']; 1 / 0", 1),
    ],
)
def test_last_words_that_fail_end_the_job_all_the_same(end: str, status: int) -> None:
    text = f"import sys; from workpool import WorkPool; WorkPool(); {end}"
    with run("-w", "1", "-c", text) as started:
        assert started.wait(20).status == status


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
def test_interrupted_once_the_tasks_that_run_end(tmp_path: Path) -> None:
    with run("-w", "2", "-c", NOTING, str(tmp_path)) as started:
        started.until("task", times=2)
        started.signal(signal.SIGINT)
        started.until("a second one ends them at once")
        (tmp_path / "gate").touch()
        ended = started.wait(15)
    assert ended.status == 130
    assert ended.err.rstrip().endswith("KeyboardInterrupt")
    began = {line.removeprefix("task ") for line in ended.out.splitlines()}
    assert len(began) == 2  # any two: one worker may hold the ticket of another's task
    assert {path.name for path in tmp_path.iterdir()} == {"gate", *began}


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
@pytest.mark.parametrize("then", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_twice_all_ends_at_once(tmp_path: Path, then: int) -> None:
    with run("-w", "2", "--grace", "100", "-c", NOTING, str(tmp_path)) as started:
        started.until("task", times=2)
        started.signal(signal.SIGINT)
        started.until("running tasks have 60 s to end")
        begun = time.monotonic()
        started.signal(then)
        assert started.wait(20).status == 130
    assert time.monotonic() - begun < 20 * PATIENCE  # Open MPI's takes some seconds to tidy up
    assert not list(tmp_path.iterdir())


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
@pytest.mark.smoke
def test_error_while_workers_are_busy() -> None:
    text = BUSY + (
        "pool = WorkPool()\nfuture = pool.submit(task)\n"
        "while not future.running(): time.sleep(0.01)\n"
        "print('fails', flush=True)\n1 / 0"
    )
    with run("-w", "2", "-c", text) as started:
        started.until("fails")
        begun = time.monotonic()
        ended = started.wait(20)
    assert ended.status == 1
    assert ended.err.endswith("ZeroDivisionError: division by zero\n")
    assert "mpi" not in ended.err.lower()
    assert time.monotonic() - begun < 15 * PATIENCE


@pytest.mark.mpi
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_dies(rank: int, signum: int) -> None:
    with run("-w", "2", "-c", "import time; print('ready', flush=True); time.sleep(60)") as started:
        started.until("ready")
        os.kill(started.ranks()[rank], signum)
        ended = started.wait(10)
    assert ended.status not in (0, 128 + signal.SIGTERM)
    assert "workpool: the driver never told" in ended.err or "the job broke" in ended.err


@pytest.mark.mpi
@pytest.mark.parametrize("survive", [[], ["--survive"]], ids=["", "survive"])
def test_a_driver_dies_though_what_it_has_forked_lives(survive: list[str]) -> None:
    text = (
        "import os, signal, time, workpool\nwith workpool.WorkPool() as pool:\n"
        "    pool.submit(abs, -1).result()\n"
        "    if not os.fork(): time.sleep(30); os._exit(0)\n"
        "    print('dies', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    with run("-w", "2", *survive, "-c", text) as started:
        started.until("dies")
        ended = started.wait(10)
    assert ended.status not in (0, 1)
    assert ("was killed by signal 9" in ended.err) == bool(survive)


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["mpiexec", "launcher"])
def test_kill(name: str) -> None:
    with run("-w", "2", "-c", "import time; print('ready', flush=True); time.sleep(60)") as started:
        started.until("ready")
        ranks = started.ranks()
        others = {pid: line for pid, line in started.members().items() if pid not in ranks}
        outer = next(p for p, line in others.items() if "mpiexec" in line or "prterun" in line)
        os.kill(outer if name == "mpiexec" else started.process.pid, signal.SIGKILL)
        if name == "mpiexec":
            assert started.wait(10).status == 137
        started.gone_within(5)


@pytest.mark.mpi
@pytest.mark.usefixtures("claim")
def test_workers_are_heard_before_the_end() -> None:
    text = BUSY.replace("time.sleep(60)", "sys.stderr.write('#' * 300_000 + 'last words')") + (
        "with WorkPool() as pool:\n    pool.submit(task).result()\n    1 / 0"
    )
    with run("-w", "1", "-c", text) as started:
        ended = started.wait()
    assert ended.status == 1
    assert ended.err.count("#") == 300_000  # the driver's own words may come between them
    assert "last words" in ended.err
