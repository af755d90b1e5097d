"""What a driver does when: what waits for what, and what gives way."""

from __future__ import annotations

import math
import os
import time

import numpy as np
import pytest
from driven import NOTHING_TO_FETCH, Table

from workpool import layout
from workpool.backoff import FIRST_S, Backoff
from workpool.context import TaskKind
from workpool.driver import dispatcher as dispatcher_module
from workpool.driver import driver as driver_module
from workpool.driver import progress as progress_module
from workpool.driver.collector import RETIRED, SHORT_S
from workpool.extents import LINE_NBYTES, Extent
from workpool.layout import Piece, Terms
from workpool.protocol import Step
from workpool.repository import Claim, Miss, Stream, take_items
from workpool.serializer import Kind, Packed, as_bytes, pack_value, unpack
from workpool.tasks import Batch, Segment, Task


def test_who_finds_each_result_at_once_leaves_nothing_undone() -> None:
    """A script that works longer between submit and result than its task takes."""
    table = Table(rows=64)
    driver, again = table.driver, table.submit(0)
    driver.progress()
    table.end_one()
    driver.progress()
    driver.retry(again, 0.01)
    limit = time.monotonic() + 30
    while again.batch is None:
        table.submit(1)
        while not driver._rows:
            driver.progress()
        table.end_one()
        driver.progress()
        assert len(driver._collector.retired) < RETIRED + 2
        assert time.monotonic() < limit


