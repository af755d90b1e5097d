"""Which rows are reserved, and what becomes of those whose step was cut off."""

from __future__ import annotations

import pytest
from small_repository import SmallRepository, tickets_of

from workpool import layout
from workpool.errors import ProtocolError
from workpool.layout import NO_BLOB, Descriptor
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Miss, Publisher, Row

pytestmark = pytest.mark.parametrize("method", TAKERS)


def test_rows_that_are_free_and_not_next_are_no_room(method: str) -> None:
    """Long tasks at the front hold back the tickets of rows that were withdrawn behind them."""
    small = SmallRepository(8, method)
    assert small.publisher.room(99) == 8
    assert all(small.publish(*range(8)))
    assert small.publisher.room(5) == 0
    for row in small.rows[4:]:
        assert row is not None
        assert small.publisher.step(row, Step.CANCEL)
    assert small.publisher.room(5) == 0
    for claimant in small.claimants:
        while small.run(claimant, limit=1):
            pass
    small.collect()
    assert small.publisher.room(5) == 5
    assert all(small.publish(*range(5)))


def test_a_few_rows_are_reserved_ahead(method: str) -> None:
    publisher = SmallRepository(64, method).publisher
    for _ in range(2):
        publisher.prepare()
        assert len(publisher._held) == 4
    assert publisher.reserve_ahead(5)
    assert len(publisher._held) == 5 + 4


def test_who_has_published_nothing_for_long_sees_how_far_others_are(method: str) -> None:
    small = SmallRepository(4, method)
    late = Publisher(small.window, small.geometry, 2)
    for task in range(9):
        assert all(small.publish(task))
        assert small.run(small.claimants[0]) == [task]
        assert small.collect() == 1
    assert late.room(5) == 4


def test_rows_of_two_laps_are_reserved_each_for_its_own(method: str) -> None:
    """One in the next lap is busy: the others are looked for once more, from the beginning."""
    small = SmallRepository(4, method, workers=1)
    (claimant,) = small.claimants
    assert all(small.publish(0, 1, 2))
    claims = []
    while not isinstance(offers := claimant.take(4), Miss):
        claims += [claimant.claim(offer) for offer in offers]
    for claim in claims[::2]:  # the one between them lasts
        assert isinstance(claim, Claim)
        assert claimant.complete(claim, bytearray(layout.OUTCOME_NBYTES))[0]
    small.collect()
    small.publisher._refresh()  # so that it knows how far it may go
    assert all(small.publish(3, 4, 5))
    assert tickets_of(small) == [3, 4, 6]
    assert [task for _ in range(6) for task in small.run(claimant)] == [3, 4, 5]


def test_no_row_is_reserved_a_lap_ahead_of_what_waits(method: str) -> None:
    """Not even the very one that waits, should it be withdrawn."""
    small = SmallRepository(4, method)
    assert all(small.publish(*range(4)))
    assert small.rows[0] is not None
    assert small.publisher.step(small.rows[0], Step.CANCEL)
    assert small.publisher.room(1) == 0
    for claimant in small.claimants:
        while not isinstance(claimant.take(1), Miss):
            pass
    assert small.publisher.room(1) == 1


def test_no_ticket_is_published_twice_after_it_was_withdrawn(method: str) -> None:
    """By another publisher, who has not seen any of that."""
    small = SmallRepository(4, method)
    other = Publisher(small.window, small.geometry, 2)
    small.publish(1)
    (row,) = small.rows
    assert row is not None
    assert small.publisher.step(row, Step.CANCEL)
    small.publisher = other
    small.publish(2)
    assert tickets_of(small) == [1]


@pytest.mark.parametrize("held", [1, 2])
@pytest.mark.parametrize("alone", [False, True])
def test_a_tail_that_others_have_pushed_stays_where_it_is(
    alone: bool, held: int, method: str
) -> None:
    """What we hold behind it is published; nothing more is reserved there."""
    small = SmallRepository(8, method)
    record = bytes(layout.DESCRIPTOR_NBYTES)
    assert small.publisher.room(held) == held
    small.window.compare_and_swap(layout.TAIL, 0, 4)  # over rows that were not free for it
    wanted = [*range(held), *range(4, 7 - held)]
    for n, ticket in enumerate(wanted, 1):
        if alone:
            small.rows = [small.publisher.publish_one(record, 0)]
        else:
            small.rows = small.publisher.publish([record])
        assert tickets_of(small) == [ticket]
        assert small.window.load(layout.TAIL) == 4 + max(0, n - held)
        assert small.publisher.room(2) == 2


