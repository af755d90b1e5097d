"""What a driver learns of how long tasks take, and what it publishes and recalls by that."""

from __future__ import annotations

import pytest
from driven import Table

from workpool import layout
from workpool.context import TaskKind
from workpool.driver import published as published_module
from workpool.driver.collector import RETIRED
from workpool.driver.dispatcher import TRIAL_ROWS
from workpool.extents import Extent
from workpool.members.leases import WATCH_S
from workpool.repository import Claim
from workpool.serializer import Code, Kind
from workpool.tasks import SharedCode, Task


def test_how_long_tasks_take_is_known_where_nothing_waits() -> None:
    table = Table(rows=64)
    driver = table.driver
    for number in range(3 * RETIRED):
        task = Task(number, TaskKind.CALL, abs, table.context, b"", None)
        driver.submit(task, Code(1, b"code"))
        while not driver._rows:
            driver.progress()
        table.end_one()
        driver.progress()
        assert len(driver._collector._uncounted) < RETIRED + 2
    assert task.code is not None
    assert task.code.mean_s is not None


@pytest.mark.parametrize("workers", [1, 3])
def test_few_rows_are_published_until_it_is_known_how_many_tasks_share_one(workers: int) -> None:
    """All would stand there one by one, and each row costs more than a short task."""
    table = Table(rows=256, shared=False)
    driver = table.driver
    driver._dispatcher._trial_rows *= workers
    shared, other = (driver._store.code(Code(number, b"code")) for number in (1, 2))
    tasks = [Task(number, TaskKind.CALL, abs, table.context, b"", None) for number in range(200)]
    for task in tasks:
        task.code = shared
    driver._backlog.tasks.extend(tasks)
    driver.progress()
    record = layout.write_outcome(Kind.VALUE, 10**6, layout.INLINE, 0)
    ended = 0
    while not shared.known:
        assert len(driver._rows) == workers * TRIAL_ROWS, f"{ended} have ended"
        table.end_one(record.ljust(layout.OUTCOME_NBYTES, b"\0"))
        driver.progress()
        driver.progress()
        ended += 1
    assert ended == SharedCode.ENOUGH + 1
    assert not driver._backlog.tasks
    assert len(driver._rows) == len(tasks) - ended
    tasks = [Task(number, TaskKind.CALL, abs, table.context, b"", None) for number in range(40)]
    for task in tasks:
        task.code = shared if task.task_id < 10 else other
    driver._backlog.tasks.extend(tasks)
    driver.progress()
    assert list(driver._backlog.tasks) == tasks[10:]
    assert not driver._dispatcher._full, "it is not room that they lack"
    for task in tasks[10:15]:
        task.over = True
    driver.progress()
    assert list(driver._backlog.tasks) == tasks[15:]
    for task in tasks[15:]:  # functions of a few tasks each would wait one after another, in vain
        task.code = driver._store.code(Code(2 + task.task_id // 10, b"code"))
    driver.progress()
    assert not driver._backlog.tasks
    driver._backlog.tasks.append(tasks[10])
    driver.progress()
    assert not driver._backlog.tasks


def test_all_rows_are_published_where_they_cost_little() -> None:
    """A driver that is kept from looking for long leaves the workers with enough to do."""
    table = Table(rows=256)
    driver = table.driver
    for number in range(200):
        task = Task(number, TaskKind.CALL, abs, table.context, b"", None)
        task.code = driver._store.code(Code(1, b"code"))
        driver._backlog.tasks.append(task)
    driver.progress()
    assert len(driver._rows) == 200


def a_batch(owner: int) -> tuple[Table, SharedCode, Claim, Extent]:
    """Return a batch that is claimed, its function, of which one knows, and room for an outcome."""
    table = Table(rows=16)
    shared = table.driver._store.code(Code(1, b"code"))
    shared.measured(owner, [1000] * 100)
    for number in range(5):
        task = Task(number, TaskKind.CALL, abs, table.context, b"", None)
        task.code = shared
        table.driver._backlog.tasks.append(task)
    table.driver.progress()
    entry = layout.write_task_outcome(Kind.VALUE, 10**9, b"")
    extent = Extent(table.geometry.region(1).offset, len(entry))
    table.window.put(extent.offset, entry)
    table.window.flush()
    return table, shared, table.claim(), extent


def test_what_a_worker_takes_to_restore_a_function_does_not_count_though_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, shared, claim, extent = a_batch(owner=2)
    driver, now_s = table.driver, 0.0
    driver._backlog.batch_s = 2.0
    monkeypatch.setattr(published_module, "monotonic", lambda: now_s)
    for now_s in (5.0, 24.9, 25.1):
        driver.progress()
        word = table.window.load(table.geometry.word(claim.number))
        assert layout.is_recalled(word) is (now_s > 25), "ten times as much as a row's work"
    record = layout.write_outcome(Kind.BATCH, 10**9, *extent)
    table.worker.complete(claim, record.ljust(layout.OUTCOME_NBYTES, b"\0"))
    driver.progress()
    driver._collector.retire()
    assert shared.mean_s == pytest.approx(1e-6)


@pytest.mark.parametrize("later_s", [0.0, 0.1])
def test_a_task_of_which_its_worker_has_seen_that_it_lasts_counts_before_it_ends(
    later_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, shared, claim, extent = a_batch(owner=1)
    driver, now_s = table.driver, 0.0
    driver._backlog.batch_s = 1.0  # that of others, whose steps take long
    monkeypatch.setattr(published_module, "monotonic", lambda: now_s)
    driver.progress()
    table.worker.announce(claim, extent)
    assert table.worker.next(claim, extent.end, b"", 1, True) is True
    driver.progress()
    now_s = later_s
    assert table.worker.give_back(claim, extent.end, b"", 0)
    driver._collector.look_after_rows(0.0)
    assert shared.mean_s == pytest.approx(0.95e-6 + 0.05 * max(WATCH_S, later_s), rel=0.1)


def test_a_stride_that_is_late_is_recalled_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often one looks before its worker gives something back."""
    table, shared, claim, extent = a_batch(owner=1)
    driver, now_s = table.driver, 1.0
    monkeypatch.setattr(published_module, "monotonic", lambda: now_s)
    driver.progress()
    table.worker.announce(claim, extent)
    assert table.worker.next(claim, extent.end, b"", 1, True) is True
    now_s, means_s = 11.0, [shared.mean_s]
    for _ in range(3):
        driver._collector.look_after_rows(0.0)
        means_s.append(shared.mean_s)
    assert layout.is_recalled(table.window.load(table.geometry.word(claim.number)))
    assert means_s[1] == means_s[-1] == pytest.approx(0.05 * 10.0, rel=0.1)


def test_what_a_batch_takes_beside_its_tasks_is_known() -> None:
    table = Table(rows=16)
    driver = table.driver
    shared = driver._store.code(Code(1, b"code"))
    shared.measured(1, [1000] * 100)
    entries = b"".join(layout.write_task_outcome(Kind.VALUE, 1000, b"") for _ in range(5))
    extent = Extent(table.geometry.region(1).offset, len(entries))
    table.window.put(extent.offset, entries)
    table.window.flush()
    outcomes = [(Kind.BATCH, 1_005_000, extent), (Kind.BROKEN, 10, (layout.INLINE, 0))]
    outcomes.append((Kind.BATCH, 10**9, extent))
    for first, (kind, elapsed_ns, place) in enumerate(outcomes):
        tasks = [
            Task(5 * first + n, TaskKind.CALL, abs, table.context, b"", None) for n in range(5)
        ]
        for task in tasks:
            task.code = shared
        driver._backlog.tasks.extend(tasks)
        driver.progress()
        assert len(driver._rows) == 1
        tasks[4].over = first == 2  # it was killed: how long it took is not known
        record = layout.write_outcome(kind, elapsed_ns, *place)
        table.end_one(record.ljust(layout.OUTCOME_NBYTES, b"\0"))
        driver.progress()
        assert all(task.over for task in tasks)
        # The second says nothing of that: the same has become of all.  Nor does the third.
        assert driver._backlog._steps_s == pytest.approx(0.1 * 1e-3)


def test_a_look_that_shows_the_half_of_a_step_is_not_believed() -> None:
    table, _, claim, extent = a_batch(owner=1)
    driver, words, number = table.driver, table.driver._collector._words, claim.number
    driver.progress()
    table.worker.announce(claim, Extent(extent.offset, 2 * extent.nbytes))
    assert table.worker.next(claim, extent.end, b"", 1, True) is True
    before = claim.word
    entry = layout.write_task_outcome(Kind.VALUE, 10**9, b"")
    assert table.worker.give_back(claim, extent.end, entry, 1)
    words[number] = claim.word & -1 << 24 | before & (1 << 24) - 1  # MPI may load it by bytes
    assert layout.is_recalled(words[number])
    assert layout.ended_of(words[number]) == 3, "though two have"
    batch = driver._rows[number]
    driver._published.recall_late(words)
    assert [task.batch for task in batch.tasks] == [batch] * 3 + [None] * (len(batch.tasks) - 3)
