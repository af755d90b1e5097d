"""Workers die, and the job goes on: nothing is lost, nothing counted twice."""

from __future__ import annotations

import signal
import time

import pytest
from jobs import ROOT, Ended
from launching import run
from processes import PATIENCE
from surviving import deaths, end, survive

from workpool.launch.mpiexec import Kind, find

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]


@pytest.mark.smoke
def test_nobody_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "default::ResourceWarning")  # of what is left open
    text = """
import atexit, threading
atexit.register(print, "driver's exit")
with WorkPool() as pool, WorkPool(rows=50) as other:
    print(sum(pool.map(abs, range(20_000))), other.submit(pow, 2, 5).result())
    pool.with_options(isolate=True).submit(abs, 1).result()
    each(pool, lambda: atexit.register(print, "worker's exit") and None)
    files()
threading.Timer(0.5, print, ["driver's thread"]).start()
sys.exit(7)
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, ended.err) == (7, "")
    assert "199990000 32\n" in ended.out
    assert "driver's thread\ndriver's exit\n" in ended.out
    assert ended.out.count("worker's exit") >= 3


@pytest.mark.smoke
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS])
def test_an_idle_worker_dies(signum: int) -> None:
    text = f"""
with WorkPool() as pool:
    strike(pool, {signum}, 2)
    until_dead(2)
    assert entry.current().liveness.dead() == [2]
    print(sum(pool.map(abs, range(50_000))))
    assert each(pool, os.getpid, 2).keys() == {{1, 3}}
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "1249975000\n" in ended.out) == (0, True), ended
    (line,) = deaths(ended)
    line, _, advice = line.partition("; ")
    assert line == f"workpool: worker rank 2 died, signal {signum}"
    assert ("/dev/shm was full" in advice) == (signum == signal.SIGBUS)


def test_half_of_the_workers_die() -> None:
    text = """
with WorkPool() as pool:
    strike(pool, signal.SIGKILL, 1, 3, workers=4)
    until_dead(1, 3)
    futures = [pool.submit(abs, -n) for n in range(5_000)]
    print(sum(future.result() for future in futures))
    files()
"""
    with survive(text, 4) as started:
        ended = end(started)
    assert (ended.status, "12497500\n" in ended.out) == (0, True), ended
    assert sorted(deaths(ended)) == [f"workpool: worker rank {n} died, signal 9" for n in (1, 3)]


def test_a_worker_dies_in_a_task() -> None:
    """Its task is run by another one."""
    text = """
def die(first):
    if not os.path.exists(first):
        open(first, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

with WorkPool() as pool:
    before = each(pool, os.getpid)
    total = pool.accumulator((), int)
    fatal = pool.submit(die, "first")
    futures = [pool.submit(total.add, n) for n in range(5_000)]
    print(fatal.result(), len([future.result() for future in futures]), total.value())
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "done 5000 12497500\n" in ended.out) == (0, True), ended
    (line,) = deaths(ended)
    assert line.endswith("died, signal 9, while it ran task die")


def test_a_worker_dies_with_a_lock_inside_mpi() -> None:
    if find().kind is not Kind.MPICH:
        pytest.skip("only MPICH's locks name who holds them")
    text = """
import ctypes, re
from workpool.system.abandoned import _MAPPED

def die(first):
    if os.path.exists(first):
        return "done"
    open(first, "w").close()
    with open("/proc/self/maps") as maps:
        for place in _MAPPED.findall(maps.read()):
            if ctypes.c_int.from_address(int(place, 16) + 16).value == 130:  # a mutex
                ctypes.CDLL(None).pthread_mutex_lock(ctypes.c_void_p(int(place, 16)))
    os.kill(os.getpid(), signal.SIGKILL)

with WorkPool() as pool:
    each(pool, os.getpid)
    fatal = pool.submit(die, "first")
    futures = [pool.submit(abs, -n) for n in range(5_000)]
    print(fatal.result(), sum(future.result() for future in futures))
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "done 12497500\n" in ended.out) == (0, True), ended
    (line,) = deaths(ended)
    assert line.endswith("died, signal 9, while it ran task die")


