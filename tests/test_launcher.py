"""How a job ends: its exit status, what the terminal shows, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from unittest.mock import Mock

import pytest
from jobs import ROOT, Ended, Job
from processes import PATIENCE
from stand_in import launch

from workpool.errors import ResourceError
from workpool.launch import advice, launcher
from workpool.launch.mpiexec import Kind
from workpool.members.liveness import check_proc
from workpool.system import supervisor
from workpool.system.shared_memory import SHM, WAS_FULL
from workpool.system.status import Watch


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("reporter.ended(0)", 0, ""),
        ("reporter.ended(3)", 3, ""),
        ("reporter.ended(3); reporter.ended(4)", 3, ""),
        ("reporter.ended(3); sys.exit(5)", 3, ""),
        ("import atexit; atexit._run_exitfuncs(); reporter.ended(3)", 3, ""),
        ("reporter.failed(1)", 1, ""),
        ("", 1, "never told"),
        ("sys.exit(6)", 6, "never told how it ended: mpiexec ended with status 6"),
        ("sys.exit(7)", 7, " a rank has died (of signal 9 mostly where memory is short"),
        ("os.kill(os.getpid(), 9)", 137, "mpiexec was killed by signal 9"),
        ("os.kill(os.getpid(), 7)", 135, "/dev/shm was full: lower arena_nbytes="),
        ("reporter.ended(0); sys.exit(6)", 6, "the job broke: mpiexec ended with status 6"),
        ("reporter.ended(143); sys.exit(6)", 6, "the job broke: mpiexec ended with status 6"),
    ],
)
def test_status(tmp_path: Path, program: str, status: int, said: str) -> None:
    with Job(launch(tmp_path, program)) as started:
        ended = started.wait()
    assert (ended.status, ended.out) == (status, "begun\n")
    assert said in ended.err
    assert ended.err.count("\n") == bool(said)


def test_where_mpiexec_is_killed_no_host_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSB_JOBID", "1")  # which may have given several hosts
    program = "reporter.hosts(['a', 'b']); os.kill(os.getpid(), 9)"
    with Job(launch(tmp_path, program)) as started:
        ended = started.wait()
    said = "the driver never told how it ended: mpiexec was killed by signal 9\n"
    assert ended == (137, "begun\n", f"workpool: {said}")


@pytest.mark.parametrize("said", ["", "is on another host, out of our reach"])
def test_a_driver_that_is_not_heard_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    if said:
        monkeypatch.setenv("LSB_JOBID", "1")
    with Job(launch(tmp_path, "", before="echo up; exec sleep 60")) as started:
        started.until("up")
        started.signal(signal.SIGTERM)
        ended = started.wait()
    assert ended.status == 143
    assert bool(ended.err) == bool(said)
    assert said in ended.err


def test_a_driver_that_never_begins_is_no_success(tmp_path: Path) -> None:
    with Job(launch(tmp_path, "", before="exit 0")) as started:
        ended = started.wait()
    assert ended == (1, "", "workpool: the driver never started: mpiexec ended with status 0\n")


@pytest.mark.parametrize(
    ("survive", "said"),
    [
        (False, "the driver never told how it ended: mpiexec ended with status 6"),
        (True, "mpiexec has ended the job, and with it all that its program knew"),
    ],
)
def test_an_mpiexec_that_ends_before_the_driver(tmp_path: Path, survive: bool, said: str) -> None:
    ready = tmp_path / "ready"
    before = f'"$@" & while [ ! -e {ready} ]; do sleep 0.01; done; exit 6'
    program = f"open({str(ready)!r}, 'w'); time.sleep(30)"
    with Job(launch(tmp_path, program, before, survive=survive)) as started:
        ended = started.wait(10)
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_an_mpiexec_that_misses_the_end_of_the_driver(tmp_path: Path) -> None:
    program = "os.execv('/bin/sleep', ['sleep', '0.2'])"
    with Job(launch(tmp_path, program, '"$@"; sleep 60', _NOTICE_S=0.5)) as started:
        ended = started.wait(10)
    said = "workpool: the driver is gone, and with it all that its program knew\n"
    assert ended == (1, "begun\n", said)


def test_all_last_words_are_heard(tmp_path: Path) -> None:
    with Watch(str(tmp_path)) as watch:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(os.path.join(watch.place, "driver"))
            assert watch.look(1)
            hosts = "".join(f"host node{n:04d}.cluster {n}\n" for n in range(60))
            line.sendall(f"{os.getpid()}\n{hosts}3 0\n".encode())
        while watch.look(0):
            pass
    assert len(watch.elsewhere) == 60
    assert watch.ending == (3, False)


@pytest.mark.parametrize("program", ["reporter.ended(0)", "reporter.failed(1)", "sys.exit(2)"])
def test_nothing_outlives_the_job(tmp_path: Path, program: str) -> None:
    command = launch(tmp_path, program, before="setsid sleep 100 &", grace_s=0.3)
    with Job(command) as started:
        assert started.wait(10).status in (0, 1, 2)


def test_what_mpi_leaves_in_shared_memory_is_removed(tmp_path: Path) -> None:
    left_over = Path("/dev/shm", f"mpich_shm_{uuid.uuid4().hex}")
    mapped = os.fsencode(tmp_path) + b"/\xe9t\xe9"  # a name need not be text
    program = f"""
