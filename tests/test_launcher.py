"""How a job ends: its exit status, what the terminal shows, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import math
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
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import ROOT, SIGNALS, Ended, job
from processes import PATIENCE

from workpool.errors import ResourceError
from workpool.launch import launcher
from workpool.launch.mpiexec import library
from workpool.launch.signals import Signals
from workpool.system.shared_memory import SHM
from workpool.system.status import Watch

HANDLED = [*SIGNALS, signal.SIGUSR1, signal.SIGUSR2]

#: An mpiexec of one rank, and a driver that only reports: no MPI.
FAKE = """\
#!/bin/sh
[ "$1" = --version ] && echo "{version}" && exit
while [ "$1" != -n ]; do shift; done
shift 2
{before}
exec "$@"
"""


DRIVER = """\
import os, signal, sys, time
from workpool.system.status import Reporter
reporter = Reporter()
reporter.begin()
print("begun", flush=True)
"""


LAUNCH = """\
import sys
from workpool.launch import launcher
command = [sys.executable, "-c", sys.argv[2]]
fake, _, grace_s, survive = sys.argv[1:]
options = {"grace_s": float(grace_s), "survive": survive == "True"}
sys.exit(launcher.run(command, 1, mpiexec=fake, **options))
"""


def launch(
    place: Path, program: str, before: str = "", grace_s: float = 5, survive: bool = False
) -> list[str]:
    """Return a command that launches `program` as the driver, under a stand-in for mpiexec."""
    fake = place / "mpiexec"
    version = library().version if survive else "unknown"
    fake.write_text(FAKE.format(version=version, before=before))
    fake.chmod(0o755)
    return [sys.executable, "-c", LAUNCH, str(fake), DRIVER + program, str(grace_s), str(survive)]


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("reporter.ended(0)", 0, ""),
        ("reporter.ended(3)", 3, ""),
        ("reporter.ended(3); reporter.ended(4)", 3, ""),
        ("reporter.ended(3); sys.exit(5)", 3, ""),
        ("reporter.failed(1)", 1, ""),
        ("", 1, "never told"),
        ("sys.exit(6)", 6, "never told how it ended: mpiexec ended with status 6"),
        ("sys.exit(7)", 7, "; a rank has died: `workpool run --survive` says which"),
        ("os.kill(os.getpid(), 9)", 137, "mpiexec was killed by signal 9"),
        ("os.kill(os.getpid(), 7)", 135, "/dev/shm was full: lower arena_nbytes="),
        ("reporter.ended(0); sys.exit(6)", 6, "the job broke: mpiexec ended with status 6"),
        ("reporter.ended(143); sys.exit(6)", 6, "the job broke: mpiexec ended with status 6"),
    ],
)
def test_status(tmp_path: Path, program: str, status: int, said: str) -> None:
    with job(launch(tmp_path, program)) as started:
        ended = started.wait()
    assert (ended.status, ended.out) == (status, "begun\n")
    assert said in ended.err
    assert ended.err.count("\n") == bool(said)


def test_a_driver_that_never_begins_is_no_success(tmp_path: Path) -> None:
    with job(launch(tmp_path, "", before="exit 0")) as started:
        ended = started.wait()
    assert ended == (1, "", "workpool: no driver began: mpiexec ended with status 0\n")


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
    with job(launch(tmp_path, program, before, survive=survive)) as started:
        ended = started.wait(10)
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_an_mpiexec_that_misses_the_end_of_the_driver(tmp_path: Path) -> None:
    program = "os.execv('/bin/sleep', ['sleep', '0.2'])"
    with job(launch(tmp_path, program, '"$@"; sleep 60')) as started:
        ended = started.wait(10)
    said = "workpool: the driver is gone, and with it all that its program knew\n"
    assert ended == (1, "begun\n", said)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Give a launcher's half of the line, and leave signals as they were."""
    before = {signum: signal.getsignal(signum) for signum in HANDLED}
    with Watch(str(tmp_path)) as watch:
        yield watch
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_signals_are_the_launchers_for_a_while_if_they_are_not_ignored(watch: Watch) -> None:
    for signum in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)  # as nohup does
    before = [signal.getsignal(signum) for signum in HANDLED]
    with Signals(watch, grace_s=5):
        meanwhile = [signal.getsignal(signum) for signum in HANDLED]
    taken = [one is not other for one, other in zip(before, meanwhile, strict=True)]
    assert taken == [True, True, False, False, True]
    assert [signal.getsignal(signum) for signum in HANDLED] == before