@pytest.mark.parametrize("served", [True, False])
def test_large_arguments_that_find_no_room_wait_for_it_before_they_are_copied(
    served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_a_task() -> None:
        found = table.worker.take(1)
        for offer in found if served and not isinstance(found, Miss) else []:
            claim = table.worker.claim(offer)
            assert isinstance(claim, Claim)
            table.worker.complete(claim, bytes(layout.OUTCOME_NBYTES))

    table = Table()
    monkeypatch.setattr(os, "sched_yield", end_a_task)
    monkeypatch.setattr(dispatcher_module, "COPY_S", 1e-6)  # 0.2 s
    arguments = [pack_value(np.full(25_000, n)) for n in range(4)]  # room for two
    tasks = [table.submit(n, argument) for n, argument in enumerate(arguments)]
    # What has been placed is no longer here, and what was copied is here alone.
    assert [len(task.payload) > 0 for task in tasks] == [False, False, not served, not served]
    payloads = [task.payload for task in tasks]
    assert all(payload.lent for payload in payloads if isinstance(payload, Packed))


def test_arguments_without_room_wait_for_a_row_that_will_give_it() -> None:
    table = Table()
    driver = table.driver
    for number in range(3):
        table.submit(number, pack_value(np.full(25_000, number)))  # room for two
        driver.progress()
    places = [table.claim() for _ in range(2)]
    assert isinstance(table.worker.take(1), Miss)
    table.worker.complete(places[0], NOTHING_TO_FETCH)
    driver.progress()
    assert table.claim().descriptor[0].payload == places[0].descriptor[0].payload


def test_who_reads_a_stream_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    driver = table.driver
    driver._collector.row_s = 1.0  # so it sleeps
    table.submit(1, pack_value(np.ones(100_000)))
    claim = table.claim()
    slept: list[float] = []
    monkeypatch.setattr(driver.waits, "_sleep", slept.append)
    driver.waits.pause(Backoff(1.0))
    table.worker.request(claim, Step.WANT, Piece(Stream.PAYLOAD, 0, 800_000, Extent(0, 0)))
    driver.progress()
    driver.waits.pause(Backoff(1.0))
    assert slept[0] >= 1e-3 > 1e-4 >= slept[1]


def test_tasks_go_in_the_order_in_which_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one has waited for others that did not come."""
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    table = Table()
    driver = table.driver
    driver.progress()
    driver._dispatcher._again_s = math.inf
    table.submit(1)
    driver._dispatcher._again_s = 0.0
    table.submit(2)
    assert [table.claim().descriptor[0].task_id for _ in range(2)] == [1, 2]


def test_nothing_is_started_after_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    table = Table()
    segment = Segment(0, b"items", 5, Terms(0, 1, 1, 0, 5))
    turn = Task(0, TaskKind.RANGE, abs, table.context, b"", None, segment=segment)
    table.driver.submit(turn, None)
    tasks = [turn, *(table.submit(number) for number in range(1, 3))]
    table.driver.progress()
    assert len(table.driver._rows) == 3
    table.driver.drain()
    tasks.append(table.submit(3))
    table.driver.progress()
    assert [task.batch for task in tasks] == [None] * 4
    offers = table.worker.take(4)
    assert isinstance(offers, list)
    assert all(isinstance(table.worker.claim(offer), Miss) for offer in offers)
    assert segment.items is not None
    assert not take_items(table.window, table.geometry, segment.items, 1)


def test_what_finds_no_row_keeps_its_room_until_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "TOGETHER_S", 100.0)
    table = Table(rows=2)
    driver = table.driver
    driver.progress()
    table.submit(1)
    driver.progress()
    table.submit(2)
    driver.progress()
    assert len(driver._rows) == 2
    free_nbytes = driver._store.region.free_nbytes
    task = table.submit(3, pack_value(np.ones(10_000)))
    assert task.extent is not None
    driver.progress()
    assert driver._store.region.free_nbytes <= free_nbytes - 80_000
    assert driver.cancel(task)
    assert driver._store.region.free_nbytes == free_nbytes
    task = table.submit(4, b"small")
    assert driver.cancel(task)
    assert not task.payload, "it may be long until it comes to its turn, and is dropped"


def test_a_pause_does_not_make_who_waits_rest_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    driver, times = table.driver, [0.0]
    for module in (driver_module, progress_module):
        monkeypatch.setattr(module, "monotonic", lambda: times[0])
    driver._collector.row_s = 2 * SHORT_S
    rests = []
    for number in range(2):
        times[0] += 1.0
        table.submit(number)
        rests.append(driver._rest_s(0.0))
        table.end_one()
        driver.progress()
        driver._collector.row_s = 2 * SHORT_S
    assert rests == [FIRST_S, FIRST_S]


def test_rows_are_freed_one_by_one_only_while_a_worker_may_wait_for_that() -> None:
    extent = Extent(Table(rows=64).geometry.region(1).offset, 8)
    record = layout.write_outcome(Kind.VALUE, 5, *extent).ljust(layout.OUTCOME_NBYTES, b"\0")
    for end, left in ((record, (0, 1)), (NOTHING_TO_FETCH, (1, 2))):
        table = Table(rows=64)
        driver = table.driver
        for number in range(2):
            table.submit(number)
            driver.progress()
        for retired in left:  # after the last one nobody runs anything that needs room
            table.end_one(end)
            driver.progress()
            assert len(driver._collector.retired) == retired


def test_rows_that_are_published_together_wait_for_each_others_room() -> None:
    """In pieces goes only what a worker would be idle without."""
    table = Table()
    driver = table.driver
    payload, waiting = bytes(driver._store.most_nbytes // 2), driver._backlog.tasks
    waiting += [Task(i, TaskKind.CALL, abs, table.context, payload, None) for i in range(5)]
    driver._dispatcher.publish()
    while driver.outstanding:
        assert all(batch.placed for batch in driver._rows.values())
        table.end_one()
        driver.progress()


@pytest.mark.parametrize("idle", [True, False])
def test_arguments_for_which_no_row_will_give_room_go_in_pieces(idle: bool) -> None:
    table = Table()
    driver = table.driver
    while driver.reserve(LINE_NBYTES):  # as for accumulators
        pass
    if not idle:
        table.submit(0)
        table.claim()
    table.submit(1, bytes(1 << 15))
    driver.progress()
    assert table.claim().descriptor[0].payload.offset == layout.STREAMED


@pytest.mark.parametrize("comes", ["task", "numbers"])
def test_what_the_last_result_has_left_in_the_arena_gives_way(comes: str) -> None:
    table = Table()
    driver = table.driver
    region = driver._store.region
    nbytes = region.nbytes * 45 // 100
    table.submit(1, bytes(nbytes))
    driver.progress()
    table.end_one()
    driver.progress()
    assert region.free_nbytes < nbytes
    if comes == "task":
        table.submit(2, bytes(nbytes))
        assert table.claim().descriptor[0].payload.offset != layout.STREAMED
    else:
        assert driver.reserve(nbytes) is not None


def test_what_goes_into_a_row_makes_no_way() -> None:
    table = Table()
    dispatcher, store = table.driver._dispatcher, table.driver._store
    nbytes = 1 << 15
    payloads = [bytes([number]) * nbytes for number in range(4)]
    waits, about, *own = tasks = [
        Task(number, TaskKind.CALL, abs, table.context, payload, None)
        for number, payload in enumerate(payloads)
    ]
    assert all(map(store.place, tasks))
    assert store.descriptor(Batch([about], b"")), "it is published with the next ones"
    while store.region.reserve(LINE_NBYTES):
        pass
    assert dispatcher._make_way(Batch(own, bytes(nbytes)))
    assert [task.extent is None for task in tasks] == [True, False, False, False]
    assert as_bytes(waits.payload) == payloads[0]


def test_the_items_of_the_last_map_give_way_to_those_of_the_next() -> None:
    table = Table(rows=1024)
    driver = table.driver
    content = bytes(driver._store.region.nbytes // 5)
    for number in range(3):
        segment = Segment(number, content, 5, Terms(0, 1, 1, 0, 5))
        driver.submit(
            Task(number, TaskKind.RANGE, abs, table.context, b"", None, segment=segment), None
        )
        driver._dispatcher.publish()
        claim = table.claim()
        assert claim.descriptor[0].payload.offset != layout.STREAMED
        table.worker.complete(claim, NOTHING_TO_FETCH)
        driver.progress()
        driver.end(segment)


def test_arguments_that_are_sent_in_pieces_are_as_they_were_at_submit() -> None:
    table = Table()
    driver, numbers = table.driver, np.ones(100_000)
    table.submit(1, pack_value(numbers))
    numbers[:] = 2
    claim = table.claim()
    nbytes = claim.descriptor[0].nbytes
    content = b""
    while len(content) < nbytes:
        wanted = Piece(Stream.PAYLOAD, len(content), nbytes, Extent(0, 0))
        assert table.worker.request(claim, Step.WANT, wanted)
        driver.progress()
        piece = table.worker.answered(claim, Step.SUPPLY)
        assert isinstance(piece, Piece)
        content += table.window.copy(*piece.extent)
    assert (unpack(bytearray(content)) == 1).all()
