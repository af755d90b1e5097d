"""What the heart gives back of a row, at whatever moment."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest
from claimed_row import TASKS, ClaimedRow

from workpool import layout
from workpool.layout import STRIDE
from workpool.members import leases
from workpool.members.leases import LEAST_LEASE_S, Heart
from workpool.repository import Row
from workpool.testing import MemoryWindow
from workpool.whole import held
from workpool.worker.batch import BatchRun
from workpool.worker.runner import Evicted
from workpool.worker.worker import Worker


def test_nothing_is_given_back_when_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word has no number for a task behind the last that a row may have."""
    row = ClaimedRow(tasks=layout.MAX_TASKS)
    genuine = BatchRun._next

    def late(self: BatchRun, stride: bool) -> bool:
        if len(self.outcomes.entries) == layout.MAX_TASKS:
            self.give_back()
        return genuine(self, stride)

    monkeypatch.setattr(BatchRun, "_next", late)
    assert row.run() == list(range(layout.MAX_TASKS))
    assert not layout.is_recalled(row.word)
    assert layout.owner_of(row.word) == 1


def test_nothing_is_given_back_that_has_run_when_the_rest_was_recalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heart that has waited for its turn comes between the last stride and the row's end.

    The submitter would have seven tasks run again, and what they add to accumulators counted twice.
    """
    row = ClaimedRow()
    genuine = BatchRun._next

    def then_the_heart(self: BatchRun, stride: bool) -> bool:
        more = genuine(self, stride)
        if not more:
            self.give_back()
        return more

    def during(n: int) -> None:
        if n == 3:
            assert row.publisher.recall(Row(0, row.word)) is not None

    monkeypatch.setattr(BatchRun, "_next", then_the_heart)
    ended = row.run(during)
    assert ended == row.ran == list(range(1 + STRIDE))
    assert layout.started_of(row.word) == len(ended)


def test_nothing_is_given_back_of_an_attempt_that_has_ended_early() -> None:
    """As where a child process runs it, and is found to be gone: others have the room by now."""

    def during(n: int) -> None:
        if n == 3:
            raise Evicted

    row = ClaimedRow()
    with pytest.raises(Evicted):
        row.run(during)
    before = row.word, row.said()
    row.batch.give_back()  # by a heart that has seen it run
    row.window.flush()
    assert (row.word, row.said()) == before


def test_the_heart_is_quicker_than_the_worker() -> None:
    """What waits is given back between the worker's look and its step: nothing runs twice."""
    row = ClaimedRow()

    class Raced(deque[bytes | memoryview]):
        def popleft(self) -> bytes | memoryview:
            if len(row.ran) == 3:
                row.batch.give_back()
            return super().popleft()

    row.batch._pending = Raced()
    assert row.run() == row.ran == row.said() == [0, 1, 2]
    assert layout.started_of(row.word) == 4, "and its submitter has it run elsewhere"


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_the_heart_gives_back_at_any_moment() -> None:
    """Two threads, and nothing but chance: each task runs here, or is given back."""
    partial = 0
    for seed in itertools.count():
        if seed >= 200 and (partial or seed == 10_000):
            break
        row = ClaimedRow()
        stop = threading.Event()
        holds: list[bool] = []

        def beat(row: ClaimedRow = row, stop: threading.Event = stop, seed: int = seed) -> None:
            time.sleep(seed * 2e-6)
            while not stop.is_set():
                row.batch.give_back()

        def ask(n: int, row: ClaimedRow = row, holds: list[bool] = holds) -> None:
            holds.append(row.batch.holds())

        heart = threading.Thread(target=beat)
        heart.start()
        try:
            ended = row.run(ask)
        finally:
            stop.set()
            heart.join()
        assert ended == row.ran == list(range(len(ended)))
        assert all(holds)
        assert row.said() == ended[: layout.ended_of(row.word)]
        assert layout.is_recalled(row.word) or len(ended) == TASKS
        partial += len(ended) < TASKS
    assert partial


def test_who_asks_while_the_heart_gives_back_still_holds_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word is loaded, the heart changes it, and only then it is compared with the claim's."""
    row = ClaimedRow()
    held: list[bool] = []
    load = MemoryWindow.load

    def slow(window: MemoryWindow, disp: int) -> int:
        word = load(window, disp)
        heart = threading.Thread(target=row.batch.give_back)
        heart.start()
        heart.join(0.05)  # it may have to wait for us
        hearts.append(heart)
        return word

    hearts: list[threading.Thread] = []

    def during(n: int) -> None:
        if n == 3:
            monkeypatch.setattr(MemoryWindow, "load", slow)
            held.append(row.batch.holds())
            monkeypatch.setattr(MemoryWindow, "load", load)
            for heart in hearts:
                heart.join()
            held.append(row.batch.holds())

    assert row.run(during) == row.ran == [0, 1, 2, 3], "the heart gave the others back"
    assert held == [True, True]
    assert row.said() == [0, 1, 2]


def test_who_hurries_the_heart_while_it_looks_or_rests_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "MOST_BEAT_S", 60.0)
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        if len(looks) == 1:
            heart.hurry()
        return False

    heart = Heart(lambda rest_s: None, look)
    heart.start()
    try:
        for wanted in (2, 3):
            heart.hurry()
            limit = time.monotonic() + 10
            while len(looks) < wanted:
                assert time.monotonic() < limit
                time.sleep(1e-3)
            time.sleep(0.05)
    finally:
        heart.stop()


def test_the_heart_watches_while_there_is_something() -> None:
    def look() -> bool:
        if len(looks) == 5:
            enough.set()
            return False
        # And a finalizer that comes here must not wait for a task.
        looks.append(heart.still.locked() and held(sys._getframe()))
        return True

    beats, looks = [], []
    enough = threading.Event()
    heart = Heart(lambda rest_s: beats.append(heart.still.locked()), look)
    heart.keep(LEAST_LEASE_S)
    heart.start()
    try:
        time.sleep(0.15)
        assert not looks
        for _ in range(2):
            heart.hurry()
            assert enough.wait(10)
            enough.clear()
            assert all(looks)
            looks.clear()
            time.sleep(0.05)
            assert not looks, "nobody has asked for it"
        limit = time.monotonic() + 10
        while not beats:
            assert time.monotonic() < limit
            time.sleep(1e-3)
    finally:
        heart.stop()
    assert all(beats), "while somebody else may take away what it beats for"


def test_a_table_is_not_taken_away_while_the_heart_beats_for_it() -> None:
    worker = Worker(1, 0, "here")
    detaching = threading.Thread(target=worker.detach, args=(0,))
    with worker.heart.still:
        detaching.start()
        detaching.join(0.1)
        assert detaching.is_alive()
    detaching.join(10)
    assert not detaching.is_alive()
