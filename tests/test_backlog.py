"""How tasks that wait are cut into rows: short ones share one, and nobody waits for a slow one."""

from __future__ import annotations

import numpy as np
import pytest

from workpool.context import LARGE_NBYTES, Context, TaskKind
from workpool.driver.backlog import BATCH_NBYTES, BATCH_TASKS, LARGE_BATCH_NBYTES, Backlog
from workpool.extents import Extent
from workpool.layout import Items, Terms
from workpool.serializer import Encoded, pack_value, split
from workpool.tasks import Batch, PoolContext, Segment, SharedCode, Tally, Task

CONTEXT = PoolContext(1, Context(1, None, b""), bool, bool, Tally())

ROOM_NBYTES = 1 << 30


def a_backlog() -> Backlog:
    """Return one without an arena."""
    return Backlog(lambda segment: True, lambda task: None, ROOM_NBYTES)


def a_task(number: int, payload: Encoded = b"") -> Task:
    return Task(number, TaskKind.CALL, abs, CONTEXT, payload, None)


def rows(code: SharedCode, tasks: int, share: int, payload: Encoded = b"payload") -> list[int]:
    """Return how many tasks are in each row."""
    backlog = a_backlog()
    for number in range(tasks):
        task = a_task(number, payload)
        task.code = code
        backlog.tasks.append(task)
    sizes = []
    while (batch := backlog.next_batch(share)) is not None:
        sizes.append(len(batch.tasks))
    assert sum(sizes) == tasks
    return sizes


def code(*times_us: float) -> SharedCode:
    """Return a function whose tasks took so long, one after another."""
    found = SharedCode(1, b"code")
    for time_us in times_us:
        found.measured(1, [int(1000 * time_us)])
    return found


def test_what_is_not_known_is_alone() -> None:
    assert rows(code(), 3, 100) == [1, 1, 1]


@pytest.mark.parametrize(("time_us", "share", "first"), [(100, 2, 2), (100, 50, 6), (700, 50, 1)])
def test_short_tasks_share_a_row(time_us: float, share: int, first: int) -> None:
    assert rows(code(time_us), 100, share)[0] == first


def test_the_first_task_restores_the_function_and_counts_until_the_next_one() -> None:
    assert rows(code(100_000), 100, 50)[0] == code(100_000).slow == 1
    assert code(100_000, 100).mean_s == pytest.approx(100e-6)


def test_the_first_task_of_each_worker_does_not_count() -> None:
    found = code(100_000, 100, 100)
    for worker in (2, 3):
        found.measured(worker, [80_000_000])
        found.measured(worker, [100_000])
    found.measured(4, [100_000, 90_000_000, 100_000])
    assert found.mean_s == pytest.approx(100e-6)
    assert found.slow == 0.0


