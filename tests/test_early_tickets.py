"""Tickets that are there before their rows are READY: MPI may show both in any order."""

from __future__ import annotations

import pytest
from small_repository import SmallRepository

from workpool import layout
from workpool.layout import NO_BLOB, Descriptor
from workpool.protocol import Step
from workpool.repository import TAKERS, Claim, Miss, Offer, Publisher, Row
from workpool.worker import worker
from workpool.worker.worker import Worker


@pytest.fixture(params=TAKERS)
def small(request: pytest.FixtureRequest) -> SmallRepository:
    """A repository of which four rows are reserved, and TAIL is past them."""
    small = SmallRepository(8, str(request.param), workers=1)
    assert small.publisher.reserve_ahead(4)
    small.window.compare_and_swap(layout.TAIL, 0, 4)
    return small


def test_a_ticket_is_kept_until_its_row_is_ready(small: SmallRepository) -> None:
    (claimant,) = small.claimants
    offers = claimant.take(1)
    assert not isinstance(offers, Miss)
    assert claimant.claim(offers[0]) is Miss.CONTENDED
    for _ in range(2):
        assert claimant.quiet()
        assert claimant.seize(1) is Miss.EMPTY
        assert claimant.take(1) is Miss.EMPTY
    small.publish(1, 2, 3, 4)
    assert not claimant.quiet()
    assert claimant.seize(1) is Miss.EMPTY, "it has the ticket"
    assert [task for _ in range(4) for task in small.run(claimant, limit=1)] == [1, 2, 3, 4]
    assert claimant.take(1) is Miss.EMPTY


def test_tickets_are_kept_until_the_first_row_is_ready(small: SmallRepository) -> None:
    (claimant,) = small.claimants
    assert small.run(claimant) == []
    assert claimant.take(4) is Miss.EMPTY
    small.publish(1)
    assert small.run(claimant) == [1]
    assert claimant.take(4) is Miss.EMPTY
    small.publish(2, 3, 4)
    assert [task for _ in range(3) for task in small.run(claimant)] == [2, 3, 4]
    small.publish(5)
    assert small.run(claimant) == [5]


def test_a_ticket_is_dropped_when_its_row_is_abandoned(small: SmallRepository) -> None:
    (claimant,) = small.claimants
    assert small.run(claimant) == []
    reserved = small.publisher._held.pop(0)
    assert small.publisher.step(Row(reserved.number, reserved.word), Step.ABANDON)
    small.publish(2, 3, 4)
    assert [task for _ in range(4) for task in small.run(claimant)] == [2, 3, 4]


def test_a_sweep_does_not_overtake(small: SmallRepository) -> None:
    (claimant,) = small.claimants
    first, second, third, _ = small.publisher._held
    assert small.window.compare_and_swap(third.place, third.word, third.ready.word) == third.word
    assert claimant.sweep(4) is Miss.EMPTY
    assert small.window.compare_and_swap(first.place, first.word, first.ready.word) == first.word
    assert numbers(claimant.sweep(4)) == [first.number]
    other = Publisher(small.window, small.geometry, 1)
    (row,) = other.publish([bytes(layout.DESCRIPTOR_NBYTES)])
    assert row is not None
    assert numbers(claimant.sweep(4)) == [first.number, row.number]
    small.window.compare_and_swap(second.place, second.word, second.ready.word)
    ready = [first.number, second.number, third.number, row.number]
    offers = claimant.sweep(4)
    assert numbers(offers) == ready
    assert all(isinstance(claimant.claim(offer), Claim) for offer in offers)  # type: ignore[union-attr]


def test_a_worker_overtakes_nothing_however_it_looks(
    small: SmallRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SOON_S", 0.0)
    monkeypatch.setattr(worker, "IDLE_SWEEP_S", 0.0)
    served = Worker(1, 1, "host")
    taker = type(small.claimants[0]._taker)
    method = next(name for name in TAKERS if TAKERS[name] is taker)
    served.attach(1, small.window, small.geometry, method, lease_s=10)
    (service,) = served._services.values()
    started = []

    def attempt(claim: Claim, then: Offer | None) -> Miss:
        started.append(claim.descriptor[0].task_id)
        return Miss.EMPTY

    monkeypatch.setattr(service, "_attempt", attempt)
    for task, row in reversed(list(enumerate(small.publisher._held))):
        descriptor = Descriptor(task, 0, *NO_BLOB, *NO_BLOB, layout.INLINE, 0)
        small.window.put(row.descriptor, layout.write_descriptor(descriptor))
        small.window.flush()
        assert not started
        small.window.compare_and_swap(row.place, row.word, row.ready.word)
        for _ in range(10):
            service.work()
    assert started == [0, 1, 2, 3]


def numbers(offers: object) -> list[int]:
    assert isinstance(offers, list)
    return [offer.row.number for offer in offers]