import mmap
with open({mapped!r}, "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 0)
reporter.failed(1)
time.sleep(60)
"""
    try:
        with Job(launch(tmp_path, program, before=f"exec 9>{left_over}")) as started:
            assert started.wait().status == 1
            assert not left_over.exists()
    finally:
        left_over.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("left", "named"),
    [
        ("sleep 100", "mpiexec itself"),
        ("PMI_RANK=7 env sleep 100", r"process \d+ of rank 7 \(sleep 100\)"),  # by a task
    ],
)
def test_what_outlasts_the_driver_is_named(tmp_path: Path, left: str, named: str) -> None:
    command = launch(tmp_path, "reporter.ended(3)", grace_s=1.1)
    fake = Path(command[3])
    fake.write_text(fake.read_text().replace('exec "$@"', f'"$@"; {left}'))
    with Job(command) as started:
        ended = started.wait(10)
    assert ended.status == 3
    said = rf"1\.1 s after its end \(--grace\) was killed: {named}"
    assert re.search(said, ended.err), ended


def test_ranks_have_time_to_leave_however_short_the_grace(tmp_path: Path) -> None:
    command = launch(tmp_path, "reporter.ended(3)", grace_s=0)
    fake = Path(command[3])
    fake.write_text(fake.read_text().replace('exec "$@"', '"$@"; sleep 0.3'))
    with Job(command) as started:
        assert started.wait(10) == Ended(3, "begun\n", "")


def test_what_is_left_is_killed_though_the_launcher_was_stopped(tmp_path: Path) -> None:
    program = "import subprocess; subprocess.Popen(['sleep', '100']); reporter.ended(0)"
    with Job(launch(tmp_path, program, grace_s=1, _TIDY_S=1.5)) as started:
        started.until("begun")
        time.sleep(0.5)
        os.kill(started.process.pid, signal.SIGSTOP)  # as by Ctrl-Z
        time.sleep(3)
        os.kill(started.process.pid, signal.SIGCONT)
        assert started.wait(10) == Ended(0, "begun\n", "")


def test_launcher_killed(tmp_path: Path) -> None:
    with Job(launch(tmp_path, "time.sleep(30)")) as started:
        started.signal(signal.SIGKILL, after="begun")
        started.process.wait(5)
        started.gone_within(5)


def test_driver_has_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    program = (
        "print(*map(os.isatty, range(3)), sys.stdout.isatty())\n"
        "print('read', sys.stdin.readline())\n"  # input() would flush what is printed
        "reporter.ended(0)"
    )
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        launch(tmp_path, program),
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = ""
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while select.select([ours], [], [], 10 * PATIENCE)[0]:
            shown += os.read(ours, 1000).decode()
            if shown.rstrip().endswith("True True True True"):
                os.write(ours, b"typed\n")
    os.close(ours)
    status = process.wait(20)
    assert "read typed" in shown
    assert status == 0


@pytest.mark.parametrize(
    "name",
    ["x" * 100, "\N{HIRAGANA LETTER A}" * 40, "\udcff"],
    ids=["letters", "bytes", "no text"],
)
def test_a_temporary_directory_of_any_name(name: str) -> None:
    """Of many letters, of many bytes, and one that is no text."""
    with tempfile.TemporaryDirectory(prefix="w", dir="/tmp") as base:
        place = Path(base, name)
        place.mkdir()
        command = launch(Path(base), "reporter.ended(4)")
        with Job(["env", f"TMPDIR={place}", *command]) as started:
            assert started.wait().status == 4
        assert not [*place.iterdir()]


def test_a_directory_that_cannot_be_removed_is_no_failure_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "as a file of NFS that somebody has open")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    *_, fake, program, _, _ = launch(tmp_path, "reporter.ended(0)")
    monkeypatch.setattr(os, "rmdir", refuse)
    assert launcher.run([sys.executable, "-c", program], 1, mpiexec=fake) == 0


def test_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = launch(tmp_path, "")[3]
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(ResourceError, match=r"No usable temporary directory found .*: set TMPDIR"):
        launcher.run(["true"], 1, mpiexec=fake)


def test_a_temporary_directory_that_takes_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some file systems of a network, or where umask takes all from oneself."""

    def refuse(place: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    fake = launch(tmp_path, "")[3]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(launcher, "Watch", refuse)
    there = len([*tmp_path.iterdir()])
    with pytest.raises(ResourceError, match=rf"{tmp_path}': Operation not permitted: set TMPDIR"):
        launcher.run(["true"], 1, mpiexec=fake)
    assert len([*tmp_path.iterdir()]) == there


def test_no_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """MPICH says only that it cannot open a file."""
    fake, access = launch(tmp_path, "")[3], os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != SHM and access(path, how))
    assert launcher.run(["false"], 1, mpiexec=fake) == 1
    assert f"mpiexec ended with status 1; {SHM} is not there" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("free_nbytes", "begun", "told"),
    [(1 << 20, False, True), (1 << 20, True, False), (1 << 30, False, False), (None, False, False)],
)
def test_who_dies_at_the_start_may_have_found_too_little_shared_memory(
    free_nbytes: int | None, begun: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "free", lambda: free_nbytes)
    assert (WAS_FULL in advice.memory_short(-6, Kind.OPENMPI, begun)) == told