def test_it_is_known_how_long_tasks_take_when_enough_of_them_have_ended() -> None:
    found = code(1)
    for _ in range(2):
        assert not found.known
        found.measured(1, [1000] * (SharedCode.ENOUGH // 2))
    assert found.known


def test_early_tasks_weigh_no_more_than_those_after_them() -> None:
    early = code(1, 10_000, *[10] * 60)
    assert early.mean_s is not None
    assert early.mean_s < 40e-6
    assert early.slow < 0.03


def test_rows_have_more_work_where_their_steps_take_long() -> None:
    def most(*steps_s: float) -> int:
        backlog, shared = a_backlog(), code(100)
        for each_s in steps_s:
            backlog.stepped(each_s)
        for number in range(200):
            task = a_task(number)
            task.code = shared
            backlog.tasks.append(task)
        batch = backlog.next_batch(100)
        assert batch is not None
        return len(batch.tasks)

    assert most() == most(*[20e-6] * 100) == most(*[1e-3] * 100, 20e-6) == 6
    assert most(*[1e-3] * 100) == 40, "as between hosts"
    assert most(*[1.0] * 100) == 100 < BATCH_TASKS
    assert most(4e-3) == 1 + 16, "one that was held up counts a little"


def test_very_short_tasks_share_one_whatever_their_share() -> None:
    assert rows(code(5), 100, 1)[0] == 10
    assert rows(code(5), 10_000, 5000)[0] == min(BATCH_TASKS, 101)


def test_a_row_is_not_for_any_number_of_bytes() -> None:
    assert rows(code(5), 40, 40, bytes(BATCH_NBYTES // 16)) == [16, 16, 8]
    assert rows(code(5), 3, 3, bytes(BATCH_NBYTES + 1)) == [1, 1, 1]


def test_ranges_wait_for_a_counter_and_are_not_looked_at_again_and_again() -> None:
    def lend(segment: Segment) -> bool:
        asked.append(segment)
        if segment.items is None and free:
            segment.items = Items(free.pop(), 0, 5)
        return segment.items is not None

    def turn(segment: Segment | None) -> Task:
        return Task(0, TaskKind.RANGE, rows, CONTEXT, b"", None, segment=segment)

    def taken() -> list[Task]:
        return [batch.tasks[0] for batch in iter(lambda: backlog.next_batch(1), None)]

    asked: list[Segment] = []
    free = [0, 1]
    backlog = Backlog(lend, lambda task: None, ROOM_NBYTES)
    ranges = [Segment(n, b"", 5, Terms(0, 1, 1, 0, 1)) for n in range(50)]
    turns = [turn(segment) for part in (ranges[:2], ranges[2:]) for segment in 2 * part]
    backlog.tasks.extend(turns)
    assert taken() == turns[:4]
    for _ in range(20):  # of those that have one
        more = [turn(None), turn(ranges[1])]
        backlog.tasks.extend(more)
        assert taken() == more
    assert len(asked) == 3
    assert list(backlog) == turns[4:]
    of_third, of_fourth, of_fifth, *others = zip(turns[4:52], turns[52:], strict=True)
    for over in of_third:
        over.over = True
    free += [2, 3]
    backlog.resume()
    assert taken() == [*of_fourth, *of_fifth]  # the second turns are not behind those of others
    for several in others:
        assert backlog.outstanding
        for late in several:
            late.over = True
    assert not backlog.outstanding


class Arena:
    """Room for so many payloads."""

    def __init__(self, room: int, room_nbytes: int = ROOM_NBYTES) -> None:
        self.room = room
        self.backlog = Backlog(lambda segment: True, self.place, room_nbytes)

    def place(self, task: Task) -> None:
        if self.room:
            self.room -= 1
            task.extent, task.payload = Extent(1000 * task.task_id, len(task.payload)), b""

    def rows(self, *sizes: int, placed: bool = False, functions: int = 1) -> list[Batch]:
        """Return the rows of tasks whose payloads are so large; `placed`: when they came."""
        shared = [code(5) for _ in range(functions)]
        for number, nbytes in enumerate(sizes):
            task = a_task(number, bytes(nbytes))
            task.code = shared[number % functions]
            self.backlog.tasks.append(task)
            if placed and nbytes > LARGE_NBYTES:
                self.place(task)
        return list(iter(lambda: self.backlog.next_batch(len(sizes)), None))


def numbers(batches: list[Batch]) -> list[list[int]]:
    return [[task.task_id for task in batch.tasks] for batch in batches]


LARGE = LARGE_NBYTES + 1


def test_large_payloads_share_a_row_by_where_they_lie() -> None:
    batches = Arena(room=9).rows(LARGE, LARGE + 1, LARGE)
    assert numbers(batches) == [[0, 1, 2]]
    assert split(batches[0].payload) == [(0, LARGE), (1000, LARGE + 1), (2000, LARGE)]
    assert batches[0].placed


def test_large_and_small_payloads_share_no_row() -> None:
    batches = Arena(room=9).rows(1, 1, LARGE, LARGE, 1, LARGE, placed=True)
    assert numbers(batches) == [[0, 1], [2, 3], [4], [5]]


def test_large_tasks_of_two_functions_share_no_row() -> None:
    assert numbers(Arena(room=9).rows(LARGE, LARGE, LARGE, functions=2)) == [[0], [1], [2]]


def test_a_large_payload_without_room_waits_for_it_by_itself() -> None:
    batches = Arena(room=2).rows(LARGE, LARGE, LARGE, LARGE, 1)
    assert numbers(batches) == [[0, 1], [2], [3], [4]]
    assert not batches[1].placed
    assert len(batches[1].payload) == LARGE


def test_a_row_is_not_for_any_number_of_large_bytes() -> None:
    nbytes = LARGE_BATCH_NBYTES // 3
    assert numbers(Arena(room=9).rows(*[nbytes] * 7)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert numbers(Arena(room=9).rows(*[LARGE_BATCH_NBYTES + 1] * 3)) == [[0], [1], [2]]


@pytest.mark.parametrize("nbytes", [100, LARGE])
def test_a_row_has_a_quarter_of_the_room_for_payloads(nbytes: int) -> None:
    rows = Arena(9, room_nbytes=12 * nbytes).rows(*[nbytes] * 7)
    assert numbers(rows) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_large_payload_that_is_alone_is_not_placed_for_nothing() -> None:
    arena = Arena(room=1)
    (batch,) = arena.rows(LARGE)
    assert (arena.room, len(batch.payload)) == (1, LARGE)


def test_nobody_waits_for_a_slow_one() -> None:
    """One slow task in very many says little: somebody else may have had the core."""
    assert rows(code(*[5] * 1000), 100, 100)[0] == 100
    assert rows(code(*[5] * 1000, 4000, *[5] * 100), 100, 100)[0] == pytest.approx(67, abs=5)
    assert rows(code(*[5, 5, 4000] * 100, *[5] * 50), 3, 3) == [1, 1, 1]
    assert rows(code(*[5, 5, 4000] * 100, *[5] * 500), 3, 3) == [3]


def test_what_is_cancelled_before_its_time_is_gone() -> None:
    backlog = a_backlog()
    tasks = [a_task(n) for n in range(3)]
    for task, delay_s in zip(tasks, (60, 0, 0), strict=True):
        backlog.put_off(task, delay_s)
    for task in tasks[:2]:
        task.over = True
    assert [task for task in backlog if not task.over] == tasks[2:]
    assert backlog.outstanding
    backlog.wake()
    assert [task for task in backlog.tasks if not task.over] == tasks[2:]
    assert backlog.outstanding
    tasks[2].over = True
    assert not backlog.outstanding
    assert backlog.next_batch(1) is None
    assert not backlog.outstanding


def test_what_has_come_to_its_time_waits_no_more() -> None:
    backlog = a_backlog()
    soon, late = (a_task(n) for n in range(2))
    backlog.put_off(late, 60)
    backlog.put_off(soon, 0)
    backlog.wake()
    assert list(backlog.tasks) == [soon]
    batch = backlog.next_batch(2)
    assert batch is not None
    assert batch.tasks == [soon]
    assert list(backlog) == [late]
    late.over = True
    assert not backlog.outstanding


def test_what_is_cancelled_shares_no_row() -> None:
    backlog, shared = a_backlog(), code(5)
    tasks = [a_task(n) for n in range(3)]
    for task in tasks:
        task.code = shared
    backlog.tasks.extend(tasks)
    tasks[1].over = True
    batches = list(iter(lambda: backlog.next_batch(3), None))
    assert numbers(batches) == [[0], [2]]


def test_an_array_shares_no_row() -> None:
    assert rows(code(5), 3, 50, pack_value(np.ones(1000))) == [1, 1, 1]


@pytest.mark.parametrize("tried", [False, True])
def test_what_has_other_options_or_was_tried_before_shares_no_row(tried: bool) -> None:
    backlog, shared = a_backlog(), code(5)
    for number in range(3):
        task = a_task(number)
        task.code = shared
        if number == 1 and tried:
            task.attempt = 1
        elif number == 1:
            task.context = PoolContext(2, Context(1, None, b""), bool, bool, Tally())
        backlog.tasks.append(task)
    assert numbers(list(iter(lambda: backlog.next_batch(3), None))) == [[0], [1], [2]]


def test_what_cannot_be_joined_waits_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    backlog, shared = a_backlog(), code(5)
    tasks = [a_task(n) for n in range(3)]
    for task in tasks:
        task.code = shared
    backlog.tasks.extend(tasks)
    with monkeypatch.context() as poor:
        poor.setattr("workpool.driver.backlog.join", lambda parts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            backlog.next_batch(3)
    assert numbers(list(iter(lambda: backlog.next_batch(3), None))) == [[0, 1, 2]]


def test_what_was_lost_and_is_cancelled_hides_no_others() -> None:
    backlog = a_backlog()
    lost, late, now = (a_task(n) for n in range(3))
    lost.over = True
    assert not backlog.outstanding
    backlog.put_off(late, 60)
    assert backlog.outstanding
    late.over = True
    assert not backlog.outstanding
    backlog.tasks.append(now)
    assert backlog.outstanding
    batch = backlog.next_batch(1)
    assert batch is not None
    assert batch.tasks == [now]
    assert not backlog.outstanding


def test_what_is_put_back_comes_first_and_in_its_order() -> None:
    backlog = a_backlog()
    tasks = [a_task(n) for n in range(3)]
    backlog.tasks.append(tasks[2])
    backlog.put_back(tasks[:2])
    assert list(backlog.tasks) == tasks
