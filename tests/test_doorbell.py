"""Workers that sleep are woken when there is something to do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from harness import run_ranks

from workpool.doorbell import AWAKE_S, Doorbell, Doorbells, Waker, name
from workpool.liveness import this_process

NAME = name(this_process())
LONG_S = 30.0  # of a sleep that is to be ended


@pytest.fixture
def bells() -> Iterator[Doorbells]:
    bells = Doorbells({1: NAME})
    yield bells
    bells.close()


def seconds_asleep(bell: Doorbell, seconds: float) -> float:
    begun = time.monotonic()
    bell.sleep(seconds)
    return time.monotonic() - begun


def test_a_ring_ends_a_sleep(bells: Doorbells) -> None:
    bell = Doorbell(NAME)
    bell.sleep(1e-3)  # from then on it hears
    timer = threading.Timer(0.05, bells.ring, [1])
    timer.start()
    assert seconds_asleep(bell, LONG_S) < LONG_S / 2
    timer.join()
    for _ in range(1000):  # more than anybody will ever hear
        bells.ring_all()
    assert seconds_asleep(bell, LONG_S) < LONG_S / 2, "rung while it did not sleep"
    assert seconds_asleep(bell, 0.05) >= 0.05, "all those rings were for one sleep"
    bell.close()
    assert seconds_asleep(bell, 0.05) >= 0.05
    bells.ring(1)
    again = Doorbell(NAME)
    again.sleep(1e-3)
    bells.ring(1)
    assert seconds_asleep(again, LONG_S) < LONG_S / 2, "the name is free for the next job"
    again.close()


def test_a_bell_that_cannot_be_heard_harms_nobody(bells: Doorbells) -> None:
    bells.ring(1)  # nobody is there
    first, second = Doorbell(NAME), Doorbell(NAME)
    first.sleep(1e-3)
    assert seconds_asleep(second, 0.02) >= 0.02, "its name is taken"
    second.close()
    assert first._socket is not None
    descriptor = first._socket.fileno()
    os.close(descriptor)  # as a task may do
    reader, writer = os.pipe()
    try:
        os.dup2(reader, descriptor)
        os.write(writer, b"somebody else's")
        for _ in range(3):
            bells.ring(1)
            assert seconds_asleep(first, 0.02) < LONG_S
        assert seconds_asleep(first, 0.02) >= 0.02
        first.close()
        assert os.read(descriptor, 100) == b"somebody else's"
    finally:
        for used in {reader, writer, descriptor}:
            os.close(used)


def test_as_many_are_woken_as_there_are_rows() -> None:
    class Bells(Doorbells):
        def __init__(self) -> None:
            self.members = 1, 2, 4, 5  # 3 is on another host, 5 does not serve the table
            self.rung: list[int] = []

        def ring(self, member: int) -> None:
            self.rung.append(member)

    bells = Bells()
    waker = Waker(bells, 4)
    now = time.monotonic() + AWAKE_S / 2
    waker.wake(9, now)
    assert bells.rung == [], "all of them were there a moment ago"
    now += 2 * AWAKE_S
    waker.wake(1, now)
    assert bells.rung == [1]
    waker.wake(1, now)
    assert bells.rung == [1], "one is awake by now"
    waker.wake(3, now)
    assert bells.rung == [1, 2, 4]
    now += 2 * AWAKE_S
    waker.heard_s[2] = now
    waker.wake(2, now)
    assert bells.rung == [1, 2, 4, 1]
    waker.wake(0, now + 2 * AWAKE_S)
    assert bells.rung == [1, 2, 4, 1]
    Waker(None, 4).wake(9, now)


@pytest.mark.mpi
@pytest.mark.smoke
@pytest.mark.parametrize("ranks", [1, 3])
def test_nobody_sleeps_while_there_is_work(ranks: int) -> None:
    script = """
        import time
        import workpool
        from workpool import worker

        worker.IDLE_S, worker.IDLE_GROWTH = 100.0, 1000.0  # 50 us, 50 ms, 50 s

        def main(pool):
            with pool:
                workers = pool.num_workers
                begun = time.monotonic()
                assert pool.submit(abs, -1).result() == 1
                for _ in range(3):
                    time.sleep(0.3)
                    assert pool.submit(abs, -1).result() == 1
                    futures = [pool.submit(time.sleep, 0.8) for _ in range(workers)]
                    start = time.monotonic()
                    for future in futures:
                        future.result()
                    assert time.monotonic() - start < 1.5, "each worker has one"
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
