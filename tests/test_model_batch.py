"""Rows of several tasks, in every interleaving: recalled, reclaimed, or cut off by a death.

A worker runs the tasks of a row one after another, or starts a stride of several and may give back
what it has not come to; what became of them it leaves in one place, or offers as a piece.  The
submitter may recall at any time what has not been started, or take the row back.  Each task's
outcome arrives exactly once, each outcome says which attempt made it, and no task runs twice but
those that were started when their row was taken back.
"""

from __future__ import annotations

from functools import partial
from struct import unpack_from
from typing import Any

import model.batch
import pytest
from model.batch import Worker, explore
from model.batch_submitter import OTHERS, Submitter, slot
from steps import after

from workpool import layout, protocol
from workpool.errors import WindowError
from workpool.extents import Extent
from workpool.protocol import State, Step
from workpool.repository import Claim, Claimant, Miss, Publisher, Row
from workpool.testing import Found, MemoryWindow

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("options", "least"),  # two thirds of the states that there are
    [
        ({"recalls": 1}, 331_000),
        ({"recalls": 2, "rows": 1}, 737_000),
        ({"stops": 2}, 33_000),
        ({"stops": 2, "ordered": False}, 71_000),
        ({"batches": (2,), "suspicions": 1}, 119_000),
        ({"suspicions": 1, "recalls": 1, "workers": 1}, 41_000),
        ({"batches": (2, 1), "suspicions": 1, "workers": 1}, 15_000),
        ({"batches": (2,), "rows": 3, "crashes": 1, "recalls": 1}, 327_000),
        ({"strides": True, "recalls": 1}, 756_000),
        ({"strides": True, "stops": 2}, 148_000),
        ({"strides": True, "suspicions": 1, "recalls": 1, "workers": 1}, 98_000),
        ({"strides": True, "rows": 3, "crashes": 1}, 316_000),
        ({"offers": True, "recalls": 1, "workers": 1}, 1_600),
        ({"offers": True, "recalls": 1, "strides": True, "stops": 2, "workers": 1}, 5_400),
        ({"offers": True, "suspicions": 1, "recalls": 1, "workers": 1}, 33_000),
        ({"counts": True, "batches": (2,), "recalls": 1}, 244_000),
        ({"counts": True, "batches": (2,), "suspicions": 1}, 159_000),
        ({"counts": True, "offers": True, "batches": (2,), "suspicions": 1}, 165_000),
        ({"apart": True, "batches": (2,), "recalls": 1}, 298_000),
        ({"apart": True, "batches": (2,), "suspicions": 1}, 311_000),
        ({"apart": True, "suspicions": 1, "recalls": 1, "strides": True, "workers": 1}, 230_000),
        ({"apart": True, "batches": (2,), "rows": 3, "crashes": 1, "recalls": 1}, 708_000),
    ],
    ids=str,
)
def test_every_task_of_a_row_ends_once(options: dict[str, Any], least: int) -> None:
    report = explore(**options)
    assert report.states > least, report


def test_an_outcome_that_is_not_flushed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(
        self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int, stride: bool
    ) -> bool | Miss:
        self.window.put(disp, outcomes)
        step = partial(protocol.next_tasks, ended=ended, stride=stride)
        return self._change(claim, step, self._keeps) or Miss.CONTENDED

    monkeypatch.setattr(Claimant, "next", hasty)
    with pytest.raises(Found, match=r"instead of|are cut|too far"):
        explore((2,), suspicions=1)


def test_a_recall_that_is_overlooked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(
        self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int, stride: bool
    ) -> bool | Miss:
        self.window.put(disp, outcomes)
        self.window.flush()
        word = self.load(claim.number)  # a fresh load, where we hold a word
        after = layout.next_tasks(word, ended, stride)
        if layout.owner_of(word) != self.member or layout.state_of(word) != State.CLAIMED:
            return Miss.CONTENDED
        self.window.compare_and_swap(self.geometry.word(claim.number), word, after)
        claim.word = after
        return True

    monkeypatch.setattr(Claimant, "next", stubborn)
    with pytest.raises(Found, match="run twice"):
        explore(recalls=1)


def test_outcomes_that_are_given_back_unflushed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Claimant, claim: Claim, disp: int, outcomes: bytes, ended: int) -> bool:
        self.window.put(disp, outcomes)
        word = protocol.give_back(claim.word, ended)
        found = self.window.compare_and_swap(self.geometry.word(claim.number), claim.word, word)
        given = found == claim.word
        claim.word = word if given else claim.word
        return given

    monkeypatch.setattr(Claimant, "give_back", hasty)
    with pytest.raises(Found, match=r"instead of|are cut|too far"):
        explore((4,), strides=True, workers=1)


def test_giving_back_what_is_run_all_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Worker._give_back

    def greedy(self: Worker, claim: Claim) -> None:
        pending = self.pending
        genuine(self, claim)
        self.pending = pending

    monkeypatch.setattr(Worker, "_give_back", greedy)
    with pytest.raises(Found, match="run twice"):
        explore(strides=True)


