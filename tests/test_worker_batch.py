"""The tasks of one row, run in strides, and what the heart gives back meanwhile.

The interleavings of the steps in the window are explored by ``test_model_batch``; here the two
threads of a worker are the subject: whatever the heart does while a task runs, each task runs once,
here or elsewhere, and its outcome is where the word says that it is.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from claimed_row import CALL, TASKS, ClaimedRow

from workpool import accumulator, layout, protocol
from workpool.context import LARGE_NBYTES
from workpool.contributions import contribute
from workpool.extents import LINE_NBYTES, Extent, Region, in_lines
from workpool.layout import NOTHING, STRIDE
from workpool.members.leases import Heart
from workpool.protocol import State, Step
from workpool.repository import Row
from workpool.serializer import APART, CONTRIBUTES, Kind, Packed
from workpool.worker import batch
from workpool.worker.attempts import Attempts, Runners
from workpool.worker.batch import Outcomes
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted


@pytest.mark.parametrize("room", [1 << 16, 32 * TASKS])
def test_strides_cost_a_step_for_many_tasks(room: int) -> None:
    row = ClaimedRow(room)
    words = []

    def during(n: int) -> None:
        words.append(row.word)
        assert n + 1 + len(row.runner.ahead) == min(layout.started_of(row.word), TASKS)

    assert row.run(during) == row.ran == list(range(TASKS))
    words = list(dict.fromkeys(words))
    ended = [layout.ended_of(word) for word in words]
    assert ended == [0, 1, 1 + STRIDE, 2 * (1 + STRIDE), 4 * (1 + STRIDE)], "as many as have ended"
    assert [layout.started_of(word) for word in words] == [*ended[1:], 8 * (1 + STRIDE)]


@pytest.mark.parametrize(
    ("short_us", "steps_us", "first"),
    [
        (99, [1], [1, 2, 3, 4]),
        (101, [1], [1, 1 + STRIDE, 2 * (1 + STRIDE)]),
        (0, [24], [1, 2, 3, 4]),
        (0, [26], [1, 2, 2 + STRIDE]),  # known after the first step
        (0, [1, 100], [1, 2, 3, 4]),  # something holds up all but one
    ],
)
def test_tasks_are_short_for_their_runner_or_where_to_start_them_takes_longer(
    short_us: int, steps_us: list[int], first: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between hosts a step takes two round trips."""

    def step() -> None:
        nonlocal now_us
        now_us += next(steps)
        flush()

    def seen(n: int) -> None:
        nonlocal now_us
        now_us += 100
        started.append(layout.started_of(row.word))

    row, started, now_us = ClaimedRow(), list[int](), 0
    row.runner.short_ns = 1000 * short_us
    flush, steps = row.window.flush, itertools.chain(steps_us, itertools.repeat(steps_us[-1]))
    monkeypatch.setattr(row.window, "flush", step)
    monkeypatch.setattr(batch, "monotonic_ns", lambda: 1000 * now_us)
    assert row.run(seen) == list(range(TASKS))
    assert list(dict.fromkeys(started))[: len(first)] == first


@pytest.mark.parametrize("lasting", range(TASKS))
def test_what_waits_behind_a_task_that_lasts_is_given_back(lasting: int) -> None:
    row = ClaimedRow()

    def during(n: int) -> None:
        if n == lasting:
            strided = layout.is_stride(row.word)
            row.batch.watch()
            assert layout.is_stride(row.word) == strided, "given back at the first look"
            row.batch.watch()
            assert not layout.is_stride(row.word)
            assert layout.is_recalled(row.word) == strided
            if strided:
                assert row.said() == list(range(n))
                assert layout.started_of(row.word) == n + 1

    ended = row.run(during)
    assert ended == row.ran == list(range(len(ended)))
    assert len(ended) == (TASKS if lasting == 0 else lasting + 1)


