"""SIGTERM: nothing more is started, what runs may end and with a journal is stored; the status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from jobs import Job
from launching import by_hand, run, stored
from processes import PATIENCE

from workpool.launch.mpiexec import Kind, command_line, environment, find
from workpool.system.status import UNFINISHED

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

DRAIN = """\
import sys, time
from workpool import WorkPool

task_s = float(sys.argv[1])  # a child process has no arguments

def work(n):
    print("begun", n, flush=True)
    time.sleep(task_s)
    return n

try:
    with WorkPool(journal="run.db", drain_s=float(sys.argv[2])) as pool:
        if sys.argv[3] == "map":
            print(list(pool.map(work, range(20))))
        else:
            pool = pool.with_options(isolate=True) if sys.argv[3] == "isolated" else pool
            print([future.result() for future in [pool.submit(work, n) for n in range(20)]])
finally:
    print("finally", flush=True)
"""


def terminate(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the first were quicker than we
            os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("how", ["submit", "map", "isolated"])
@pytest.mark.parametrize("to", ["launcher", "everything", "driver by hand", "all by hand", "alone"])
def test_what_runs_at_sigterm_is_stored(tmp_path: Path, to: str, how: str) -> None:
    words = ["driver.py", "1.0", "20", how]
    (tmp_path / "driver.py").write_text(DRAIN)
    if to in ("launcher", "everything"):
        start = run("-w", "2", *words, cwd=tmp_path)
    elif to == "alone":
        start = Job([sys.executable, *words], cwd=tmp_path)
    else:
        start = by_hand(*words, cwd=tmp_path)
    with start as started:
        started.until("begun")
        time.sleep(0.1)
        if to == "everything":  # as batch systems do
            terminate(started.members())
        elif to.endswith("hand"):
            terminate(started.ranks()[: 1 if to.startswith("driver") else None])
        else:
            started.signal(signal.SIGTERM)
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "all of them have ended" in ended.err + ended.out
    assert "finally" in ended.out
    begun = ended.out.count("begun")
    assert 1 <= begun < 20
    assert len(stored(tmp_path / "run.db")) == begun


def test_the_time_for_which_the_job_was_stopped_is_not_within_that_of_the_drain(
    tmp_path: Path,
) -> None:
    (tmp_path / "driver.py").write_text(DRAIN)
    with run("-w", "2", "--grace", "1", "driver.py", "1", "3", "submit", cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="begun")
        started.until("SIGTERM")
        started.stop(5)
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "all of them have ended" in ended.err
    assert len(stored(tmp_path / "run.db")) == ended.out.count("begun")


@pytest.mark.parametrize("launched", [True, False])
def test_what_takes_too_long_is_cut_off(tmp_path: Path, launched: bool) -> None:
    (tmp_path / "driver.py").write_text(DRAIN)
    words = ["driver.py", "60", "0.5", "submit"]
    start = run("-w", "2", *words, cwd=tmp_path) if launched else by_hand(*words, cwd=tmp_path)
    with start as started:
        started.until("begun")
        begun = time.monotonic()
        if launched:
            started.signal(signal.SIGTERM)
        else:
            os.kill(started.ranks()[0], signal.SIGTERM)
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "the time is over" in ended.err + ended.out
    assert time.monotonic() - begun < 8 * PATIENCE
    assert not stored(tmp_path / "run.db")


def test_who_waits_for_a_pool_does_not_go_on_before_it_is_told_to_leave(tmp_path: Path) -> None:
    program = """\
import time
from workpool import WorkPool
from workpool.job import drain

says = drain.say

def say(text):
    says(text)
    time.sleep(1)  # as where nobody reads that

def work(n):
    print("begun", flush=True)
    time.sleep(1)

drain.say = say
with WorkPool(journal="run.db") as pool:
    for n in range(20):
        pool.submit(work, n)
