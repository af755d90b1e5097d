"""A worker's part of the arena: its outcomes stay until they are collected, and no longer."""

from __future__ import annotations

import pytest

from workpool import layout
from workpool.layout import NO_BLOB, Descriptor, Extent, Geometry
from workpool.repository import TAKERS, Claim, Claimant, Miss, Publisher, Row, Stream
from workpool.testing import MemoryWindow
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted

NBYTES = 1000


class Scene:
    """A publisher, and a worker that has claimed a task whose payload is in the arena."""

    def __init__(self) -> None:
        self.geometry = geometry = Geometry(4, 2, 1 << 16)
        self.window = window = MemoryWindow(geometry.nbytes)
        self.publisher = Publisher(window, geometry, 0)
        self.payload = Extent(geometry.region(0).offset, NBYTES)
        window.put(self.payload.offset, b"p" * NBYTES)
        descriptor = Descriptor(1, 0, *NO_BLOB, *NO_BLOB, *self.payload)
        assert self.publisher.publish_one(layout.write_descriptor(descriptor), 0) is not None
        self.worker = Claimant(window, geometry, 1, TAKERS["pointer"](window, 1))
        self.exchange = Exchange(window, self.worker, geometry.region(1))
        found = self.worker.take(1)
        assert not isinstance(found, Miss)
        claim = self.worker.claim(found[0])
        assert isinstance(claim, Claim)
        self.claim = claim


@pytest.mark.parametrize("recalled", [False, True])
def test_an_outcome_stays_until_its_row_is_free(recalled: bool) -> None:
    scene = Scene()
    exchange, claim = scene.exchange, scene.claim
    if recalled:
        assert scene.publisher.recall(Row(claim.number, claim.word)) is not None
    extent = exchange.reserve(NBYTES)
    committed, _ = scene.worker.complete(claim, bytes(layout.OUTCOME_NBYTES))
    assert committed
    exchange.keep(claim, [extent], committed)
    assert not exchange.reap()
    assert exchange.region.used_nbytes
    scene.publisher.retire([Row(claim.number, scene.publisher.load(claim.number))])
    assert exchange.reap()
    assert not exchange.region.used_nbytes


def test_what_a_worker_has_fetched_after_it_was_evicted_is_not_used() -> None:
    """It may be another task's by then."""
    scene = Scene()
    claim, inline = scene.claim, memoryview(b"")

    def fetched() -> bytes:
        return bytes(scene.exchange.fetch(claim, Stream.PAYLOAD, *scene.payload, inline))

    assert fetched() == b"p" * NBYTES
    assert scene.publisher.reclaim(Row(claim.number, claim.word))
    with pytest.raises(Evicted):
        fetched()


def test_payloads_that_lie_apart_are_fetched_with_those_that_do_not() -> None:
    scene = Scene()
    fetched = scene.exchange.fetch_all(scene.claim, [b"here", tuple(scene.payload), b""])
    assert [bytes(payload) for payload in fetched] == [b"here", b"p" * NBYTES, b""]
    assert scene.publisher.reclaim(Row(scene.claim.number, scene.claim.word))
    assert scene.exchange.fetch_all(scene.claim, [b"here"]) == [b"here"]
    with pytest.raises(Evicted):
        scene.exchange.fetch_all(scene.claim, [b"here", tuple(scene.payload)])
