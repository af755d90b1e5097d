"""Workers that sleep are woken when there is something to do."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from harness import run_ranks

from workpool.backoff import Backoff
from workpool.members.doorbell import AWAKE_S, Doorbell, Doorbells, name
from workpool.members.liveness import this_process
from workpool.worker.worker import IDLE_CONTROL_S, Worker

NAME = name(this_process())
LONG_S = 30.0  # of a sleep that is to be ended


def seconds_asleep(bell: Doorbell, seconds: float) -> float:
    begun = time.monotonic()
    rung = bell.sleep(seconds)
    slept_s = time.monotonic() - begun
    assert rung is (slept_s < seconds), "who is not rung for goes back to sleep"
    return slept_s


def test_a_ring_ends_a_sleep() -> None:
    bell, bells = Doorbell(NAME), Doorbells({1: NAME})
    assert not bells.ring(1), "it has never slept"
    bell.sleep(1e-3)  # from then on it hears
    timer = threading.Timer(0.05, bells.ring, [1])
    timer.start()
    assert seconds_asleep(bell, LONG_S) < LONG_S / 2
    timer.join()
    for _ in range(1000):  # more than anybody will ever hear
        assert bells.ring(1)
    assert seconds_asleep(bell, LONG_S) < LONG_S / 2, "rung while it did not sleep"
    assert seconds_asleep(bell, 0.05) >= 0.05, "all those rings were for one sleep"
    bell.close()
    assert not bells.ring(1)
    again = Doorbell(NAME)
    again.sleep(1e-3)
    bells.ring_all()
    assert seconds_asleep(again, LONG_S) < LONG_S / 2, "the name is free for the next job"
    again.close()


def test_who_does_not_hear_does_not_keep_others_from_hearing() -> None:
    bells = Doorbells({member: name(this_process(), member) for member in range(100)})
    busy = [Doorbell(name(this_process(), member)) for member in range(99)]
    for bell in busy:
        bell.sleep(1e-3)
    for _ in range(20):
        bells.ring_all()  # they are busy, and hear nothing
    idle = Doorbell(name(this_process(), 99))
    idle.sleep(1e-3)
    bells.ring(99)
    assert seconds_asleep(idle, LONG_S) < LONG_S / 2
    for bell in (*busy, idle):
        bell.close()


def test_a_bell_whose_name_is_taken_is_none() -> None:
    first, second = Doorbell(NAME), Doorbell(NAME)
    first.sleep(1e-3)
    assert seconds_asleep(second, 0.02) >= 0.02
    second.close()
    first.close()


@pytest.mark.parametrize("other", ["nothing", "pipe", "socket"])
def test_a_task_closes_the_bell(other: str) -> None:
    bell, bells = Doorbell(NAME), Doorbells({1: NAME})
    bell.sleep(1e-3)
    assert bell._socket is not None
    descriptor = bell._socket.fileno()
    os.close(descriptor)  # as a task may do that closes all there are
    ours, theirs = socket.socketpair() if other == "socket" else (None, None)
    reader, writer = os.pipe() if other == "pipe" else (-1, -1)
    if ours is not None and theirs is not None:
        os.dup2(ours.fileno(), descriptor)
        theirs.send(b"somebody else's")
    elif other == "pipe":
        os.dup2(reader, descriptor)
        os.write(writer, b"somebody else's")
    assert seconds_asleep(bell, 0.02) >= 0.02  # and hears again
    bells.ring(1)
    assert seconds_asleep(bell, LONG_S) < LONG_S / 2
    bell.close()
    if other != "nothing":
        assert os.read(descriptor, 100) == b"somebody else's"
        for used in {reader, writer, descriptor} - {-1}:
            if ours is None or used != ours.fileno():
                os.close(used)
    if ours is not None and theirs is not None:
        ours.close()
        theirs.close()


class Rung(Doorbells):
    """Notes who is rung for; some do not hear."""

    def __init__(self, *members: int) -> None:
        super().__init__(dict.fromkeys(members, NAME))
        self.rung: list[int] = []
        self.deaf: set[int] = set()

    def ring(self, member: int) -> bool:
        self.rung.append(member)
        return member not in self.deaf


def test_as_many_are_woken_as_there_are_rows() -> None:
    bells = Rung(1, 2, 4, 5)  # 3 is on another host, 5 does not serve the table
    now = bells.heard_s[1] + AWAKE_S / 2

    def woken(*rows: int) -> list[int]:
        bells.rung.clear()
        bells.tables = {number: range(count) for number, count in enumerate(rows)}
        bells.wake(4, now)
        return bells.rung

    assert woken(9) == [], "all of them were there a moment ago"
    now += 2 * AWAKE_S
    assert woken(0) == []
    assert woken(1) == [1]
    assert woken(1) == [], "one is awake by now"
    assert woken(3) == [2, 4]
    now += 2 * AWAKE_S
    bells.heard_s[2] = now
    assert woken(2) == [1]
    now += 2 * AWAKE_S
    assert woken(1, 1) == [1, 2], "what runs in another table may keep one of them busy"
    now += 2 * AWAKE_S
    bells.deaf = {1}
    assert woken(1) == [1, 2], "one that is dead wakes nobody"
    now += 2 * AWAKE_S
    assert woken(9) == [1, 2, 4]
    now += 2 * AWAKE_S
    bells.rung.clear()
    bells.tables.clear()
    bells.wake(4, now, coming=1)
    assert bells.rung == [1, 2], "for a row that is about to be there"
    assert woken(1) == [], "and not again"
    Doorbells({}).wake(4, now)


@pytest.mark.mpi
@pytest.mark.smoke
@pytest.mark.parametrize("ranks", [1, 3])
def test_nobody_sleeps_while_there_is_work(ranks: int) -> None:
    script = """
        import os, tempfile, time
        import workpool
        from workpool.worker import worker

        worker.IDLE_S, worker.IDLE_GROWTH = 100.0, 1000.0  # 50 us, 50 ms, 50 s

        def meet(place, n, workers):
            os.mkdir(os.path.join(place, str(n)))
            while len(os.listdir(place)) < workers:
                time.sleep(1e-3)

        def main(pool):
            with pool:
                workers = pool.num_workers
                begun = time.monotonic()
                assert pool.submit(abs, -1).result() == 1
                for _ in range(3):
                    time.sleep(0.3)
                    assert pool.submit(abs, -1).result() == 1
                    with tempfile.TemporaryDirectory() as place:
                        futures = [pool.submit(meet, place, n, workers) for n in range(workers)]
                        for future in futures:  # all together, or never
                            future.result()
                    time.sleep(0.3)
                    assert list(pool.map(abs, range(-1000, 0))) == list(range(1000, 0, -1))
                time.sleep(0.3)
                with workpool.WorkPool(rows=64) as other:
                    assert other.submit(abs, -1).result() == 1
                    time.sleep(0.3)
                time.sleep(0.3)
                print("took", time.monotonic() - begun < 20, flush=True)

        workpool.run(main)
    """
    begun = time.monotonic()
    result = run_ranks(ranks, script, spmd=ranks > 1, timeout=100)
    assert "took True" in result.stdout
    assert time.monotonic() - begun < 40, "and all go home at once"


LATE = """
def delay():
    publish = Dispatcher._publish_alone

    def late(*args):
        time.sleep(0.1)  # the worker is asleep by then
        return publish(*args)

    Dispatcher._publish_alone = late
