"""Both halves of the repository, and the worker's queue, in plain memory and one thread."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import pytest
from small_repository import SmallRepository

from workpool import layout, protocol
from workpool.layout import NO_BLOB, Descriptor
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Miss, Offer, Row
from workpool.repository.table import runs
from workpool.worker import worker
from workpool.worker.worker import Worker

NO_TASK = Descriptor(0, 0, *NO_BLOB, *NO_BLOB, layout.INLINE, 0)


@pytest.fixture(params=TAKERS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_publish_until_there_is_no_room(method: str) -> None:
    small = SmallRepository(4, method)
    assert small.publish(*range(6)) == [True] * 4 + [False] * 2
    assert small.publish(9) == [False]
    assert small.run(small.claimants[0], limit=1) == [0]
    assert small.publish(9) == [False], "done is not free"
    assert small.collect() == 1
    assert small.publish(9) == [True]


def test_many_generations_in_order(method: str) -> None:
    small = SmallRepository(3, method, workers=1)
    seen = []
    for task in range(500):
        assert small.publish(task) == [True]
        seen += small.run(small.claimants[0])
        if task % 2:
            small.collect()
    assert seen == list(range(500))


def test_a_row_that_stays_claimed_is_passed_over(method: str) -> None:
    small = SmallRepository(3, method)
    long, quick = small.claimants
    assert small.publish(100) == [True]
    offers = long.take(1)
    assert not isinstance(offers, Miss)
    assert isinstance(long.claim(offers[0]), Claim)
    seen = []
    for task in range(200):
        assert small.publish(task) == [True]
        for _ in range(4):  # some tickets are those of the long row
            seen += small.run(quick)
        small.collect()
    assert seen == list(range(200))


def test_cancel_before_claim_only(method: str) -> None:
    small = SmallRepository(4, method)
    small.publish(1, 2)
    first, second = small.rows
    assert first is not None
    assert second is not None
    assert small.publisher.step(first, Step.CANCEL)
    assert not small.publisher.step(first, Step.CANCEL)
    assert small.run(small.claimants[0]) + small.run(small.claimants[0]) == [2]
    assert not small.publisher.step(second, Step.CANCEL)


def test_sweep_finds_what_a_lost_ticket_left(method: str) -> None:
    small = SmallRepository(8, method)
    lost, other = small.claimants
    small.publish(1, 2, 3, 4)
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
    small = SmallRepository(5, method)
    lost, other = small.claimants
    for task in range(3):  # so that tickets go round the table
        small.publish(task)
        small.run(lost)
        small.collect()
    small.publish(*range(3, 8))
    assert not isinstance(lost.take(4), Miss)  # and never claims it
    tickets = [small.geometry.ticket(*row) for row in small.rows if row is not None]
    assert len({small.geometry.generation(ticket) for ticket in tickets}) == 2
    for before in range(tickets[0] - 1, tickets[-1] + 3):
        offers = other.sweep(9, before=before)
        found = [] if isinstance(offers, Miss) else offers
        assert [small.geometry.ticket(*offer.row) for offer in found] == [
            ticket for ticket in tickets if ticket < before
        ]


def test_sweep_starts_with_the_oldest_even_of_rows_that_are_just_published(method: str) -> None:
    small = SmallRepository(8, method)
    claimant = small.claimants[0]
    small.publish(1, 2, 3)
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


def test_there_is_nothing_to_take_before_and_after(method: str) -> None:
    small = SmallRepository(4, method)
    claimant = small.claimants[0]
    assert claimant.take(4) is Miss.EMPTY
    assert claimant.quiet()
    small.publish(1)
    assert not claimant.quiet()
    assert small.run(claimant) == [1]
    assert claimant.take(4) is Miss.EMPTY
    assert claimant.quiet()


def test_who_waits_for_a_row_claims_it_without_its_ticket(method: str) -> None:
    small = SmallRepository(4, method)
    first, second = small.claimants
    pointer = method == "pointer"
    for claimant in small.claimants:
        claimant.take(4)  # the ticket that it will wait with, by the counter
        assert claimant.quiet()
    (row,) = small.publisher._free_rows(1)
    small.publisher._hold(1)
    small.window.put(row.descriptor, layout.write_descriptor(NO_TASK))
    small.window.flush()
    # Its publisher has not come to the tail yet.
    small.window.compare_and_swap(row.place, row.word, row.ready.word)
    assert second.quiet() is not pointer
    assert not first.quiet()
    claim = first.seize(4)
    assert isinstance(claim, Claim)
    assert claim.descriptor[0] == NO_TASK
    assert second.seize(4) is (Miss.CONTENDED if pointer else Miss.EMPTY)
    assert not first.knows_next
    assert first.complete(claim, bytes(layout.OUTCOME_NBYTES))[0]
    assert small.window.load(layout.HEAD) == pointer, "moved with the outcome"
    assert first.knows_next is pointer
    for claimant in small.claimants:
        assert claimant.take(4) is Miss.EMPTY
        assert small.window.load(layout.HEAD) == pointer


def test_who_finds_the_pointer_moved_owes_nothing() -> None:
    small = SmallRepository(8, "pointer")
    first, second = small.claimants
    assert first.quiet()
    small.publish(1)
    assert not first.quiet()
    claim = first.seize(4)
    assert isinstance(claim, Claim)
    assert second.take(4) == [Offer(Row(0, protocol.ready(1)), None)]
    small.publish(2)
    assert first.complete(claim, bytes(layout.OUTCOME_NBYTES))[0]
    assert first.knows_next
    assert small.run(first)[0] == 2


def test_several_rows_are_taken_and_not_claimed_one_by_one(method: str) -> None:
    small = SmallRepository(64, method, workers=1)
    (claimant,) = small.claimants
    claimant.take(4)  # by the counter one waits with one ticket
    assert claimant.quiet()
    small.publish(*range(8))
    assert not claimant.quiet()
    claim = claimant.seize(4)
    assert isinstance(claim, Claim) if method == "counter" else claim is Miss.EMPTY
    assert small.run(claimant)[0] == (method == "counter")


def test_each_ticket_gives_an_offer_unless_its_row_is_taken() -> None:
    small = SmallRepository(64, "pointer")
    claimant, other = small.claimants
    small.publish(*range(32))
    swept = other.sweep(8)
    assert not isinstance(swept, Miss)
    assert isinstance(other.claim(swept[4]), Claim)
    assert small.rows[5] is not None
    assert small.publisher.step(small.rows[5], Step.CANCEL)
    found = []
    for limit in (1, 2, 4):
        offers = claimant.take(limit)
        assert not isinstance(offers, Miss)
        found.append([offer.row.number for offer in offers])
    assert found == [[0], [1, 2], [3, 6]]


def test_who_waits_looks_for_as_long_as_nothing_has_changed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallRepository(4, method, workers=1)
    (claimant,) = small.claimants
    looks: list[tuple[bool, float]] = []

    def await_change(seen: Sequence[int], *disps: int, seconds: float) -> list[int]:
        words = small.window.peek(*disps)
        looks.append((words == seen, seconds))
        return words

    monkeypatch.setattr(small.window, "await_change", await_change)
    for task in range(3):
        claimant.take(1)  # the ticket that it will wait with, by the counter
        assert claimant.quiet(5)
        assert claimant.quiet(5)
        small.publish(task)
        assert not claimant.quiet(5)
        assert looks == [(False, 5), (True, 5), (False, 5)], "the first time it knows of no words"
        looks.clear()
        assert isinstance(claimant.seize(4), Claim), "the only row that there is"


def test_the_next_row_is_claimed_with_the_outcome_of_the_last() -> None:
    small = SmallRepository(64, "pointer")
    claimant, other = small.claimants
    small.publish(*range(16))
    offers = claimant.take(4)
    assert not isinstance(offers, Miss)
    assert isinstance(other.claim(offers[2]), Claim)
    claim = claimant.claim(offers[0])
    assert isinstance(claim, Claim)
    record = bytes(layout.OUTCOME_NBYTES)
    committed, following = claimant.complete(claim, record, offers[1])
    assert committed
    assert isinstance(following, Claim)
    assert following.descriptor[0].task_id == 1
    assert claimant.complete(following, record, offers[2]) == (True, Miss.CONTENDED)
    assert [layout.state_of(small.publisher.load(n)) for n in range(3)] == [
        State.DONE,
        State.DONE,
        State.CLAIMED,
    ]


def test_tickets_of_rows_that_were_claimed_without_them_are_passed_by_the_next_take() -> None:
    small = SmallRepository(64, "pointer", workers=1)
    (claimant,) = small.claimants
    assert claimant.quiet()
    small.publish(1)
    assert not claimant.quiet()
    claim = claimant.seize(4)
    assert isinstance(claim, Claim)
    small.publish(*range(2, 10))
    offers = claimant.take(4)
    assert not isinstance(offers, Miss)
    assert [layout.read_descriptor(offer.record)[0].task_id for offer in offers] == [2, 3, 4, 5]
    assert small.window.load(layout.HEAD) == 5


def test_a_late_outcome_is_rejected_and_the_row_let_go(method: str) -> None:
    small = SmallRepository(4, method)
    small.publish(1)
    late = small.claimants[0]
    offers = late.take(1)
    assert not isinstance(offers, Miss)
    claim = late.claim(offers[0])
    assert isinstance(claim, Claim)
    assert small.publisher.step(Row(claim.number, claim.word), Step.RECLAIM)
    assert not late.holds(claim)
    committed, _ = late.complete(claim, bytearray(layout.OUTCOME_NBYTES))
    assert not committed
    assert layout.state_of(small.publisher.load(claim.number)) == State.FREE


def test_no_task_is_overtaken_because_the_ticket_of_an_older_one_is_held(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the counter a worker that sweeps still holds a ticket, of whatever comes next."""
    monkeypatch.setattr(worker, "SOON_S", 0.0)
    monkeypatch.setattr(worker, "IDLE_SWEEP_S", 0.0)
    monkeypatch.setattr(worker, "SWEEP_S", 5.0)  # nothing is found because of the time
    small = SmallRepository(8, method)
    started = []

    def serve(member: int) -> Callable[[], bool]:
        served = Worker(member, member, "host")
        served.attach(1, small.window, small.geometry, method, lease_s=10)
        (service,) = served._services.values()

        def attempt(claim: Claim, then: Offer | None) -> Miss:
            started.append(claim.descriptor[0].task_id)
            if len(started) == 1:  # the others come while this one runs
                small.publish(2, 3)
                quick()
                quick()
            return Miss.EMPTY

        monkeypatch.setattr(service, "_attempt", attempt)
        return service.work

    quick, sweeping = serve(1), serve(2)
    quick(), sweeping()  # nothing is there yet
    small.publish(1)
    sweeping()
    assert started[:2] == [1, 2]


@pytest.mark.parametrize("numbers", [[], [5], [5, 6, 7], [5, 7, 6], [3, 4, 9, 10, 0, 1], [2, 2]])
def test_runs_are_as_long_as_can_be(numbers: list[int]) -> None:
    found = runs(numbers)
    assert [i for run in found for i in run] == [*range(len(numbers))]
    assert all(numbers[i] == numbers[run[0]] + i - run[0] for run in found for i in run)
    assert all(numbers[run.stop] != numbers[run.stop - 1] + 1 for run in found[:-1])