@pytest.mark.parametrize(
    ("free_nbytes", "kind", "told"),
    [
        (1 << 20, Kind.MPICH, True),
        (1 << 30, Kind.MPICH, False),
        (1 << 20, Kind.OPENMPI, False),
    ],
)
def test_one_of_several_signals_that_mpich_mixes_may_be_that_of_too_little_memory(
    free_nbytes: int, kind: Kind, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "free", lambda: free_nbytes)
    mixed = signal.SIGBUS | signal.SIGKILL
    assert (WAS_FULL in advice.memory_short(mixed, kind, begun=True)) == told


def test_open_mpi_does_not_start_without_a_network_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not advice.network_missing(Kind.OPENMPI, begun=False)
    monkeypatch.setattr(socket.socket, "connect", Mock(side_effect=OSError))
    assert "ip link set lo up" in advice.network_missing(Kind.OPENMPI, begun=False)
    assert not advice.network_missing(Kind.OPENMPI, begun=True)
    assert not advice.network_missing(Kind.MPICH, begun=False)


@pytest.mark.parametrize("seen", ["", "1"], ids=["none", "another"])
def test_no_job_begins_where_proc_is_not_that_of_its_processes(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the living for dead, or for ever the dead for others that live."""

    def readlink(path: str) -> str:
        if not seen:
            raise FileNotFoundError(path)
        return seen

    check_proc()
    monkeypatch.setattr(os, "readlink", readlink)
    with pytest.raises(ResourceError, match="mount -t proc"):
        check_proc()
    with pytest.raises(ResourceError, match="mount -t proc"):
        launcher.run(["true"], 2)


def test_a_supervisor_may_come_from_a_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "__file__", "/app.zip/workpool/system/supervisor.py")
    text = "import os; print(os.environ['WORKPOOL_SURVIVE'], flush=True); os._exit(3)"
    command = supervisor.command([sys.executable, "-c", text])
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stdout) == (3, b"1\n")


def test_closed_standard_streams(tmp_path: Path) -> None:
    command = launch(tmp_path, "reporter.ended(4)")
    with Job(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]) as started:
        assert started.wait(20).status == 4