@pytest.mark.parametrize(("signum", "limit_s"), [(signal.SIGTERM, 305), (signal.SIGHUP, 5)])
def test_it_is_sigterm_that_may_take_as_long_as_the_driver_says(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, signum: int, limit_s: float
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: told.append(given))
    watch.driver, watch.patience_s = 123, 300.0
    with Signals(watch, grace_s=5) as signals:
        signal.raise_signal(signum)
        assert signals.pass_on() == limit_s
    assert told == [(123, signum)]


@pytest.mark.parametrize(("interactive", "second_s"), [(False, 0), (True, math.inf)])
def test_a_second_interrupt_ends_what_is_no_shell(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, interactive: bool, second_s: float
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: told.append(given))
    watch.driver = 123
    with Signals(watch, grace_s=5, interactive=interactive) as signals:
        for limit_s in (math.inf, second_s):
            signal.raise_signal(signal.SIGINT)
            assert signals.pass_on() == limit_s
    assert told == [(123, signal.SIGINT)] * (2 if interactive else 1)


@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_before_the_driver_begins(tmp_path: Path, signum: int) -> None:
    with job(launch(tmp_path, "", before="echo started; sleep 30")) as started:
        started.until("started")
        started.signal(signum)
        assert started.wait(5) == (128 + signum, "started\n", "")


@pytest.mark.parametrize("signum", HANDLED)
def test_signal_goes_to_the_driver(tmp_path: Path, signum: int) -> None:
    program = (
        f"signal.signal({signum}, lambda *_: (reporter.ended(9), sys.exit()))\n"
        "print('ready', flush=True); time.sleep(30)"
    )
    with job(launch(tmp_path, program)) as started:
        started.until("ready")
        started.signal(signum)
        assert started.wait(5).status == 9


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_driver_that_does_not_end_is_ended(tmp_path: Path, signum: int) -> None:
    program = f"signal.signal({signum}, signal.SIG_IGN); print('deaf', flush=True); time.sleep(30)"
    with job(launch(tmp_path, program, grace_s=0.3)) as started:
        started.until("deaf")
        started.signal(signum)
        ended = started.wait(5)
    assert ended.status == 128 + signum
    assert "did not end in time" in ended.err


def test_a_program_that_catches_an_interrupt_goes_on(tmp_path: Path) -> None:
    program = (
        "try:\n    print('ready', flush=True); time.sleep(30)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n"
        "reporter.ended(5)"
    )
    with job(launch(tmp_path, program, grace_s=0.3)) as started:
        started.until("ready")
        started.signal(signal.SIGINT)
        assert started.wait(10) == Ended(5, "begun\nready\n", "")


CATCHES = """\
try:
    print('ready', flush=True); time.sleep(30)
except KeyboardInterrupt:
    print('caught', flush=True)
"""


def test_sigterm_after_an_interrupt_that_was_caught(tmp_path: Path) -> None:
    program = (
        "signal.signal(15, lambda *_: (time.sleep(0.5), reporter.ended(75), sys.exit()))\n"
        f"{CATCHES}time.sleep(30)"
    )
    with job(launch(tmp_path, program, grace_s=10)) as started:
        started.until("ready")
        started.signal(signal.SIGINT)
        started.until("caught")
        started.signal(signal.SIGTERM)
        assert started.wait(10).status == 75