def test_what_was_said_is_put_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The submitter may be reading it: MPI leaves open what it finds where a put is under way."""
    row, puts = ClaimedRow(), list[tuple[int, int]]()
    put = row.window.put

    def noted(disp: int, buffer: bytes) -> None:
        puts.append((disp, len(buffer)))
        put(disp, buffer)

    monkeypatch.setattr(row.window, "put", noted)
    assert row.run(lambda n: row.batch.give_back() if n == 4 else None) == [0, 1, 2, 3, 4]
    place = row.batch.outcomes.place
    outcomes = sorted(where for where in puts if place.offset <= where[0] < place.end)
    assert sum(nbytes for _, nbytes in outcomes) == row.batch.outcomes.nbytes
    neighbours = itertools.pairwise(outcomes)
    assert all(disp + nbytes <= after for (disp, nbytes), (after, _) in neighbours)


def test_what_has_begun_elsewhere_is_not_given_back() -> None:
    """A child process may be ahead of its worker, which has not seen what it has done."""
    row = ClaimedRow()
    row.runner.retracts = False

    def during(n: int) -> None:
        if n == 3:
            row.batch.give_back()
            assert layout.is_stride(row.word)

    assert row.run(during) == row.ran == list(range(TASKS))


def test_the_submitter_recalls_and_then_is_given_back_more() -> None:
    row = ClaimedRow()
    seen = row.word  # long ago

    def during(n: int) -> None:
        if n == 3:
            word = row.publisher.recall(Row(0, seen))
            assert word == row.word
            assert layout.started_of(word) == 1 + STRIDE
            assert row.batch.holds()
            row.batch.give_back()
            word = row.publisher.recall(Row(0, row.word))
            assert word is not None
            assert layout.started_of(word) == 4
            assert row.said() == [0, 1, 2]

    assert row.run(during) == row.ran == [0, 1, 2, 3]


@pytest.mark.parametrize("gives_back", [False, True])
def test_an_attempt_that_was_taken_back_is_given_up(gives_back: bool) -> None:
    row = ClaimedRow()

    def during(n: int) -> None:
        if n == 3:
            assert row.publisher.step(Row(0, row.word), Step.RECLAIM)
            if gives_back:
                row.batch.give_back()
            assert layout.state_of(row.word) == State.EVICTED, "its worker lets go, nobody else"

    with pytest.raises(Evicted):
        row.run(during)
    assert layout.state_of(row.word) == State.FREE
    assert row.ran == ([0, 1, 2, 3] if gives_back else list(range(1 + STRIDE)))


def attempts_of(row: ClaimedRow) -> tuple[Attempts, Region]:
    """Return what runs the tasks of a row, and its part of the arena."""
    exchange = Exchange(row.claimant)
    runners, heart = Runners(1, "here"), Heart(lambda rest_s: None)
    return Attempts(runners, heart, row.claimant, exchange), exchange.region


@pytest.mark.parametrize("large_nbytes", [0, 1000])
def test_an_attempt_that_was_taken_back_keeps_no_room(large_nbytes: int) -> None:
    row = ClaimedRow()
    attempts, region = attempts_of(row)
    attempts._large_nbytes = large_nbytes
    free_nbytes: list[int] = []

    def during(n: int) -> None:
        free_nbytes.append(region.free_nbytes)
        if n == 3:
            assert row.publisher.step(Row(0, row.word), Step.RECLAIM)

    row.runner.during = during
    with pytest.raises(Evicted):
        attempts._run_batch(row.claim, row.runner, CALL, [bytes([n]) for n in range(TASKS)])
    assert region.nbytes - free_nbytes[0] > TASKS * large_nbytes
    assert free_nbytes[0] < region.free_nbytes == region.nbytes


def test_what_was_put_is_complete_before_its_room_is_used_again() -> None:
    """MPI does not order two puts to one place."""
    row = ClaimedRow()
    attempts, region = attempts_of(row)
    attempts._large_nbytes = LARGE_NBYTES + 1

    def call(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        if payload[0] == 3:  # as in a child process, whose worker looks whether it is still ours
            assert row.publisher.step(Row(0, row.word), Step.RECLAIM)
            assert not row.claimant.holds(row.claim)
            raise Evicted
        return Kind.VALUE, bytes(LARGE_NBYTES + 1)

    row.runner.call = call  # type: ignore[method-assign]
    with pytest.raises(Evicted):
        attempts._run_batch(row.claim, row.runner, CALL, [bytes([n]) for n in range(TASKS)])
    extent = region.reserve(region.nbytes)
    assert extent is not None
    row.window.put(extent.offset, bytes(extent.nbytes))  # which refuses what overlaps


def room_for(tasks: int) -> int:
    """Return room for the outcomes of so many tasks."""
    return tasks * len(layout.write_task_outcome(0, 0, bytes(1)))


@pytest.mark.parametrize("tasks", [1, 2, 8, 9, 10, 20])
def test_a_row_ends_where_its_room_does(tasks: int) -> None:
    row = ClaimedRow(room_for(tasks))
    assert row.run() == row.ran == list(range(tasks))
    assert not row.batch.outcomes.overflow


@pytest.mark.parametrize("retracts", [True, False])
@pytest.mark.parametrize("room", [0, 24, 100, 200])
def test_no_room_for_the_outcomes(room: int, retracts: bool) -> None:
    """What has no room goes elsewhere, all of it, and the heart leaves that alone."""
    row = ClaimedRow(room)
    row.runner.retracts = retracts
    ended = row.run(lambda n: row.batch.give_back() if n == 4 else None)
    assert ended == row.ran == list(range(len(ended)))
    assert 1 <= len(ended) <= 1 + room // layout.WORD_NBYTES + (0 if retracts else STRIDE)
    assert protocol.advance(row.claim.word, protocol.Step.COMPLETE)


def test_what_has_no_room_is_said_later_if_something_lasts() -> None:
    """What runs in a child process may have begun before its worker knew that room is short."""
    row = ClaimedRow(room_for(1 + STRIDE))

    def during(n: int) -> None:
        row.runner.more = bytes(1000 if n else 0)
        row.runner.retracts = n == 5  # until then the next one has begun each time
        if n == 5:
            row.batch.give_back()
            assert layout.is_recalled(row.word)
            assert layout.started_of(row.word) == 6
            place = layout.read_place(row.publisher.read_record(0))
            content = row.window.copy(*place)
            said = layout.read_task_outcomes(content, layout.ended_of(row.word))
            assert [kind for kind, _, _ in said] == [0] + [CONTRIBUTES] * 4, "passed over"

    assert row.run(during) == row.ran == list(range(6))


def test_a_task_may_change_what_the_one_before_it_has_returned() -> None:
    """Its result is put and not complete: the window in memory refuses a buffer that changes."""
    row, content = ClaimedRow(1 << 18), bytearray(2 * LARGE_NBYTES)
    row.batch.outcomes = Outcomes(row.batch.outcomes.extent, 1 << 17)
    call = row.runner.call

    def large(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Packed]:
        call(pool, kind, code_id, payload)
        content[:] = payload * len(content)
        return Kind.VALUE, Packed([memoryview(content)])

    row.runner.call = large  # type: ignore[method-assign, assignment]
    row.batch.run()
    kinds = [kind for kind, *_ in layout.read_task_outcomes(b"".join(row.batch.outcomes.entries))]
    apart = [n for n, kind in enumerate(kinds) if kind & APART]
    assert apart == [0, 1, 2, 3]
    region = row.batch.outcomes.place.end
    row.window.flush()
    found = [row.window.copy(region + n * 2 * LARGE_NBYTES, 1)[0] for n in apart]
    assert found == apart


class TooLarge(Packed):
    """A result that cannot be copied."""

    def tobytes(self) -> bytes:
        raise MemoryError("no room for a copy")


def test_a_result_that_cannot_be_copied_fails_its_task() -> None:
    row = ClaimedRow(tasks=3)
    call = row.runner.call

    def call_one(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        called = call(pool, kind, code_id, payload)
        return (Kind.VALUE, TooLarge(b"", [])) if payload[0] == 1 else called

    row.runner.call = call_one  # type: ignore[method-assign]
    row.batch.run()
    assert [(kind, bytes(value)) for kind, _, value in row.outcomes()] == [
        (Kind.VALUE, b"\0"),
        (Kind.EXCEPTION, b"no room for a copy"),
        (Kind.VALUE, b"\2"),
    ]


def run_large(row: ClaimedRow, sizes: list[int]) -> list[tuple[int, bytes]]:
    """Run tasks whose results are so large; return kind and result of each that has ended."""

    def call(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        n = payload[0]
        row.ran.append(n)
        content = bytes([n]) * sizes[n]
        return Kind.VALUE, content if n % 2 else Packed([content[:9], content[9:]])

    row.runner.call = call  # type: ignore[method-assign]
    row.batch.run()
    found = []
    for kind, _, content in row.outcomes():
        if kind & APART:
            extent = layout.read_extent(content)
            whole, place = row.batch.outcomes.extent, row.batch.outcomes.place
            assert place.end <= extent.offset <= extent.end <= whole.end
            content = row.window.copy(*extent)
        found.append((kind, bytes(content)))
    return found


def test_large_outcomes_lie_apart() -> None:
    sizes = [LARGE_NBYTES + 10, LARGE_NBYTES + 1, 10, LARGE_NBYTES, LARGE_NBYTES + 100]
    row = ClaimedRow(tasks=len(sizes))
    large_nbytes = 4 * in_lines(LARGE_NBYTES + 200)
    extent = Extent(row.geometry.region(1).offset, 2 * LARGE_NBYTES + large_nbytes)
    outcomes = row.batch.outcomes = Outcomes(extent, large_nbytes)
    found = run_large(row, sizes)
    assert [bool(kind & APART) for kind, _ in found] == [True, True, False, False, True]
    assert [content[-1] for _, content in found] == list(range(5))
    assert not outcomes.overflow
    assert outcomes.small_nbytes == outcomes.nbytes
    assert outcomes.large_nbytes >= sizes[0] + sizes[1] + sizes[4]
    assert found[4][1].endswith(bytes([4]) * sizes[4])


def test_a_large_outcome_without_room_goes_where_all_the_others_go() -> None:
    """And those that lie apart stay there."""
    row = ClaimedRow(tasks=5)
    large_nbytes = in_lines(LARGE_NBYTES + 200)
    extent = Extent(row.geometry.region(1).offset, LARGE_NBYTES + large_nbytes)
    outcomes = row.batch.outcomes = Outcomes(extent, large_nbytes)
    found = run_large(row, [LARGE_NBYTES + 1] * 5)
    assert [bool(kind & APART) for kind, _ in found] == [True, False]
    assert [content[-1] for _, content in found] == [0, 1]
    assert outcomes.overflow
    assert outcomes.small_nbytes < 200


def test_the_next_row_has_room_for_outcomes_as_large_as_the_last_ones() -> None:
    row = ClaimedRow()
    attempts, region = attempts_of(row)
    attempts._large_nbytes = LARGE_NBYTES + 1
    outcomes = attempts._room(3)
    found = [outcomes.reserve(LARGE_NBYTES + 1) for _ in range(4)]
    assert [extent is not None for extent in found] == [True] * 3 + [False]
    while (extent := outcomes.reserve(1)) is not None:
        found.append(extent)
    assert all(extent.end <= outcomes.extent.end for extent in found if extent is not None)
    assert outcomes.place.nbytes + 3 * in_lines(LARGE_NBYTES + 1) == region.used_nbytes
    region.release(outcomes.extent)
    share = attempts._exchange.share_nbytes
    for attempts._outcome_nbytes in LINE_NBYTES, share // 4:
        outcomes = attempts._room(100)
        assert region.used_nbytes <= share < region.used_nbytes + LINE_NBYTES
        assert outcomes.place.nbytes > 0
        region.release(outcomes.extent)
    attempts._outcome_nbytes = share
    assert attempts._room(1).extent is NOTHING


def test_what_a_task_adds_does_not_count_without_its_result() -> None:
    row = ClaimedRow(tasks=3)
    contributions = row.runner.contributions
    spec = accumulator.spec_of((), "int64", "sum")._replace(offset=row.geometry.nbytes - 8)

    def call(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        contributions.add(spec, np.array(10 ** payload[0]))
        return Kind.VALUE, TooLarge(b"", []) if payload[0] == 1 else payload

    row.runner.call = call  # type: ignore[method-assign]
    row.batch.run()
    kinds = [kind for kind, _, _ in row.outcomes()]
    assert kinds == [Kind.VALUE | CONTRIBUTES, Kind.EXCEPTION, Kind.VALUE | CONTRIBUTES]
    contribute(contributions.total(), row.window)
    assert row.window.memory.word(spec.offset) == 101