def test_a_worker_that_fails_by_itself_says_that_it_alone_is_lost() -> None:
    text = """
def broken():
    os.sched_yield = None  # which the worker waits with

with WorkPool() as pool:
    each(pool, os.getpid)
    pool.submit(broken).exception()
    while "dead" not in map(entry.current().liveness.state, range(1, 4)):
        time.sleep(0.01)
    print(sum(pool.map(abs, range(1000))))
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "499500\n" in ended.out) == (0, True), ended
    assert "failed, it alone is lost\n" in ended.err


@pytest.mark.parametrize("ended_by", ["subprocess", "multiprocessing"])
def test_programs_of_the_others_go_on(ended_by: str) -> None:
    text = f"""
import subprocess

UNTIL_KILLED = "until [ -e killed ]; do sleep 0.02; done"

def program():
    if {ended_by!r} == "subprocess":
        return subprocess.run(["sh", "-c", UNTIL_KILLED]).returncode
    import multiprocessing
    process = multiprocessing.get_context("spawn").Process(target=os.system, args=(UNTIL_KILLED,))
    process.start()
    process.join()
    return process.exitcode

with WorkPool() as pool:
    each(pool, os.getpid)
    own = subprocess.Popen(["sh", "-c", UNTIL_KILLED])
    futures = [pool.submit(program) for _ in range(3)]
    while not all(future.running() for future in futures):
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(member(2), signal.SIGKILL)
    until_dead(2)
    time.sleep(0.2)  # the others hear of it
    open("killed", "w").close()
    print([future.result() for future in futures], own.wait())
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "[0, 0, 0] 0\n" in ended.out) == (0, True), ended


def test_workers_die_one_after_another_and_nothing_is_lost() -> None:
    text = """
with WorkPool() as pool:
    each(pool, os.getpid, 4)
    total = pool.accumulator((), int)

    def task(n):
        time.sleep(0.001 * (n % 3))
        total.add(n)
        return n

    futures = [pool.submit(task, n) for n in range(3_000)]
    for n, turn in enumerate((500, 1_000, 1_500), 1):
        futures[turn].result()
        kill(n)
    assert [future.result() for future in futures] == list(range(3_000))
    print(total.value(), sum(pool.map(abs, range(10_000))))
    files()
"""
    with survive(text, 4) as started:
        ended = end(started, 90)
    assert (ended.status, f"{sum(range(3_000))} 49995000\n" in ended.out) == (0, True), ended
    assert len(deaths(ended)) == 3


def test_a_map_goes_on_however_many_workers_die_of_something_else() -> None:
    text = """
from itertools import islice

def slowly(n):
    time.sleep(0.002)
    return n

with WorkPool() as pool:
    each(pool, os.getpid, 6)
    results = pool.map(slowly, range(4_000))
    found = []
    for n in range(1, 5):
        found += islice(results, 500)
        kill(n)
    found += results
    print(found == list(range(4_000)))
    files()
"""
    with survive(text, 6) as started:
        ended = end(started, 90)
    assert (ended.status, "True\n" in ended.out) == (0, True), ended
    assert len(deaths(ended)) == 4


def test_an_item_that_brings_down_three_workers_fails_its_map() -> None:
    text = """
from workpool.errors import WorkerCrashed

def leave_at_77(n):
    if n == 77:
        os._exit(3)
    return n

with WorkPool() as pool:
    each(pool, os.getpid, 5)
    try:
        print(sum(pool.map(leave_at_77, range(1_000))))
    except WorkerCrashed as error:
        print("crashed", str(error).rpartition("; ")[2])
    print(sum(pool.map(abs, range(1_000))))
    files()
"""
    with survive(text, 5) as started:
        ended = end(started, 90)
    said = "crashed so did two others, at the same items: no more tries\n499500\n"
    assert (ended.status, said in ended.out) == (0, True), ended
    assert len(deaths(ended)) == 3


