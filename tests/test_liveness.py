"""Who is dead or has stopped, and how a rank has ended, as processes see it without MPI."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from processes import PATIENCE

from workpool import layout
from workpool.job import survival
from workpool.job.survival import STUCK, Sentry, death_of
from workpool.members import leases
from workpool.members.leases import BEATS, LOOK_S, Gone, Heart, Leases
from workpool.members.liveness import Liveness, Process, this_process
from workpool.system import supervisor

# --- who is dead


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def process_of(pid: int) -> Process:
    """Return what a process would say of itself."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return this_process()._replace(pid=pid, started=int(fields[19]))


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10 * PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def until_state(pid: int, letter: str) -> None:
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == letter)


def test_states(sleeper: subprocess.Popen[bytes]) -> None:
    here, other = this_process(), process_of(sleeper.pid)
    members = [here, other, here._replace(host="elsewhere"), here._replace(space="a container")]
    liveness = Liveness(members, here)
    assert [liveness.state(m) for m in range(4)] == ["running", "running", *["elsewhere"] * 2]
    sleeper.send_signal(signal.SIGSTOP)
    until_state(sleeper.pid, "T")
    assert liveness.state(1) == "stopped"
    assert liveness.dead() == []
    sleeper.kill()
    until_state(sleeper.pid, "Z")
    assert liveness.state(1) == "dead"  # not even waited for
    sleeper.wait()
    assert liveness.state(1) == "dead"
    assert liveness.dead() == [1]


