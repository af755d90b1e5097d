"""One pool at a time has a journal, whatever it calls it and however it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs import ROOT, Job

from workpool.errors import UsageError
from workpool.journal import file as file_module
from workpool.journal.file import holder, inspect
from workpool.journal.journal import Entry, Journal
from workpool.journal.ledger import Ledgers


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "_WAIT_S", 0.05)


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    with pytest.raises(UsageError, match=r"run\.db is in use by a pool of this program"):
        Journal(path)
    assert str(os.getpid()) in str(holder(path))
    journal.close()
    assert holder(path) is None
    Journal(path).close()


def test_the_name_of_a_host_need_not_be_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=os.fsdecode(b"v\xe9m")))
    path = tmp_path / "run.db"
    journal = Journal(path)
    with pytest.raises(UsageError, match=r"run\.db is in use by a pool of this program"):
        Journal(path)
    assert str(holder(path)).endswith("on v\udce9m")
    journal.close()


def test_who_only_looks_keeps_no_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.db"
    Journal(path).close()
    looking = os.open(f"{path}.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    slept: list[float] = []
    monkeypatch.setattr(
        file_module, "sleep", lambda seconds: os.close(looking) or slept.append(seconds)
    )
    Journal(path).close()
    assert slept  # it was in the way


def test_an_interrupt_while_a_journal_is_opened_leaves_it_free(tmp_path: Path) -> None:
    def opened() -> None:
        raise KeyboardInterrupt

    ledgers = Ledgers((None, ()), opened, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        ledgers.open(tmp_path / "run.db")
    Journal(tmp_path / "run.db").close()


def test_an_interrupt_while_it_waits_for_the_lock_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    journal = Journal(tmp_path / "run.db")
    monkeypatch.setattr(file_module, "sleep", interrupted)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(KeyboardInterrupt):
        Journal(tmp_path / "run.db")
    assert os.listdir("/proc/self/fd") == before
    journal.close()


def test_one_at_a_time_by_whatever_name(tmp_path: Path) -> None:
    path, link = tmp_path / "run.db", tmp_path / "latest.db"
    link.symlink_to(path)
    journal = Journal(path)
    with pytest.raises(UsageError, match="in use by a pool of this program"):
        Journal(link)
    assert str(os.getpid()) in str(holder(str(link)))
    journal.store([Entry("f", bytes(16), False, b"result")])
    connection = inspect(str(link))  # sees what is not in the file itself yet
    assert connection.execute("SELECT count(*) FROM records").fetchone() == (1,)
    connection.close()
    journal.close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    script = (
        "import sys, time; from workpool.journal.journal import Journal; j = Journal(sys.argv[1]);"
        "print('open', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UsageError, match=f"in use by process {process.pid} on "):
            Journal(path)
        process.kill()
    Journal(path).close()


@pytest.mark.mpi
def test_the_lock_ends_with_its_process_though_that_has_forked(tmp_path: Path) -> None:
    script = """
import os, signal
from workpool import WorkPool

pool = WorkPool(journal="run.db")
assert pool.submit(abs, -1).result() == 1
held = pool._core.ledgers.default.journal._lock_fd
if os.fork() == 0:
    assert os.dup(1) == held  # now it is another file's
    if os.fork() == 0:
        os.write(held, b"forked")
        signal.pause()
    os._exit(0)
os.wait()
signal.pause()
"""
    with Job([sys.executable, "-c", script], cwd=tmp_path) as started:
        started.signal(signal.SIGKILL, after="forked")
        assert started.process.wait() == -signal.SIGKILL
        assert started.members()
        Journal(tmp_path / "run.db").close()
