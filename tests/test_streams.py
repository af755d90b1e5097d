"""Arguments and results in pieces, cut off at each of their steps: nothing is lost, or left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from stepped import Stepped, outcomes

from workpool.driver import streams
from workpool.worker import exchange

ARENA_NBYTES = 1 << 20

#: More than a region of the arena has.
NBYTES = 5 << 17

#: How many looks a worker takes during each stream.
LOOKS = {"result": 11, "payload": 22}


def numbered(nbytes: int) -> bytes:
    return np.arange(nbytes // 4, dtype="u4").tobytes()


def is_numbered(payload: bytes) -> bool:
    return payload == numbered(NBYTES)


CALLS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "result": (numbered, NBYTES, numbered(NBYTES)),
    "payload": (is_numbered, numbered(NBYTES), True),
}


@pytest.fixture
def job() -> Iterator[Stepped]:
    job = Stepped(arena_nbytes=ARENA_NBYTES)
    yield job
    job.leave()


class Looks:
    """What is done between two looks of a worker that waits for its driver."""

    act: Callable[[int], object]
    count = 0

    def pause(self) -> None:
        """Have it done, instead of a wait."""
        Looks.count += 1
        assert Looks.count < 2000, "the stream does not end"
        Looks.act(Looks.count)


def room(job: Stepped) -> tuple[int, int]:
    """Return the bytes that are free in the regions of driver and worker."""
    job.driver._collector.retire()
    job.service._exchange.reap()
    return job.driver._store.region.free_nbytes, job.service._exchange.region.free_nbytes


@pytest.mark.parametrize("how", ["kill", "memory", "evict"])
@pytest.mark.parametrize(
    ("stream", "look"), [(stream, look) for stream in LOOKS for look in range(1, 1 + LOOKS[stream])]
)
def test_a_stream_may_be_cut_off_at_any_step(
    job: Stepped, monkeypatch: pytest.MonkeyPatch, stream: str, look: int, how: str
) -> None:
    monkeypatch.setattr(exchange, "Backoff", lambda longest_s: Looks())
    fn, argument, expected = CALLS[stream]
    job.submit(pow, 2, 2)
    job.go()
    free = room(job)
    task = job.submit(fn, argument)
    killed = []

    def act(count: int) -> None:
        if count != look:
            job.driver.progress()
        elif how == "kill":
            killed.append(job.driver.kill(task))
        elif how == "memory":
            monkeypatch.setattr(streams, "empty", no_memory)
        elif task.batch is not None and job.driver._published.take_back(task.batch):
            task.attempt += 1
            job.driver._backlog.tasks.append(task)

    def no_memory(nbytes: int) -> None:
        raise MemoryError

    genuine = streams.empty  # type: ignore[attr-defined]
    Looks.act, Looks.count = act, 0
    go_on(job)
    if any(killed):
        assert task.future.outcomes == []
    else:
        (outcome,) = outcomes([task])
        assert outcome == expected or isinstance(outcome, MemoryError)
    Looks.act, Looks.count = lambda count: job.driver.progress(), 0
    monkeypatch.setattr(streams, "empty", genuine)
    assert room(job) == free
    again = job.submit(fn, argument)
    go_on(job)
    assert Looks.count == LOOKS[stream]
    assert outcomes([again]) == [expected]
    assert room(job) == free


@pytest.mark.parametrize("stream", CALLS)
def test_while_one_side_copies_a_piece_the_other_is_at_the_next(
    job: Stepped, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    """What the driver can do, it does just before the worker touches a piece that is asked for."""
    monkeypatch.setattr(exchange, "Backoff", lambda longest_s: Looks())
    Looks.act, Looks.count = lambda count: job.driver.progress(), 0
    ends = job.driver._collector.streams
    aside = []

    def driver() -> None:
        before = ends.passed_s
        job.driver.progress()
        aside.append(ends.passed_s > before)

    class Window:
        """Lets the driver go first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(job.window, name)

        def get(self, disp: int, buffer: Any) -> None:
            driver()
            job.window.get(disp, buffer)

        def put(self, disp: int, buffer: Any) -> None:
            driver()
            job.window.put(disp, buffer)

    monkeypatch.setattr(job.service._exchange, "_window", Window())
    fn, argument, expected = CALLS[stream]
    task = job.submit(fn, argument)
    go_on(job)
    assert outcomes([task]) == [expected]
    assert sum(aside) > 5


def go_on(job: Stepped) -> None:
    """Have driver and worker take some steps each."""
    for _ in range(6):
        job.driver.progress()
        job.work()
        job.driver.progress()
