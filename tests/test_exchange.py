"""A worker's part of the arena: its outcomes stay until they are collected, and no longer.

And its ends of streams, with those of a driver that answers whenever the worker waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workpool import arena, layout
from workpool.context import Context, TaskKind
from workpool.driver.store import Store
from workpool.driver.streams import Streams
from workpool.errors import ProtocolError
from workpool.extents import Extent, in_lines
from workpool.layout import NO_BLOB, NOTHING, Blob, Descriptor, Geometry, Piece
from workpool.protocol import State, Step
from workpool.repository import TAKERS, Claim, Claimant, Miss, Publisher, Row, Stream
from workpool.serializer import as_bytes
from workpool.tasks import Batch, PoolContext, SharedCode, Tally, Task
from workpool.testing import MemoryWindow
from workpool.worker import exchange as exchange_module
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted

NBYTES = 1000


class ClaimedTask:
    """A publisher, and a worker that has claimed a task whose payload is in the arena."""

    def __init__(self) -> None:
        self.geometry = geometry = Geometry(4, 2, 1 << 16)
        self.window = window = MemoryWindow(geometry.nbytes)
        self.publisher = Publisher(window, geometry, 0)
        self.payload = Extent(geometry.region(0).offset, NBYTES)
        window.put(self.payload.offset, b"p" * NBYTES)
        self.worker = Claimant(window, geometry, 1, TAKERS["pointer"](window, 1))
        self.exchange = Exchange(self.worker)
        self.claim = self.next_claim()

    def next_claim(self) -> Claim:
        """Publish the task, and have the worker claim it."""
        descriptor = Descriptor(1, 0, *NO_BLOB, *NO_BLOB, *self.payload)
        assert self.publisher.publish_one(layout.write_descriptor(descriptor), 0) is not None
        found = self.worker.take(1)
        assert not isinstance(found, Miss)
        claim = self.worker.claim(found[0])
        assert isinstance(claim, Claim)
        return claim

    def commit(self, claim: Claim, *extents: Extent) -> None:
        """Commit an outcome that lies in some extents."""
        committed, _ = self.worker.complete(claim, bytes(layout.OUTCOME_NBYTES))
        assert committed
        self.exchange.keep(claim, extents)

    def row(self, claim: Claim) -> Row:
        """Return the row of a claim as it is now."""
        return Row(claim.number, self.publisher.load(claim.number))


@pytest.mark.parametrize("recalled", [False, True])
def test_an_outcome_stays_until_its_row_is_free(recalled: bool) -> None:
    claimed = ClaimedTask()
    exchange, claim = claimed.exchange, claimed.claim
    if recalled:
        assert claimed.publisher.recall(Row(claim.number, claim.word)) is not None
    extent = exchange.reserve(NBYTES)
    claimed.commit(claim, extent)
    assert not exchange.reap()
    assert exchange.region.used_nbytes
    claimed.publisher.retire([claimed.row(claim)])
    assert exchange.reap()
    assert not exchange.region.used_nbytes


def test_what_a_worker_has_fetched_after_it_was_evicted_is_not_used() -> None:
    """It may be another task's by then."""
    claimed = ClaimedTask()
    claim, inline = claimed.claim, memoryview(b"")

    def fetched() -> bytes:
        return bytes(claimed.exchange.fetch(claim, Stream.PAYLOAD, *claimed.payload, inline))

    assert fetched() == b"p" * NBYTES
    assert claimed.publisher.step(Row(claim.number, claim.word), Step.RECLAIM)
    with pytest.raises(Evicted):
        fetched()


def test_payloads_that_lie_apart_are_fetched_with_those_that_do_not() -> None:
    claimed = ClaimedTask()
    fetched = claimed.exchange.fetch_all(claimed.claim, [b"here", tuple(claimed.payload), b""])
    assert [bytes(payload) for payload in fetched] == [b"here", b"p" * NBYTES, b""]
    assert claimed.publisher.step(Row(claimed.claim.number, claimed.claim.word), Step.RECLAIM)
    assert claimed.exchange.fetch_all(claimed.claim, [b"here"]) == [b"here"]
    with pytest.raises(Evicted):
        claimed.exchange.fetch_all(claimed.claim, [b"here", tuple(claimed.payload)])


# --- room -----------------------------------------------------------------------------------------


