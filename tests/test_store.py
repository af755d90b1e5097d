"""The driver's part of an arena: room that nobody needs any more is given to others."""

from __future__ import annotations

import numpy as np
import pytest

from workpool import layout
from workpool.context import Context, TaskKind
from workpool.driver.store import Store
from workpool.extents import Extent
from workpool.layout import NOTHING, Piece
from workpool.repository import Row
from workpool.serializer import Code, as_bytes, pack_value
from workpool.tasks import Batch, PoolContext, Retry, Tally, Task
from workpool.testing import MemoryWindow

STRETCH = Extent(4096, 1 << 16)


@pytest.fixture
def store() -> Store:
    return Store(MemoryWindow(sum(STRETCH)), STRETCH)


@pytest.fixture
def task() -> Task:
    context = PoolContext(1, Context(1, None, b""), bool, bool, Tally())
    return Task(1, TaskKind.CALL, abs, context, b"", None)


def test_who_is_gone_reads_no_piece(store: Store, task: Task) -> None:
    source = bytes(STRETCH.nbytes)
    wanted = Piece(1, 0, len(source), NOTHING)
    batch = Batch([task], source)
    batch.row = Row(3, 0)
    assert store.supply(3, wanted, source) is not None
    assert store.supply(5, wanted, source) is None
    store.give_back((), None, Row(4, 0))  # another one
    assert store.supply(5, wanted, source) is None
    store.remove(batch)
    assert store.supply(5, wanted, source) is not None


def test_a_piece_never_comes_to_the_place_of_the_one_before(store: Store) -> None:
    """That is read while this one is written."""
    source = bytes(range(256)) * (STRETCH.nbytes // 256)
    wanted, places, content = Piece(1, 0, len(source), NOTHING), [], b""
    while len(content) < len(source):
        piece = store.supply(3, wanted, source)
        assert piece is not None
        places.append(piece.extent.offset)
        content += bytes(store.read(piece.extent))
        wanted = wanted._replace(position=len(content))
    assert content == source
    assert len(places) > 4
    assert len(set(places[::2])) == len(set(places[1::2])) == 1
    assert abs(places[0] - places[1]) >= piece.extent.nbytes
    assert store.supply(5, wanted._replace(position=0), source) is None
    assert store.supply(3, wanted, source) == wanted
    assert store.supply(5, wanted._replace(position=0), source) is not None


def test_the_code_of_long_ago_makes_room(
    store: Store, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workpool.driver.store.CODES", 2)
    for number in range(1, 6):
        task.code = store.code(Code(number, bytes(STRETCH.nbytes // 10)))
        batch = Batch([task], b"")
        assert store.descriptor(batch) is not None
        assert task.code.placed is not None
        store.remove(batch)


def test_code_for_which_there_is_no_room_is_streamed(store: Store, task: Task) -> None:
    nbytes = STRETCH.nbytes // 2
    task.code = store.code(Code(1, bytes(nbytes)))
    record = store.descriptor(Batch([task], b""))
    assert record is not None
    descriptor, _ = layout.read_descriptor(memoryview(record))
    assert descriptor.code == (1, layout.STREAMED, nbytes)


def test_code_that_is_dropped_stays_as_long_as_a_row_needs_it(store: Store, task: Task) -> None:
    used = store.region.used_nbytes
    task.code = store.code(Code(1, bytes(STRETCH.nbytes // 10)))
    batches = [Batch([task], b"") for _ in range(2)]
    assert None not in map(store.descriptor, batches)
    for batch in batches:
        store.drop(task.code)
        assert task.code.placed is not None
        store.remove(batch)
    assert task.code.placed is None
    store.drop(task.context)
    assert store.region.used_nbytes == used


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("retried", [False, True])
def test_a_payload_lies_in_the_arena_until_its_task_is_over(
    store: Store, task: Task, again: bool, retried: bool
) -> None:
    used = store.region.used_nbytes
    numbers = np.arange(10_000) % 256
    task.payload = pack_value(numbers.astype("uint8"))
    encoded = task.payload.tobytes()
    if retried:
        task.payload = encoded
        task.retry = Retry(1, 0, (Exception,))
    assert store.place(task)
    assert task.payload == (encoded if retried else b"")
    assert store.region.used_nbytes > used + 10_000
    assert task in store.apart
    store.leave(task, again)
    assert not store.apart, "nor is the task kept"
    assert as_bytes(task.payload) == (encoded if retried or again else b"")
    assert task.extent is None
    assert store.region.used_nbytes == used
    store.leave(task)


def test_what_may_be_in_a_row_that_nobody_knows_stays_so_until_it_is_in_one_that_is(
    store: Store, task: Task
) -> None:
    task.payload = bytes(STRETCH.nbytes // 4)
    assert store.place(task)
    cut_off = Batch([task], b"")
    assert store.descriptor(cut_off) is not None  # and then published, and not noted
    used = store.region.used_nbytes
    assert task.in_doubt
    store.remove(Batch([task], b""))  # another one, which got no row
    assert task.in_doubt
    store.leave(task)
    assert store.region.used_nbytes == used


def test_what_finds_no_room_is_streamed_only_if_nobody_gives_any(store: Store, task: Task) -> None:
    task.payload = bytes(STRETCH.nbytes // 4)
    batch = Batch([task], task.payload)
    while (extent := store.region.reserve(len(task.payload))) is not None:
        last = extent
    assert not store.place(task)
    assert store.descriptor(batch) is None
    record = store.descriptor(batch, streamed=True)
    assert record is not None
    descriptor, _ = layout.read_descriptor(memoryview(record))
    assert descriptor.payload == (layout.STREAMED, len(task.payload))
    store.remove(batch)
    store.region.release(last)
    assert store.descriptor(batch) is not None
    assert batch.placed


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_larger_than_five_eighths_of_the_arena_is_streamed(
    store: Store, task: Task, streamed: bool
) -> None:
    """Half of it has room, with what stands before an array of that size."""
    task.payload = bytes(STRETCH.nbytes * 5 // 8 + streamed)
    record = store.descriptor(Batch([task], task.payload))
    assert record is not None
    payload = layout.read_descriptor(memoryview(record))[0].payload
    assert (payload.offset == layout.STREAMED) is streamed
