"""What a step costs does not grow with how much else there is: counted, not measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from driven import Table

from workpool.context import Context, TaskKind
from workpool.serializer import Code, pack_value
from workpool.tasks import Batch, SharedCode, Task

#: So many instructions a step may take for each row more: to look at one takes twenty and more.
EACH = 12


def instructions(action: Callable[[], object]) -> int:
    """Return how many instructions of Python something takes."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    count = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def full(rows: int) -> Table:
    """Return a driver whose table is full of batches, of which a worker runs the first."""
    table = Table(rows=rows)
    driver = table.driver
    shared = driver._store.code(Code(1, b"code"))
    for _ in range(2):
        shared.measured(1, [1000] * SharedCode.ENOUGH)
    for number in range(300 * rows):
        task = Task(number, TaskKind.CALL, abs, table.context, b"", None)
        task.code = shared
        driver._backlog.tasks.append(task)
    driver.progress()
    driver.progress()
    assert len(driver._published.batches) == rows
    table.claim()
    return table


STEPS: dict[str, Callable[[Table], object]] = {
    "progress": lambda table: table.driver.progress(),
    "who runs what": lambda table: table.driver._published.owners(),
    "what is lost": lambda table: table.driver._dispatcher._recover(),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_costs_no_more_where_the_table_has_more_rows(step: str) -> None:
    def cost(rows: int) -> int:
        table = full(rows)
        table.driver._dispatcher._recover_s = 0.0 if step == "what is lost" else float("inf")
        return instructions(lambda: STEPS[step](table))

    assert cost(256) - cost(16) < EACH * 240


def test_what_finds_no_room_looks_only_at_what_has_some() -> None:
    def cost(small: int) -> int:
        table = Table()
        driver = table.driver
        large = Task(0, TaskKind.CALL, abs, table.context, pack_value(np.ones(10_000)), None)
        assert driver._store.place(large)
        driver._backlog.tasks.append(large)
        for number in range(1, 1 + small):
            task = Task(number, TaskKind.CALL, abs, table.context, b"", None)
            driver._backlog.tasks.append(task)
        stuck = Batch([task], bytes(1 << 20))
        taken = instructions(lambda: driver._dispatcher._make_way(stuck))
        assert large.extent is None
        return taken

    assert cost(1000) - cost(100) < 900


def test_rows_that_are_held_are_not_looked_at_one_by_one() -> None:
    table = Table(rows=512)
    publisher = table.driver._collector._publisher
    assert publisher.room(400) == 400
    assert instructions(lambda: publisher.recover(())) < 400 * EACH * 2


def test_whether_a_pool_is_over_is_found_without_looking_at_all_others() -> None:
    class Pool(int):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return super().__eq__(other)

        def __lt__(self, other: int) -> bool:
            compared.append(other)
            return super().__lt__(other)

        __hash__ = int.__hash__

    compared: list[object] = []
    context = Context(2001, None, b"", others=tuple(range(1, 2001, 2)))
    assert not context.closed(Pool(1999))
    assert context.closed(Pool(1000))
    assert len(compared) < 50