def count_looks(claimed: ClaimedTask, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what gets an entry each time that the worker sees what is collected."""
    looks: list[int] = []
    look = claimed.worker.look

    def counted() -> Any:
        looks.append(claimed.exchange.region.used_nbytes)
        assert len(looks) < 1000
        return look()

    monkeypatch.setattr(claimed.worker, "look", counted)
    return looks


def test_what_an_attempt_that_was_taken_back_had_is_given_back() -> None:
    claimed = ClaimedTask()
    exchange, claim = claimed.exchange, claimed.claim
    extents = [exchange.reserve(NBYTES), exchange.reserve(NBYTES)]
    assert claimed.publisher.step(claimed.row(claim), Step.RECLAIM)
    committed, _ = claimed.worker.complete(claim, bytes(layout.OUTCOME_NBYTES))
    assert not committed
    exchange.keep(claim, extents)
    assert exchange.reap()
    assert not exchange.region.used_nbytes


def test_a_result_has_the_room_of_those_that_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = ClaimedTask()
    exchange, claim = claimed.exchange, claimed.claim
    looks = count_looks(claimed, monkeypatch)
    assert not exchange.reap()
    assert not looks, "for nothing"
    first, second, *others = iter(lambda: exchange.region.reserve(NBYTES), None)
    claimed.commit(claimed.next_claim(), first)
    claimed.commit(claim, second, *others)
    assert exchange.try_reserve(NBYTES) is None
    claimed.publisher.retire([claimed.row(claim)])
    assert exchange.try_reserve(NBYTES) == second
    assert exchange.region.used_nbytes == 2 * in_lines(NBYTES)


def test_a_result_waits_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = ClaimedTask()
    exchange, claim, pauses = claimed.exchange, claimed.claim, []

    class Pause:
        def pause(self) -> None:
            pauses.append(exchange.region.used_nbytes)
            if len(pauses) == 3:
                claimed.publisher.retire([claimed.row(claim)])

    monkeypatch.setattr(exchange_module, "Backoff", lambda longest_s: Pause())
    whole = exchange.reserve(exchange.region.nbytes)
    claimed.commit(claim, whole)
    assert exchange.reserve(NBYTES).offset == whole.offset
    assert len(pauses) == 3


def test_room_that_is_warm_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where nothing of it is collected yet, it is not looked for each time."""
    warm_nbytes = 4 * in_lines(NBYTES)
    monkeypatch.setattr(exchange_module, "REAP_NBYTES", warm_nbytes)
    claimed = ClaimedTask()
    exchange, claim = claimed.exchange, claimed.claim
    looks = count_looks(claimed, monkeypatch)
    for _ in range(24):
        claimed.commit(claim, exchange.reserve(NBYTES))
        assert exchange.region.used_nbytes <= warm_nbytes + in_lines(NBYTES)
        claimed.publisher.retire([claimed.row(claim)])
        claim = claimed.next_claim()
    assert len(looks) <= 24 // 4
    assert min(looks) > warm_nbytes
    claimed.commit(claim, *(exchange.reserve(NBYTES) for _ in range(8)))
    looks.clear()
    for _ in range(16):
        exchange.reserve(NBYTES)
    assert 0 < len(looks) <= 1 + 16 // 4


def test_wherever_one_share_lies_there_is_room_for_another() -> None:
    claimed = ClaimedTask()
    exchange = claimed.exchange
    for before in range(1, exchange.region.nbytes - exchange.share_nbytes + 1, NBYTES):
        first, one = exchange.reserve(before), exchange.reserve(exchange.share_nbytes)
        exchange.region.release(first)
        other = exchange.try_reserve(exchange.share_nbytes)
        assert other is not None, before
        exchange.region.release(one)
        exchange.region.release(other)


# --- streams --------------------------------------------------------------------------------------

PIECE = 1024
SIZES = [PIECE - 1, 2 * PIECE, 5 * PIECE + 100]


def content(nbytes: int, first: int = 0) -> bytes:
    """Return bytes of which no piece is like another."""
    return b"".join(n.to_bytes(4, "little") for n in range(first, first + nbytes))[:nbytes]


class Facing(ClaimedTask):
    """A driver's ends of streams besides; it answers whenever the worker waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
        monkeypatch.setattr(arena, "PIECE_NBYTES", PIECE)
        monkeypatch.setattr(exchange_module, "Backoff", lambda longest_s: self)
        super().__init__()
        payload, code, setup = (content(nbytes, first) for first in range(3))
        context = Context(1, None, setup)
        pool = PoolContext(1, context, lambda finished: None, lambda several: None, Tally())
        self.contents = {
            Stream.PAYLOAD: payload,
            Stream.CODE: code,
            Stream.CONTEXT: bytes(as_bytes(pool.content)),
        }
        task = Task(1, TaskKind.CALL, abs, pool, payload, None)
        task.code = SharedCode(1, code)
        self.batch = Batch([task], payload)
        self.store = Store(self.window, self.geometry.region(0))
        self.streams = Streams(self.publisher, self.store)
        self.pieces: list[Piece] = []  # as the driver has them
        self.answers = False
        self.looks = 0

    def pause(self) -> None:
        """Answer, instead of the wait of a worker."""
        self.looks += 1
        assert self.looks < 100, "the stream does not end"
        self.answers = True
        self.answer()
        self.answers = False

    def answer(self) -> None:
        row = self.row(self.claim)
        state = layout.state_of(row.word)
        if state == State.WANTED:
            self.streams.supply(row, self.batch)
        elif state == State.OFFERED:
            assert self.streams.take(row, self.batch) is None
        self.pieces.append(layout.read_piece(self.publisher.read_record(row.number)))

    def blob(self, stream: Stream) -> bytes:
        """Have the worker fetch a stream."""
        blob = Blob(1, layout.STREAMED, len(self.contents[stream]))
        return self.exchange.blob(self.claim, stream, blob)

    def evict_before(self, step: int) -> Callable[[], int]:
        """Take the attempt back before one of the worker's calls; return what counts them."""
        perform, calls = self.window._perform, 0

        def counted(op: tuple[Any, ...]) -> Any:
            nonlocal calls
            if not self.answers:
                calls += 1
                if calls == step:
                    self.answers = True
                    assert self.publisher.step(self.row(self.claim), Step.RECLAIM)
                    self.answers = False
            return perform(op)

        self.window._perform = counted
        return lambda: calls


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("stream", [Stream.PAYLOAD, Stream.CODE, Stream.CONTEXT])
def test_what_is_wanted_in_pieces_comes_and_leaves_the_buffer_to_others(
    monkeypatch: pytest.MonkeyPatch, stream: Stream, nbytes: int
) -> None:
    claimed = Facing(monkeypatch, nbytes)
    assert claimed.blob(stream) == claimed.contents[stream]
    assert all(piece.extent.nbytes <= PIECE for piece in claimed.pieces)
    assert layout.state_of(claimed.claim.word) == State.CLAIMED
    assert claimed.row(claimed.claim).word == claimed.claim.word, "nothing is on its way"
    other = claimed.claim.number + 1
    assert claimed.store.supply(other, Piece(stream, 0, 1, NOTHING), b"1") is not None


@pytest.mark.parametrize("nbytes", SIZES)
def test_what_is_offered_in_pieces_comes_and_needs_room_for_two(
    monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    claimed = Facing(monkeypatch, 1)
    region, used = claimed.exchange.region, set[int]()
    answer = claimed.answer

    def noted() -> None:
        used.add(region.used_nbytes)
        answer()

    monkeypatch.setattr(claimed, "answer", noted)
    outcome = content(nbytes)
    claimed.exchange.offer_all(claimed.claim, outcome)
    assert claimed.batch.incoming is not None
    assert bytes(claimed.batch.incoming) == outcome
    assert used == {2 * PIECE}
    assert not region.used_nbytes
    assert all(piece.extent.nbytes <= PIECE for piece in claimed.pieces)
    assert claimed.row(claimed.claim).word == claimed.claim.word, "nothing is on its way"


@pytest.mark.parametrize("offers", [False, True])
def test_a_stream_ends_wherever_its_attempt_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, offers: bool
) -> None:
    """Before each call of the window: who has noticed goes no further, and has let go."""
    step, calls = 0, 1
    while step < calls:
        step += 1
        claimed = Facing(monkeypatch, 3 * PIECE)
        made = claimed.evict_before(step)
        noticed = False
        try:
            if offers:
                claimed.exchange.offer_all(claimed.claim, content(3 * PIECE))
            else:
                assert claimed.blob(Stream.PAYLOAD) == claimed.contents[Stream.PAYLOAD]
        except Evicted:
            noticed = True
        calls = made()
        if step <= calls:
            state = layout.state_of(claimed.row(claimed.claim).word)
            assert state == (State.FREE if noticed else State.EVICTED), step
        assert not claimed.exchange.region.used_nbytes
    assert step > 20


@pytest.mark.parametrize("wrong", [{"position": 1}, {"nbytes": 0}, {"nbytes": PIECE + 1}])
def test_a_piece_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int]
) -> None:
    claimed = Facing(monkeypatch, PIECE)
    extent = Extent(claimed.payload.offset, wrong.get("nbytes", PIECE))
    piece = Piece(Stream.PAYLOAD, wrong.get("position", 0), PIECE, extent)
    monkeypatch.setattr(
        claimed,
        "answer",
        lambda: claimed.publisher.supply(claimed.row(claimed.claim), piece),
    )
    with pytest.raises(ProtocolError, match=f"asked for byte 0 of {PIECE}, got Piece"):
        claimed.blob(Stream.PAYLOAD)


def test_what_stands_in_a_record_ends_where_it_says() -> None:
    claimed = ClaimedTask()
    inline = memoryview(b"here, and the rest of the record")
    fetched = claimed.exchange.fetch(claimed.claim, Stream.PAYLOAD, layout.INLINE, 4, inline)
    assert bytes(fetched) == b"here"