@pytest.mark.parametrize("alone", [False, True])
def test_a_tail_that_others_have_pushed_less_far_is_pushed_on(alone: bool, method: str) -> None:
    small = SmallRepository(8, method)
    first, second = small.publisher, Publisher(small.window, small.geometry, 2)
    record = bytes(layout.DESCRIPTOR_NBYTES)
    assert first.room(1) == second.room(1) == 1
    assert all(small.publish(1))
    small.rows = [second.publish_one(record, 0)] if alone else second.publish([record])
    assert tickets_of(small) == [1]
    assert small.window.load(layout.TAIL) == 2


@pytest.mark.parametrize("alone", [False, True])
def test_who_was_taken_for_dead_lets_go_of_what_it_had_reserved(alone: bool, method: str) -> None:
    small = SmallRepository(8, method)
    late, other = small.publisher, Publisher(small.window, small.geometry, 2)
    record = bytes(layout.DESCRIPTOR_NBYTES)
    assert late.room(2) == 2
    held = late._held[0]
    assert other.step(Row(held.number, held.word), Step.ABANDON)
    assert ([late.publish_one(record, 0)] if alone else late.publish([record])) == [None]
    assert layout.state_of(late.load(held.number)) == State.FREE
    assert all(small.publish(1)), "the other row is its own"
    assert tickets_of(small) == [1]


def test_a_row_that_has_changed_is_not_retired(method: str) -> None:
    small = SmallRepository(8, method)
    assert all(small.publish(1))
    small.run(small.claimants[0])
    words = small.publisher.look().tolist()
    assert small.collect() == 1
    with pytest.raises(ProtocolError, match=r"row 0 was DONE.* and is now FREE.* may retire it"):
        small.publisher.retire([Row(0, words[0])])


def test_what_is_published_again_says_how_often_it_was_tried(method: str) -> None:
    small = SmallRepository(4, method)
    record = layout.write_descriptor(Descriptor(1, 0, *NO_BLOB, *NO_BLOB, layout.INLINE, 0))
    for row in (small.publisher.publish_one(record, 3), *small.publisher.publish([record], 3)):
        assert row is not None
        assert small.publisher.load(row.number) == row.word
        assert layout.attempt_of(row.word) == 3
        assert small.publisher.step(row, Step.CANCEL)


def test_only_what_is_lost_is_recovered(method: str) -> None:
    small = SmallRepository(8, method)
    publisher, claimant = small.publisher, small.claimants[0]
    assert all(small.publish(1, 2))
    assert small.run(claimant, 1) == [1]
    assert small.run(claimant, 1) == [2]
    assert publisher.room(1) == 1
    assert publisher.room(2) == 2
    held = list(publisher._held)
    assert len(held) == 2
    known, lost = (row.number for row in small.rows if row is not None)
    publisher.recover({known})
    assert layout.state_of(publisher.load(known)) == State.DONE
    assert layout.state_of(publisher.load(lost)) == State.FREE
    assert publisher._held == held


def test_a_row_that_was_lost_behind_the_tail_is_free_again(method: str) -> None:
    small = SmallRepository(8, method)
    assert small.publisher.room(2) == 2
    lost = small.publisher._held.pop(0)
    assert small.publish(1) == [True]
    small.publisher.recover(())
    assert layout.state_of(small.publisher.load(lost.number)) == State.FREE
    assert not small.publisher._held


def test_a_tail_that_was_left_behind_is_behind_no_more(method: str) -> None:
    """Its step was cut off when the rows were published, and they have served their tickets."""
    small = SmallRepository(2, method, workers=1)
    assert all(small.publish(1, 2))
    while small.run(small.claimants[0]):
        pass
    small.collect()
    small.window.compare_and_swap(layout.TAIL, 2, 0)
    small.publisher = Publisher(small.window, small.geometry, 0)
    assert small.publish(3) == [False]
    small.publisher.recover(())
    assert small.publish(3) == [True]
    assert tickets_of(small) == [2]
    assert small.run(small.claimants[0]) == [3]


def test_a_row_that_another_holds_is_not_lost(method: str) -> None:
    small = SmallRepository(8, method)
    other = Publisher(small.window, small.geometry, 2)
    assert other.room(1) == 1
    small.publisher.recover(())
    assert not small.publisher._held
    assert other.publish([bytes(layout.DESCRIPTOR_NBYTES)]) != [None]
