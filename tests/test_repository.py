"""Both halves of the repository, and the worker's queue, in plain memory and one thread."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from workpool import layout
from workpool.layout import NO_BLOB, Descriptor, Extent, Geometry
from workpool.protocol import State
from workpool.repository import TAKERS, Claim, Claimant, Miss, Offer, Publisher, Row
from workpool.testing import MemoryWindow
from workpool.worker import worker
from workpool.worker.worker import Worker


class Scene:
    """One publisher and some claimants on a window in plain memory."""

    def __init__(self, rows: int, method: str, workers: int = 2) -> None:
        self.geometry = Geometry(rows, workers + 1, 1 << 20)
        self.window = MemoryWindow(self.geometry.nbytes)
        self.publisher = Publisher(self.window, self.geometry, 0)
        self.claimants = [
            Claimant(self.window, self.geometry, member, TAKERS[method](self.window, workers))
            for member in range(1, workers + 1)
        ]

    def publish(self, *tasks: int) -> list[bool]:
        records = []
        for task in tasks:
            none = Extent(layout.INLINE, 0)
            records.append(layout.write_descriptor(Descriptor(task, 0, *NO_BLOB, *NO_BLOB, *none)))
        self.rows = self.publisher.publish(records)
        return [row is not None for row in self.rows]

    def run(self, claimant: Claimant, limit: int = 4) -> list[int]:
        """Take, claim and complete what there is; return the tasks."""
        found = claimant.take(limit)
        done = []
        for offer in found if not isinstance(found, Miss) else []:
            claim = claimant.claim(offer)
            if isinstance(claim, Claim):
                record = bytearray(layout.OUTCOME_NBYTES)
                assert claimant.complete(claim, record)[0]
                done.append(claim.descriptor[0].task_id)
        return done

    def collect(self) -> int:
        words = self.publisher.look().tolist()
        done = [(i, w) for i, w in enumerate(words) if layout.state_of(w) == State.DONE]
        self.publisher.retire([Row(*row) for row in done])
        return len(done)


def test_rows_that_are_free_and_not_next_are_no_room(method: str) -> None:
    """Long tasks at the front hold back the tickets of rows that were withdrawn behind them."""
    scene = Scene(8, method)
    assert scene.publisher.room(99) == 8
    assert all(scene.publish(*range(8)))
    assert scene.publisher.room(5) == 0
    for row in scene.rows[4:]:
        assert row is not None
        assert scene.publisher.cancel(row)
    assert scene.publisher.room(5) == 0
    for claimant in scene.claimants:
        while scene.run(claimant, limit=1):
            pass
    scene.collect()
    assert scene.publisher.room(5) == 5
    assert all(scene.publish(*range(5)))


@pytest.fixture(params=TAKERS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_publish_until_there_is_no_room(method: str) -> None:
    scene = Scene(4, method)
    assert scene.publish(*range(6)) == [True] * 4 + [False] * 2
    assert scene.publish(9) == [False]
    assert scene.run(scene.claimants[0], limit=1) == [0]
    assert scene.publish(9) == [False], "done is not free"
    assert scene.collect() == 1
    assert scene.publish(9) == [True]


def test_many_generations_in_order(method: str) -> None:
    scene = Scene(3, method, workers=1)
    seen = []
    for task in range(500):
        assert scene.publish(task) == [True]
        seen += scene.run(scene.claimants[0])
        if task % 2:
            scene.collect()
    assert seen == list(range(500))


def test_a_row_that_stays_claimed_is_passed_over(method: str) -> None:
    scene = Scene(3, method)
    long, quick = scene.claimants
    assert scene.publish(100) == [True]
    offers = long.take(1)
    assert not isinstance(offers, Miss)
    assert isinstance(long.claim(offers[0]), Claim)
    seen = []
    for task in range(200):
        assert scene.publish(task) == [True]
        for _ in range(4):  # some tickets are those of the long row
            seen += scene.run(quick)
        scene.collect()
    assert seen == list(range(200))


def test_cancel_before_claim_only(method: str) -> None:
    scene = Scene(4, method)
    scene.publish(1, 2)
    first, second = scene.rows
    assert first is not None
    assert second is not None
    assert scene.publisher.cancel(first)
    assert not scene.publisher.cancel(first)
    assert scene.run(scene.claimants[0]) + scene.run(scene.claimants[0]) == [2]
    assert not scene.publisher.cancel(second)


def test_sweep_finds_what_a_lost_ticket_left(method: str) -> None:
    scene = Scene(8, method)
    lost, other = scene.claimants
    scene.publish(1, 2, 3, 4)
    taken = 0
    while not isinstance(offers := lost.take(4), Miss):  # and never claims any of it
        taken += len(offers)
    assert taken == 4
    assert isinstance(other.take(4), Miss)
    found = [other.sweep(1) for _ in range(4)]
    tasks = []
    for offers in (other.sweep(4), *found):
        for offer in offers if not isinstance(offers, Miss) else []:
            claim = other.claim(offer)
            if isinstance(claim, Claim):
                tasks.append(claim.descriptor[0].task_id)
    assert sorted(tasks) == [1, 2, 3, 4]
    assert other.sweep(1) is Miss.EMPTY


def test_sweep_finds_what_is_earlier_than_a_ticket(method: str) -> None:
    scene = Scene(5, method)
    lost, other = scene.claimants
    for task in range(3):  # so that tickets go round the table
        scene.publish(task)
        scene.run(lost)
        scene.collect()
    scene.publish(*range(3, 8))
    assert not isinstance(lost.take(4), Miss)  # and never claims it
    tickets = [scene.geometry.ticket(*row) for row in scene.rows if row is not None]
    assert len({scene.geometry.generation(ticket) for ticket in tickets}) == 2
    for before in range(tickets[0] - 1, tickets[-1] + 3):
        offers = other.sweep(9, before=before)
        found = [] if isinstance(offers, Miss) else offers
        assert [scene.geometry.ticket(*offer.row) for offer in found] == [
            ticket for ticket in tickets if ticket < before
        ]


def test_sweep_starts_with_the_oldest_even_of_rows_that_are_just_published(method: str) -> None:
    scene = Scene(8, method)
    claimant = scene.claimants[0]
    scene.publish(1, 2, 3)
    whole = claimant.look

    def torn(rows: range | None = None) -> array[int]:
        claimant.look = whole  # type: ignore[method-assign]
        words = whole(rows)
        words[0] = words[1] = 0  # read before they were published, and the third one after it
        return words

    claimant.look = torn  # type: ignore[method-assign]
    offers = claimant.sweep(2)
    assert not isinstance(offers, Miss)
    assert [layout.read_descriptor(offer.record)[0].task_id for offer in offers] == [1, 2]


def test_the_end_of_the_loop(method: str) -> None:
    scene = Scene(4, method)
    claimant = scene.claimants[0]
    assert claimant.take(4) is Miss.EMPTY
    assert claimant.quiet()
    scene.publish(1)
    assert not claimant.quiet()
    scene.publisher.close()
    assert scene.run(claimant) == [1]
    assert claimant.take(4) is Miss.CLOSED


def test_a_late_outcome_is_rejected_and_the_row_let_go(method: str) -> None:
    scene = Scene(4, method)
    scene.publish(1)
    late = scene.claimants[0]
    offers = late.take(1)
    assert not isinstance(offers, Miss)
    claim = late.claim(offers[0])
    assert isinstance(claim, Claim)
    assert scene.publisher.reclaim(Row(claim.number, claim.word))
    assert not late.holds(claim)
    committed, _ = late.complete(claim, bytearray(layout.OUTCOME_NBYTES))
    assert not committed
    assert layout.state_of(scene.publisher.load(claim.number)) == State.FREE


def test_no_task_is_overtaken_because_the_ticket_of_an_older_one_is_held(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the counter a worker that sweeps still holds a ticket, of whatever comes next."""
    monkeypatch.setattr(worker, "SOON_S", 0.0)
    monkeypatch.setattr(worker, "IDLE_SWEEP_S", 0.0)
    monkeypatch.setattr(worker, "SWEEP_S", 5.0)  # nothing is found because of the time
    scene = Scene(8, method)
    started = []

    def serve(member: int) -> Callable[[], bool]:
        served = Worker(member, member, "host")
        served.attach(1, scene.window, scene.geometry, method, lease_s=10)
        (service,) = served._services.values()

        def attempt(claim: Claim, then: Offer | None) -> Miss:
            started.append(claim.descriptor[0].task_id)
            if len(started) == 1:  # the others come while this one runs
                scene.publish(2, 3)
                quick()
                quick()
            return Miss.EMPTY

        monkeypatch.setattr(service, "_attempt", attempt)
        return service.work

    quick, sweeping = serve(1), serve(2)
    quick(), sweeping()  # nothing is there yet
    scene.publish(1)
    sweeping()
    assert started[:2] == [1, 2]