print("all is done")
"""
    with run("-w", "2", "-c", program, cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="begun")
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "all is done" not in ended.out
    assert len(stored(tmp_path / "run.db")) == ended.out.count("begun") < 20


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGTERM, UNFINISHED), (signal.SIGINT, 128 + signal.SIGINT)]
)
def test_a_process_by_itself_that_waits_at_its_exit(
    tmp_path: Path, signum: int, status: int
) -> None:
    program = """\
import time
from workpool import WorkPool
from workpool.pool.core import Core

shutdown = Core.shutdown

def tell(*args, **options):
    print("waits", flush=True)
    shutdown(*args, **options)

def work(n):
    print("begun", flush=True)
    time.sleep(1)

Core.shutdown = tell
pool = WorkPool(journal="run.db")
for n in range(20):
    pool.submit(work, n)
"""
    with Job([sys.executable, "-c", program], cwd=tmp_path) as started:
        started.until("begun")
        started.signal(signum, after="waits")
        ended = started.wait()
    assert ended.status == status, ended
    assert "Exception ignored" not in ended.err
    assert len(stored(tmp_path / "run.db")) == ended.out.count("begun") < 20


def test_an_spmd_program_that_waits_for_a_pool_of_its_own_at_the_end(tmp_path: Path) -> None:
    program = """\
import time
import workpool
from workpool.pool.core import Core

shutdown = Core.shutdown

def tell(self, *args, **options):
    if self.ledgers.used:
        print("waits", flush=True)
    shutdown(self, *args, **options)

def work(n):
    print("begun", flush=True)
    time.sleep(1)

def main(pool):
    global kept
    Core.shutdown = tell
    kept = workpool.WorkPool(journal="run.db")
    for n in range(20):
        kept.submit(work, n)

workpool.run(main)
print("all is done", flush=True)
"""
    (tmp_path / "driver.py").write_text(program)
    found = find()
    command = command_line(found, 3, [sys.executable, "driver.py"])
    variables = environment(found.kind, os.environ)
    with Job(command, variables, cwd=tmp_path, lasting=True) as started:
        started.until("begun")
        started.until("waits")
        terminate(started.ranks()[:1])
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "all is done" not in ended.out
    assert len(stored(tmp_path / "run.db")) == ended.out.count("begun") < 20


def test_what_ends_after_the_journal_is_not_seen(tmp_path: Path) -> None:
    program = """\
import time
from concurrent.futures import wait
from workpool import WorkPool

def slow():
    print("begun", flush=True)
    time.sleep(1.5)
    return 42

pool = WorkPool(journal="run.db", drain_s=0.2)
future = pool.submit(slow)
try:
    future.result()
except SystemExit:
    pool.shutdown()
    print(repr(future.exception()), flush=True)
    raise
"""
    with run("-w", "1", "-c", program, cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="begun")
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "ResourceError" in ended.out
    assert "was shut down before this result" in ended.out
    assert not stored(tmp_path / "run.db")


def test_mpich_passes_sigterm_on(tmp_path: Path) -> None:
    if find(None).kind is Kind.OPENMPI:
        pytest.skip("Open MPI's mpiexec kills its ranks at SIGTERM, half a second later")
    (tmp_path / "driver.py").write_text(DRAIN)
    with by_hand("driver.py", "1.0", "20", "submit", cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="begun")
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert len(stored(tmp_path / "run.db")) == ended.out.count("begun")


STARTS = """\
import time
from workpool import WorkPool
from workpool.{module} import {kind}

def {name}(*args):
    print("opening", flush=True)
    time.sleep(20)

WorkPool()
{kind}.{name} = {name}
try:
    WorkPool(journal="run.db")
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize("step", ["job.crew Crew summon", "journal.journal Journal _read_keys"])
def test_while_a_pool_with_a_journal_is_made(tmp_path: Path, step: str) -> None:
    module, kind, name = step.split()
    program = STARTS.format(module=module, kind=kind, name=name)
    with run("-w", "1", "-c", program, cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="opening")
        ended = started.wait()
    assert ended.status == UNFINISHED, ended
    assert "finally" in ended.out


