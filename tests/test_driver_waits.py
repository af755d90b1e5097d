"""How a driver waits: looks, glances, and rests."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from driven import NOTHING_TO_FETCH, Table
from stepped_pool import Make, note

from workpool.backoff import SPINS, WAIT_S
from workpool.driver import waits as waits_module
from workpool.driver.progress import LAX_PART, LAX_S
from workpool.driver.waits import Waits
from workpool.errors import TaskLost
from workpool.journal import ledger
from workpool.journal.journal import Entry, Journal
from workpool.layout import NOTHING, Piece
from workpool.pool.hold import Hold
from workpool.protocol import Step
from workpool.repository import Stream
from workpool.serializer import pack_value
from workpool.tasks import Batch
from workpool.whole import whole


def waits_of(rest_s: float | None, glance_s: float = 0) -> tuple[Waits, list[str]]:
    """Return waits whose rows run for ever, and what they do meanwhile."""

    def progress() -> int:
        steps.append("progress")
        return 0

    def still() -> bool:
        steps.append("glance")
        time.sleep(glance_s)
        return True

    steps: list[str] = []
    return Waits(progress, lambda waited_s: rest_s, lambda: True, still), steps


@contextmanager
def waiting(waits: Waits, threads: int, ended: Callable[[], bool]) -> Iterator[None]:
    """Have threads wait, and join them."""
    started = [threading.Thread(target=waits.wait, args=(ended, None)) for _ in range(threads)]
    for thread in started:
        thread.start()
    yield
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def until(ended: Callable[[], bool]) -> None:
    while not ended():
        time.sleep(1e-3)


def test_many_who_wait_do_not_look_more_often_than_a_few() -> None:
    waits, steps = waits_of(1e-3)
    over: list[None] = []
    begun = time.monotonic()
    with waiting(waits, 32, lambda: bool(over)):
        time.sleep(0.5)
        over.append(None)
    assert len(steps) < 3000 * (time.monotonic() - begun)


def test_who_has_waited_for_long_and_in_vain_looks_seldom() -> None:
    table = Table()
    table.submit(1)
    table.driver.progress()

    def rest_s(late_s: float, waited_s: float) -> float | None:
        table.driver._advanced_s, table.driver._asked_s = 10.0, 10.0 - late_s
        return table.driver._rest_s(waited_s)

    for late_s, waited_s in ((0.0, 9.0), (0.1, 9.0), (9.0, 0.0), (9.0, 0.1)):
        assert (rest_s(late_s, waited_s) or 0.0) <= WAIT_S, "a result may come soon"
    assert rest_s(1.0, 9.0) == rest_s(9.0, 1.0) == LAX_PART
    assert rest_s(9.0, 9.0) == LAX_S

    waited: list[float] = []

    def asked(waited_s: float) -> float:
        waited.append(waited_s)
        return 20e-3

    for _ in range(2):
        waited.clear()
        began_s = time.monotonic()
        Waits(lambda: 0, asked, lambda: True, bool).wait(lambda: len(waited) == 3, 60)
        assert waited[0] < waited[1] < waited[2] < time.monotonic() - began_s, "a wait by itself"


def test_who_rests_is_told_when_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits_module, "WAIT_S", 100.0)
    waits, _ = waits_of(1e-3)
    over: list[None] = []
    with waiting(waits, 1, lambda: len(over) == 2):
        until(lambda: waits._looker is not None)
        with waiting(waits, 3, lambda: bool(over)):
            until(lambda: len(waits._resting) == 3)
            over.append(None)
            waits.tell()
        over.append(None)


@pytest.mark.parametrize("end_with_it", [0, 2])
def test_another_looks_when_the_one_who_did_has_ended(
    monkeypatch: pytest.MonkeyPatch, end_with_it: int
) -> None:
    monkeypatch.setattr(waits_module, "WAIT_S", 100.0)
    waits, steps = waits_of(1e-3)
    over: list[None] = []
    with ExitStack() as threads:
        for rest in range(1 + end_with_it):
            threads.enter_context(waiting(waits, 1, lambda: bool(over)))
            until(lambda rest=rest: waits._looker is not None and len(waits._resting) == rest)
        first = waits._looker
        with waiting(waits, 1, lambda: len(over) == 2):
            until(lambda: len(waits._resting) == 1 + end_with_it)
            over.append(None)
            until(lambda: waits._looker not in (None, first))
            seen = len(steps)
            until(lambda: len(steps) > seen + 2)
            over.append(None)
    assert waits._looker is None
    assert not waits._resting


def test_who_waits_for_the_only_row_glances_at_it_until_it_has_ended() -> None:
    waits, steps = waits_of(None)
    assert waits.wait(lambda: len(steps) >= 5, None)  # by another thread
    assert steps == ["progress", *["glance"] * 4]
    steps.clear()
    assert waits.wait(lambda: steps.count("progress") >= 2, None)
    assert steps == ["progress", *["glance"] * (SPINS - 1), "progress"]


def test_who_looks_at_the_only_row_keeps_it_for_the_next_progress() -> None:
    table = Table()
    driver = table.driver
    assert not driver._still()  # there is none
    table.submit(1)
    driver.progress()
    assert driver._still()
    claim = table.claim()
    assert driver._still()
    assert driver._collector._seen is None  # only what is DONE may be collected without a look
    table.worker.complete(claim, NOTHING_TO_FETCH)
    assert not driver._still()
    seen = driver._collector._seen
    driver.progress()
    assert not driver._rows
    driver._collector._seen = seen  # by another thread, too late
    table.submit(2)
    driver.progress()
    assert driver._rows


def test_the_window_is_not_closed_while_somebody_looks() -> None:
    table = Table()
    driver = table.driver
    table.submit(1)
    driver.progress()
    closing = threading.Thread(target=driver.close)
    with driver._looking:
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        driver.drop(table.context)  # by a finalizer, which asks nobody
    closing.join(10)
    assert not closing.is_alive()
    assert not driver._still()
    assert not driver._bells.tables, "nobody is woken for its rows any more"
    table.end_one()
    assert not driver.progress(), "the window may be gone"


def test_who_glances_finds_that_another_was_quicker() -> None:
    class Emptied(dict[int, Batch]):
        def __len__(self) -> int:
            return 1  # as it was just now

    driver = Table().driver
    driver._collector._rows = Emptied()
    assert not driver._still()


def test_who_looks_is_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync() -> None:
        entered.append(driver.entered)

    entered: list[bool] = []
    table = Table()
    driver = table.driver
    table.submit(1)
    driver.progress()
    look = table.window.await_change
    monkeypatch.setattr(table.window, "await_change", lambda *a, **k: (sync(), look(*a, **k))[1])
    assert not driver.entered
    assert driver._still()
    assert entered == [True]


def test_a_reader_that_was_collected_keeps_no_other_waiting() -> None:
    table = Table()
    driver = table.driver
    payloads = [pack_value(np.ones(200_000)) for _ in range(2)]
    for number, payload in enumerate(payloads):
        table.submit(number, payload)
        driver.progress()
    first, second = table.claim(), table.claim()
    total = len(payloads[0])
    for claim in (first, second):
        wanted = Piece(Stream.PAYLOAD, 0, total, NOTHING)
        assert table.worker.request(claim, Step.WANT, wanted)
        driver.progress()
    assert isinstance(table.worker.answered(first, Step.SUPPLY), Piece)
    assert table.worker.answered(second, Step.SUPPLY) is None
    table.worker.complete(first, NOTHING_TO_FETCH)  # in the middle of it
    for _ in range(3):
        driver.progress()
    assert isinstance(table.worker.answered(second, Step.SUPPLY), Piece)


def test_glances_end_with_the_time_to_wait() -> None:
    waits, steps = waits_of(None, glance_s=5e-3)
    assert not waits.wait(lambda: False, 1e-2)
    assert steps.count("glance") <= 2


def test_who_has_found_something_looks_again_at_once() -> None:
    looks: list[int] = []

    def progress() -> int:
        looks.append(len(looks))
        return 1

    def rest_s(waited_s: float) -> float:
        raise AssertionError("mostly it was what it waits for")

    waits = Waits(progress, rest_s, lambda: True, lambda: True)
    assert waits.wait(lambda: len(looks) == 3, None)


def test_who_may_rest_does_not_glance() -> None:
    waits, steps = waits_of(1e-3)
    assert waits.wait(lambda: steps.count("progress") > 2, 30)
    assert "glance" not in steps


@pytest.mark.parametrize("outstanding", [True, False])
def test_what_waits_on_the_driver_is_not_lost(outstanding: bool) -> None:
    """As a task does that is tried again later: nothing is in the table meanwhile."""
    waits = Waits(lambda: 0, lambda waited_s: 1e-3, lambda: outstanding, lambda: False)
    waits._patience_s = 1e-2
    with nullcontext() if outstanding else pytest.raises(TaskLost):
        assert not waits.wait(lambda: False, 0.1 if outstanding else 60)


@pytest.mark.parametrize("what", ["a step", "a task", "the end"])
def test_what_has_come_since_the_last_look_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    asked: list[str] = []

    def found(whom: str, at: int) -> bool:
        """Return whether it is there, from the time on when it is asked for so often."""
        asked.append(whom)
        return whom == what and asked.count(whom) >= at

    def ended() -> bool:
        return found("the end", 3) or "once more" in asked

    def outstanding() -> bool:
        assert waits.attended
        return found("a task", 3) and not asked.append("once more")

    def stepping() -> bool:
        return found("a step", 1) and not asked.append("once more")

    monkeypatch.setattr(waits_module, "LOST_S", 0.0)
    monkeypatch.setattr(waits_module, "_stepping", stepping)
    waits = Waits(lambda: 0, lambda waited_s: 0.0, outstanding, lambda: False)
    assert waits.wait(ended, None)
    assert "a step" in asked, "it was about to say that the task is lost"
    assert not waits.attended


def test_a_finalizer_that_comes_while_results_are_written_down_cannot_wait(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it waits for would be written down next, behind the lock that its own thread has."""
    monkeypatch.setattr(ledger, "STORE_S", math.inf)  # nothing is written down by a submit
    pool = make(workers=1, journal=tmp_path / "journal")
    first, second = pool.submit(abs, -1), pool.submit(len, "")
    store, refused = Journal.store, []

    def storing(journal: Journal, entries: list[Entry]) -> None:  # where the collector runs
        if not refused:
            refused.append(True)
            with pytest.raises(RuntimeError, match="a finalizer"):
                second.result()
        store(journal, entries)

    monkeypatch.setattr(Journal, "store", storing)
    assert (first.result(), second.result()) == (1, 0)
    assert refused


@pytest.mark.parametrize("midst", [False, True])
def test_who_drops_a_pool_waits_for_nothing(make: Make, midst: bool) -> None:
    """In the midst of a step, where a finalizer may have come, the attendant is told of it."""

    @whole
    def drop() -> None:
        Hold(pool._core)

    pool, called = make(), list[object]()
    pool.job.attendant.ring = bool
    future = pool.submit(note, 1)
    drop() if midst else Hold(pool._core)
    assert pool._core.open is midst
    pool.job.attendant.join(bool)
    assert not pool._core.open
    assert not future.done()
    future.add_done_callback(called.append)
    pool.shutdown()  # which waits for callbacks as well
    assert called == [future]