def test_another_process_of_the_same_id_is_not_taken_for_it() -> None:
    here = this_process()
    liveness = Liveness([here._replace(started=here.started - 1)], here)
    assert liveness.state(0) == "dead"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """A task, or the program, has taken all of them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("refused", [False, True])
def test_who_cannot_look_takes_nobody_for_dead_that_is_there(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(path)

    here = this_process()
    liveness = Liveness([here, here], here)
    if refused:  # as for a process of another user
        monkeypatch.setattr(os, "readlink", refuse)
    with no_descriptors():
        seen = liveness.dead()
    assert seen == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded")  # as pytest-xdist is
@pytest.mark.skipif(os.geteuid() != 0, reason="chroot is for root")
def test_who_has_no_proc_any_more_takes_nobody_for_dead_that_is_there(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    liveness = Liveness([this_process(), process_of(sleeper.pid)], this_process())
    child = os.fork()
    if not child:
        os.chroot(tmp_path)
        os._exit(len(liveness.dead()))
    assert os.waitpid(child, 0)[1] == 0
    sleeper.kill()
    sleeper.wait()
    child = os.fork()
    if not child:
        os.chroot(tmp_path)
        os._exit(liveness.dead() != [1])
    assert os.waitpid(child, 0)[1] == 0


def test_the_dead_are_seen_without_a_descriptor(sleeper: subprocess.Popen[bytes]) -> None:
    liveness = Liveness([this_process(), process_of(sleeper.pid)], this_process())
    sleeper.kill()
    until_state(sleeper.pid, "Z")
    with no_descriptors():
        seen = liveness.dead()
    assert seen == [1]


def test_to_leave_is_not_to_die() -> None:
    here = this_process()
    gone = here._replace(started=-1)
    liveness = Liveness([here, gone, here, gone, gone], here)
    liveness.excuse([4])
    assert liveness.state(4) == "dead"
    assert liveness.dead() == [1, 3]
    liveness.excuse([3])  # its good-bye was seen after its end
    assert liveness.dead() == [1]
    liveness.learn([2, 3])
    assert liveness.dead() == [1, 2]


def test_a_look_is_cheap() -> None:
    here = this_process()
    liveness = Liveness([here] * 10, here)
    begun = time.process_time()
    for _ in range(100):
        liveness.dead()
    assert time.process_time() - begun < 0.5  # 1,000 looks


def test_what_is_said_of_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    liveness = Liveness(
        [here, Process("node7", "", 1234, 1, rank=5), here._replace(pid=1234)], here
    )
    monkeypatch.setenv("WORKPOOL_STATUS", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(survival, "_waited", iter(()))  # nobody notes it here
        assert death_of(liveness, 1) == "worker rank 5 on node7 (process 1234) died"
    with monkeypatch.context() as patch:
        patch.setattr(survival, "NOTE_S", 0)  # nobody does so in time
        assert death_of(liveness, 2).endswith("(process 1234) died")
    monkeypatch.setattr(survival, "NOTE_S", 20)
    late = threading.Timer(0.2, (tmp_path / "ended.1234.-9").touch)
    late.start()
    line = death_of(liveness, 2, "process_of")
    assert line.endswith("(process 1234) died, signal 9, while it ran task process_of")
    late.join()


@pytest.mark.parametrize("dead", [False, True])
def test_a_sentry_ends_a_call_that_does_not_end_after_a_death(dead: bool) -> None:
    here = this_process()
    liveness = Liveness([here, here._replace(started=here.started - dead, rank=1)], here)
    said: list[str] = []
    looks = iter(range(3 * STUCK))

    def answers(limit_s: float) -> bool:
        if next(looks, None) is None:
            sentry.stop()
        return False

    def end(why: str) -> None:
        said.append(why)
        sentry.stop()

    sentry = Sentry(liveness, answers, lambda: "", end, lambda: None)  # type: ignore[arg-type]
    sentry._stopped = quick = threading.Event()
    quick.wait = lambda timeout=None: quick.is_set()  # type: ignore[method-assign]
    sentry.run()
    assert bool(said) == dead
    assert all("does not end after worker rank 1" in why for why in said)


# --- the supervisor


def supervised(text: str, place: Path, rank: int = 0) -> subprocess.Popen[bytes]:
    with open(os.devnull) as inherited:
        return subprocess.Popen(
            supervisor.command([sys.executable, "-c", text]),
            stdout=subprocess.PIPE,
            env={**os.environ, "WORKPOOL_STATUS": str(place), "PMI_RANK": str(rank)},
            pass_fds=[inherited.fileno()],
        )


@pytest.mark.parametrize(
    ("text", "rank", "status", "noted"),
    [
        ("import os; os.kill(os.getpid(), 9)", 0, 0, -9),
        ("import os; os.kill(os.getpid(), 11)", 1, 0, -11),
        ("raise SystemExit(3)", 0, 3, 3),
        ("raise SystemExit(3)", 1, 0, 3),
        ("import signal; assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())", 0, 0, 0),
    ],
)
def test_supervisor(tmp_path: Path, text: str, rank: int, status: int, noted: int) -> None:
    process = supervised(text, tmp_path, rank)
    process.communicate(timeout=20)
    assert process.returncode == status
    assert list(supervisor.ends(tmp_path).values()) == [noted]


def test_by_hand_nobody_else_tells_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKPOOL_STATUS", raising=False)
    dies = "import os; os.kill(os.getpid(), 9)"
    for rank, text, status in (("0", dies, 137), ("1", dies, 0), ("0", "exit(3)", 3), ("0", "", 0)):
        monkeypatch.setenv("PMI_RANK", rank)
        words = supervisor.command([sys.executable, "-c", text])
        assert subprocess.run(words, timeout=20).returncode == status


def test_supervisor_is_deaf_and_its_rank_does_not_outlive_it(tmp_path: Path) -> None:
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = supervised(text, tmp_path)
    assert process.stdout is not None
    rank = int(process.stdout.readline())
    for signum in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        process.send_signal(signum)
    time.sleep(0.2)
    assert process.poll() is None
    until(lambda: all(int(fd) <= 2 for fd in os.listdir(f"/proc/{process.pid}/fd")))
    liveness = Liveness([process_of(rank)], this_process())
    process.kill()
    process.communicate(timeout=20)
    until(lambda: liveness.state(0) == "dead")


@pytest.mark.parametrize(("local", "tolerates"), [("4", None), ("2", "1")])
def test_open_mpi_has_to_tolerate_faults_on_several_hosts(
    local: str, tolerates: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", local)
    monkeypatch.delenv("OMPI_MCA_mpi_ft_enable", raising=False)
    shown = "import os; print(*map(os.environ.get, ('WORKPOOL_SURVIVE', 'OMPI_MCA_mpi_ft_enable')))"
    ran = subprocess.check_output(supervisor.command([sys.executable, "-c", shown]), timeout=20)
    assert ran.decode() == f"1 {tolerates}\n"


def test_who_has_another_parent_by_now_ends() -> None:
    text = f"from {supervisor.__name__} import die_with; die_with(0); print('goes on')"
    ran = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, timeout=20)
    assert (ran.returncode, ran.stdout) == (1, b"")


def test_killed_are_those_who_did_not_end_and_whose_supervisor_is_gone(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = os.getpid()
    for note in (f"begun.{here}.11", f"begun.{gone.pid}.12", f"begun.{gone.pid}.13", "ended.13.0"):
        (tmp_path / note).touch()
    assert supervisor.killed(str(tmp_path)) == {12: -signal.SIGKILL}


def test_killed_is_whose_supervisor_has_left_its_id_to_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "begun.1.11").touch()
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert supervisor.killed(str(tmp_path)) == {11: -signal.SIGKILL}


def test_ends_are_unknown_without_a_launcher(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with supervised("exit(3)", gone) as process:
        assert process.wait(20) == 3
    for place in (None, "", str(gone)):
        assert supervisor.ends(place) == {}


# --- leases

STEP_S = 0.125  # exact


class Members:
    """Stands for processes and their hearts."""

    def __init__(self) -> None:
        self.states = {1: "running", 2: "running"}
        self.beats = {1: 0, 2: 0}
        self.now = 0.0
        self.leases = Leases(self.beats.__getitem__, self, 1.0, lambda: self.now)  # type: ignore[arg-type]

    def state(self, member: int) -> str:
        return self.states[member]

    def after(self, seconds: float, *beating: int, rest_s: float = 0.0) -> dict[int, Gone]:
        for member in beating:
            self.beats[member] = layout.next_beat(self.beats[member], rest_s)
        found = self.look(0)
        for _ in range(int(seconds / STEP_S)):
            found = self.look(STEP_S)
        return found

    def look(self, seconds: float) -> dict[int, Gone]:
        self.now += seconds
        return self.leases.gone([1, 2])


def test_a_heart_that_stands_still_is_not_yet_a_death() -> None:
    members = Members()
    assert members.after(0) == {}
    assert members.after(5) == {}  # a task holds the interpreter's lock
    members.states[1] = "stopped"
    assert members.after(0) == {1: Gone.STOPPED}
    assert members.after(0.625, 1) == {}  # it goes on
    assert members.after(0.25) == {}
    assert members.after(STEP_S) == {1: Gone.STOPPED}
    members.states.update({1: "dead", 2: "elsewhere"})
    assert members.after(0, 2) == {1: Gone.DEAD}
    assert members.after(1.0) == {1: Gone.DEAD, 2: Gone.SILENT}


def test_one_that_was_silent_may_be_so_twice_as_long() -> None:
    """Where it cannot be seen whether it is stopped, or runs a task that keeps the lock."""
    members = Members()
    members.states = {1: "elsewhere", 2: "stopped"}
    assert members.after(0) == {}
    assert members.after(3) == {1: Gone.SILENT, 2: Gone.STOPPED}
    assert members.after(0, 1, 2, rest_s=3.0) == {}
    assert members.after(6 - STEP_S) == {2: Gone.STOPPED}
    assert members.after(STEP_S) == {1: Gone.SILENT, 2: Gone.STOPPED}


def test_whoever_was_stopped_as_well_takes_nobody_for_gone() -> None:
    """A batch system stops a job for hours, and its ranks go on one after the other."""
    members = Members()
    members.states = {1: "elsewhere", 2: "stopped"}
    assert members.after(0.5, 1, 2) == {}
    assert members.look(7200) == {}
    assert members.after(0.25, 1) == {}
    assert members.after(STEP_S) == {2: Gone.STOPPED}


def test_a_lease_begins_when_somebody_watches() -> None:
    members = Members()
    members.states[1] = "stopped"
    members.after(0)
    for _ in range(40):
        members.now += STEP_S
        assert members.leases.gone([2]) == {}
    assert members.leases.gone([1, 2]) == {}
    assert members.leases.due()
    assert not members.leases.due()
    members.now += LOOK_S
    members.leases.put_off()
    assert not members.leases.due()
    members.now += 2 * LOOK_S
    assert members.leases.due()


def test_a_heart_beats_for_the_shortest_lease() -> None:
    heart = Heart(lambda rest_s: None)
    for lease_s in (10.0, 0.5, 10.0):
        heart.keep(lease_s)
    assert heart._every_s == 0.5 / BEATS


def test_a_heart_says_for_how_long_it_has_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    heart, beaten = Heart(rests.append), 0.0
    heart.keep(0.5 * BEATS)
    for now in (0.5, 3.5, 4.0, 4.25):
        monkeypatch.setattr(leases, "monotonic", lambda now=now: now)
        beaten = heart._step(beaten)
    assert beaten == 4.0
    assert rests == [0.5, 3.0, 3.0], "the longest so far"
