"""The driver's part of an arena: room that nobody needs any more is given to others."""

from __future__ import annotations

import pytest

from workpool.driver.store import Store
from workpool.layout import NOTHING, Extent, Piece
from workpool.repository import Row
from workpool.serializer import Code
from workpool.tasks import Batch, Context, PoolContext, Task, TaskKind
from workpool.testing import MemoryWindow

STRETCH = Extent(4096, 1 << 16)


@pytest.fixture
def store() -> Store:
    return Store(MemoryWindow(sum(STRETCH)), STRETCH)


@pytest.fixture
def task() -> Task:
    context = PoolContext(1, Context(1, None, b""), lambda finished: None, lambda several: None)
    return Task(1, TaskKind.CALL, abs, context, b"", None)


def test_who_is_gone_reads_no_piece(store: Store, task: Task) -> None:
    source = bytes(STRETCH.nbytes)
    wanted = Piece(1, 0, len(source), NOTHING)
    batch = Batch([task], source)
    batch.row = Row(3, 0)
    assert store.supply(3, wanted, source) is not None
    assert store.supply(5, wanted, source) is None
    store.remove(batch)
    assert store.supply(5, wanted, source) is not None


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