@pytest.mark.parametrize("how", ["submit", "map"])
@pytest.mark.parametrize("task_s", [1.0, 60.0])
def test_without_a_journal_nothing_more_is_started(tmp_path: Path, task_s: float, how: str) -> None:
    (tmp_path / "driver.py").write_text(DRAIN.replace('journal="run.db", ', ""))
    with run("-w", "2", "driver.py", str(task_s), "20", how, cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="begun")
        ended = started.wait()
    assert ended.status == 128 + signal.SIGTERM, ended
    assert "finally" in ended.out
    assert 1 <= ended.out.count("begun") <= 3, "two at once, and one of them may just have ended"
    assert "SIGTERM: running tasks have 3 s to end" in ended.err


@pytest.mark.parametrize("journal", ["", 'journal="run.db"'])
def test_a_map_that_is_just_being_pickled_is_left(tmp_path: Path, journal: str) -> None:
    program = f"""\
import signal
from workpool import WorkPool

class Late:
    def __reduce__(self):
        if not asked:
            asked.append(signal.raise_signal(signal.SIGTERM))
        return Late, ()

asked = []
try:
    with WorkPool({journal}) as pool:
        pool.map(id, [Late(), *range(60_000)])  # half a second's work for a journal
        print("not left")
finally:
    print("finally")
"""
    with run("-w", "1", "-c", program, cwd=tmp_path) as started:
        ended = started.wait()
    assert ended.out == "finally\n"
    assert ended.status == (UNFINISHED if journal else 128 + signal.SIGTERM), ended


def test_who_waits_for_what_is_not_started_is_told_at_sigterm(tmp_path: Path) -> None:
    program = """\
import threading, time
from workpool import WorkPool

def watch():
    try:
        futures[-1].result()
    except BaseException as error:
        print("told", type(error).__name__, flush=True)

pool = WorkPool()
futures = [pool.submit(time.sleep, 0.5) for _ in range(100)]
threading.Thread(target=watch).start()
print("ready", flush=True)
"""
    (tmp_path / "driver.py").write_text(program)
    with run("-w", "2", "--grace", "20", "driver.py", cwd=tmp_path) as started:
        started.signal(signal.SIGTERM, after="ready")
        ended = started.wait()
    assert ended.status == 128 + signal.SIGTERM, ended
    assert "told CancelledError" in ended.out


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing_of_what_is_submitted(tmp_path: Path, signum: int) -> None:
    program = """\
from workpool import WorkPool

data = [str(n) for n in range(50_000)]
pool, futures = WorkPool(), []
print("ready", flush=True)
try:
    while True:
        futures.append(pool.submit(pow, len(futures), 2))
        if len(futures) % 100 == 0:
            futures.append(pool.submit(len, data))
except (KeyboardInterrupt, SystemExit) as error:
    print(type(error).__name__, flush=True)
    assert [future.exception() for future in futures] == [None] * len(futures)
    pool.shutdown()
    print("all there", flush=True)
    raise
"""
    (tmp_path / "driver.py").write_text(program)
    with run("-w", "2", "--grace", "20", "driver.py", cwd=tmp_path) as started:
        started.until("ready")
        time.sleep(0.2)
        started.signal(signum)
        ended = started.wait()
    assert "all there" in ended.out, ended
    assert ended.status == 128 + signum, ended


def test_a_rank_that_dies_is_not_taken_for_a_drain(tmp_path: Path) -> None:
    """Open MPI's mpiexec ends the others by SIGTERM: who starts the job again must be told why."""
    text = """
import os, signal
from workpool import WorkPool

with WorkPool(journal="run.db", drain_s=0) as pool:
    pool.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()
"""
    (tmp_path / "driver.py").write_text(text)
    with run("-w", "2", "driver.py", cwd=tmp_path) as started:
        ended = started.wait()
    assert ended.status not in (0, UNFINISHED), ended
    assert "a rank has died" in ended.err