@pytest.mark.parametrize(("end", "status"), [("os._exit(6)", 6), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failure_long_after_an_interrupt_is_told(tmp_path: Path, end: str, status: int) -> None:
    program = f"{CATCHES}time.sleep(1); {end}"
    with job(launch(tmp_path, program, grace_s=0.2)) as started:
        started.until("ready")
        started.signal(signal.SIGINT)
        ended = started.wait(10)
    assert ended.status == status
    assert "never told how it ended: mpiexec" in ended.err


def test_a_signal_of_the_programs_own_ends_nothing(tmp_path: Path) -> None:
    program = (
        "heard = []\n"
        "def hear(*_): heard.append(1); print(len(heard), flush=True)\n"
        "signal.signal(signal.SIGUSR1, hear)\n"
        "print('ready', flush=True)\n"
        "while len(heard) < 2: time.sleep(0.01)\n"
        "reporter.ended(5)"
    )
    with job(launch(tmp_path, program, grace_s=0)) as started:
        started.until("ready")
        started.signal(signal.SIGUSR1)
        started.until("1\n")
        started.signal(signal.SIGUSR1)
        assert started.wait(5).status == 5


def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    program = (
        "signal.signal(2, lambda *_: print('heard', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(30)"
    )
    with job(launch(tmp_path, program, grace_s=30)) as started:
        started.until("ready")
        started.signal(signal.SIGINT)
        started.until("heard")
        started.signal(signal.SIGINT)
        assert started.wait(5).status == 130


def test_a_signal_an_hour_later_is_not_the_second_one(tmp_path: Path) -> None:
    program = (
        "heard = []\n"
        "def hear(*_): heard.append(1); print('heard', len(heard), flush=True)\n"
        "signal.signal(2, hear)\n"
        "print('ready', flush=True)\n"
        "while len(heard) < 2: time.sleep(0.01)\n"
        "reporter.ended(5)"
    )
    with job(launch(tmp_path, program, grace_s=0.2)) as started:
        started.until("ready")
        started.signal(signal.SIGINT)
        started.until("heard 1")
        time.sleep(0.3)
        started.signal(signal.SIGINT)
        assert started.wait(5).status == 5


def test_a_signal_ends_the_wait_for_what_ranks_have_started(tmp_path: Path) -> None:
    command = launch(tmp_path, "reporter.ended(0)", before="setsid sleep 100 &", grace_s=60)
    with job(command) as started:
        started.until("begun")
        time.sleep(0.5)
        started.signal(signal.SIGTERM)
        assert started.wait(10).status == 0


def test_all_last_words_are_heard(watch: Watch) -> None:
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
    with job(command) as started:
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
        with job(launch(tmp_path, program, before=f"exec 9>{left_over}")) as started:
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
    command = launch(tmp_path, "reporter.ended(3)", grace_s=0.3)
    fake = Path(command[3])
    fake.write_text(fake.read_text().replace('exec "$@"', f'"$@"; {left}'))
    with job(command) as started:
        ended = started.wait(10)
    assert ended.status == 3
    said = rf"0\.3 s after the driver's end \(--grace\) was killed: {named}"
    assert re.search(said, ended.err), ended


def test_launcher_killed(tmp_path: Path) -> None:
    with job(launch(tmp_path, "time.sleep(30)")) as started:
        started.until("begun")
        started.signal(signal.SIGKILL)
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
        with job(["env", f"TMPDIR={place}", *command]) as started:
            assert started.wait().status == 4
        assert not [*place.iterdir()]


def test_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = launch(tmp_path, "")[3]
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(ResourceError, match=r"No usable temporary directory found .*: set TMPDIR"):
        launcher.run(["true"], 1, mpiexec=fake)


def test_no_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """MPICH says only that it cannot open a file."""
    fake, access = launch(tmp_path, "")[3], os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != SHM and access(path, how))
    assert launcher.run(["false"], 1, mpiexec=fake) == 1
    assert f"mpiexec ended with status 1; {SHM} is not there" in capfd.readouterr().err


def test_closed_standard_streams(tmp_path: Path) -> None:
    command = launch(tmp_path, "reporter.ended(4)")
    with job(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]) as started:
        assert started.wait(20).status == 4