def shorten_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks behind a stride although they are few."""
    monkeypatch.setattr(layout, "STRIDE", 2)
    monkeypatch.setattr(layout.words, "STRIDE", 2)


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"batches": (4,), "recalls": 1, "offers": True, "workers": 1}, 23_000),
        ({"batches": (5,), "recalls": 1, "workers": 1}, 117_000),
        ({"batches": (4,), "recalls": 1, "workers": 1, "counts": True}, 58_000),
        ({"batches": (4,), "recalls": 1, "suspicions": 1, "workers": 1, "offers": True}, 453_000),
    ],
    ids=str,
)
def test_tasks_behind_a_stride_end_once(
    options: dict[str, Any], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_strides(monkeypatch)
    report = explore(strides=True, **options)
    assert report.states > least, report


def test_giving_back_what_has_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_strides(monkeypatch)
    monkeypatch.setattr(Worker, "_leave", lambda self: None)
    with pytest.raises(Found, match="run twice"):
        explore((4,), strides=True, recalls=1, workers=1)


def test_counting_what_has_run_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_strides(monkeypatch)
    monkeypatch.setattr(Worker, "_leave", lambda self: None)
    monkeypatch.setattr(model.batch, "check", lambda *_: None)
    with pytest.raises(Found, match="counts 2 times"):
        explore((4,), strides=True, recalls=1, workers=1, counts=True)


def test_a_stride_that_is_taken_for_one_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "started_of", lambda word: layout.ended_of(word) + 1)
    with pytest.raises(Found, match="run twice"):
        explore(strides=True, recalls=1)


def test_a_recall_that_forgets_what_was_started_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Publisher.recall

    def forgetful(self: Publisher, row: Row) -> int | None:
        return None if genuine(self, row) is None else row.word  # as it was seen

    monkeypatch.setattr(Publisher, "recall", forgetful)
    with pytest.raises(Found, match="twice"):
        explore(recalls=1)


def test_reading_after_the_row_was_taken_back_is_found() -> None:
    with pytest.raises(Found, match="instead of"):
        explore((2, 1), suspicions=1, workers=1, blind=True)


def test_payloads_that_were_read_after_the_row_was_taken_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Claimant, "holds", lambda self, claim: True)
    with pytest.raises(Found, match='reads the payload b"others\' "'):
        explore((2,), apart=True, suspicions=1, workers=1)


def test_a_payload_that_is_gone_though_its_task_is_started_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = Submitter._take_in

    def greedy(self: Submitter, window: MemoryWindow, row: Row) -> None:
        for task in self.held[row.number]:
            window.put(slot(self.shape, self.slots[task]), OTHERS)
        window.flush()
        genuine(self, window, row)

    monkeypatch.setattr(Submitter, "_take_in", greedy)
    with pytest.raises(Found, match='reads the payload b"others\' "'):
        explore(apart=True, recalls=1, workers=1)


def test_a_piece_where_the_place_of_outcomes_is_named_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "PLACE_AT", 0)
    monkeypatch.setattr(layout, "read_place", lambda record: Extent(*unpack_from("<qQ", record)))
    with pytest.raises((Found, WindowError), match=r"outside|instead of|are cut|too far"):
        explore(offers=True, recalls=1, workers=1)


def test_steps_of_batches() -> None:
    word = layout.pack_word(State.CLAIMED, 3, 1, 5)
    second = after(word, Step.NEXT)
    assert (layout.ended_of(word), layout.ended_of(second)) == (0, 1)
    assert (layout.started_of(word), layout.started_of(second)) == (1, 2)
    recalled = protocol.recall(second)
    assert layout.is_recalled(recalled)
    assert layout.ended_of(recalled) == 1
    assert layout.state_of(protocol.advance(recalled, Step.COMPLETE)) == State.DONE
    for step in (Step.NEXT, Step.RECALL):
        with pytest.raises(protocol.ProtocolError, match="the last"):
            after(recalled, step)


def test_steps_of_strides() -> None:
    word = layout.pack_word(State.CLAIMED, 3, 1, 5)
    stride = protocol.next_tasks(word, 1, stride=True)
    assert (layout.ended_of(stride), layout.started_of(stride)) == (1, 1 + layout.STRIDE)
    assert "tasks 1 to 8," in protocol.describe(stride)
    for before in (stride, protocol.recall(stride)):
        after = protocol.give_back(before, 2)
        assert (layout.ended_of(after), layout.started_of(after)) == (3, 4)
        assert layout.is_recalled(after)
        with pytest.raises(protocol.ProtocolError, match="give back"):
            protocol.give_back(after, 0)
    beyond = protocol.next_tasks(stride, layout.STRIDE, stride=False)
    assert (layout.ended_of(beyond), layout.started_of(beyond)) == (9, 10)
    assert (layout.owner_of(beyond), layout.generation_of(beyond)) == (3, 5)