def test_a_task_that_leaves_is_a_death() -> None:
    text = """
from workpool.errors import WorkerCrashed

def leave():
    os._exit(3)

with WorkPool() as pool:
    each(pool, os.getpid, 4)
    try:
        pool.submit(leave).result()
    except WorkerCrashed as error:
        print("crashed")
    print(pool.submit(abs, -1).result())
"""
    with survive(text, 4) as started:
        ended = end(started)
    assert (ended.status, ended.out) == (0, "crashed\n1\n"), ended
    assert 1 <= len(deaths(ended)) < 4
    assert all("died, exit status 3, while it ran task leave" in line for line in deaths(ended))


def test_tables_after_a_death() -> None:
    text = """
from workpool.errors import ResourceError

with WorkPool() as pool:
    strike(pool, signal.SIGKILL, 1)
    for rows in (33, 34):  # the death is noticed on the way, and before
        try:
            WorkPool(rows=rows)
        except ResourceError as error:
            print(error)
    with WorkPool() as other:
        print(other.submit(abs, -2).result(), pool.submit(abs, -3).result())
    print(pool.num_workers, "of", len(pool.stats()))
with WorkPool() as pool:
    print(pool.submit(abs, -4).result())
    files()
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "\n2 3\n2 of 3\n4\n" in ended.out) == (0, True), ended
    assert ended.out.count("no table can be opened any more") == 2
    assert "same options" in ended.out


def test_a_worker_dies_while_a_table_is_opened() -> None:
    text = """
def plant():
    import workpool.job.service

    if rank() == 2:  # it comes, and dies before the collective call
        workpool.job.service.open_window = lambda *rest: os.kill(os.getpid(), signal.SIGKILL)

with WorkPool() as pool:
    each(pool, plant)
    files()
    WorkPool(rows=33)
"""
    begun = time.monotonic()
    with survive(text) as started:
        ended = end(started)
    assert ended.status == 1
    assert "a call into MPI does not end after worker rank 2 on" in ended.err
    assert "start the job again" in ended.err
    assert time.monotonic() - begun < 20 * PATIENCE


def test_a_stopped_worker_does_not_hold_up_the_end() -> None:
    text = """
with WorkPool() as pool:
    strike(pool, signal.SIGSTOP, 3)
    assert entry.current().liveness.dead() == []
    print(len(each(pool, os.getpid, 2)))
"""
    with survive(text) as started:
        ended = end(started, 30)
    assert (ended.status, ended.out) == (0, "2\n")


def test_accumulators_are_exact_and_use_no_accumulate() -> None:
    """The clauses of the contract hold, and no worker calls what could hang the others."""
    text = """
import numpy as np
from workpool import rma

def forbid():
    def accumulate(*rest):
        raise AssertionError("accumulate")
    rma.Window.accumulate = accumulate

def add(total, histogram, n):
    total.add(n)
    histogram.add(np.full(5, n))
    return np.full(n % 3, n)

with WorkPool() as pool:
    each(pool, forbid)
    total, histogram = pool.accumulator((), "int64"), pool.accumulator((5,), float)
    large = pool.accumulator((1_000_000,), float)
    futures = [pool.submit(add, total, histogram, n) for n in range(3_000)]
    values = [future.result() for future in futures]
    values[1][:] = 0  # it can be written to
    assert total.value() == sum(range(3_000)), total.value()
    assert list(pool.map(lambda n: total.add(n), range(3_000))) == [None] * 3_000
    total.add(7)
    assert total.value() == 2 * sum(range(3_000)) + 7, total.value()
    for future in [pool.submit(large.add, np.ones(1_000_000)) for _ in range(10)]:
        future.result()
    assert (large.value() == 10).all()
assert (histogram.value() == sum(range(3_000))).all()
print("exact")
"""
    with survive(text) as started:
        assert end(started) == Ended(0, "exact\n", "")


def test_the_contract_of_accumulators() -> None:
    words = [str(ROOT / "tests" / "cases" / "accumulate.py"), "--workers", "2"]
    with run("--survive", "-w", "2", *words) as started:
        ended, reported = started.wait(120), started.events()
        events = [*iter(lambda: next(reported), {})]
    failed = {event["case"]: event["text"] for event in events if event.get("outcome") == "failed"}
    assert ended.status == 0, ended
    assert not failed
    assert any(event.get("outcome") == "passed" for event in events)