"""

STALLING = """
def delay():
    advance = Dispatcher.advance

    def stalling(self, asked):
        if self._published.rows:  # just looked at: what they hold ends meanwhile
            time.sleep(0.1)
        advance(self, asked)

    Dispatcher.advance = stalling
"""

DELAYED = """
import time
import workpool
from workpool.driver.dispatcher import Dispatcher
from workpool.worker import worker

worker.IDLE_S, worker.IDLE_GROWTH = 100.0, 1000.0  # 50 us, 50 ms, 50 s

def main(pool):
    with pool:
        assert pool.submit(abs, -1).result() == 1
        delay()
        begun = time.monotonic()
        for _ in range(5):
            assert pool.submit(abs, -1).result() == 1
        print("took", time.monotonic() - begun < 20, flush=True)
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "delay"),
    [(1, LATE), (2, LATE), (1, STALLING)],
    ids=["late to publish", "late to publish to a rank", "late after a look"],
)
def test_a_driver_without_a_core_does_not_take_sleepers_for_awake(ranks: int, delay: str) -> None:
    script = f"{DELAYED}{delay}\nworkpool.run(main)\n"
    assert "took True" in run_ranks(ranks, script, spmd=ranks > 1, timeout=100).stdout


def test_a_worker_looks_at_a_new_table_before_it_sleeps() -> None:
    worker, seen = Worker(1, 0, "host"), list[str]()

    class Table:
        def work(self, seconds: float) -> bool:
            seen.append("look")
            return False

    def control() -> bool:
        if not worker._services:
            worker._services = {1: Table()}  # type: ignore[dict-item]
            seen.append("attached")
        return "sleep" not in seen

    def sleep(seconds: float) -> None:
        seen.append("sleep")
        time.sleep(2 * IDLE_CONTROL_S)

    idle = Backoff(1e-3, sleep=sleep)
    idle.spins = 0
    worker._serve(control, idle)
    assert seen == ["attached", "look", "sleep", "look"]
