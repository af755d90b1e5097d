"""A pool's journals step by step: how often a record is read, and who comes in between."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stepped_pool import Make, note, ran

from workpool.journal import ledger
from workpool.journal.journal import Journal
from workpool.journal.ledger import Ledgers


class Alarm(Exception):
    """What a signal's handler raises."""


class Late:
    """Is restored as what `restored` says."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, ()


late: list[int] = []  # signals that come while one is restored


def restored() -> str:
    if late:
        signal.raise_signal(late.pop())
    return "late"


def make_late(item: int) -> Late:
    ran[item] += 1
    return Late()


@pytest.fixture
def alarm() -> Iterator[None]:
    """Have a handler that raises."""

    def handler(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("unordered", [False, True])
def test_a_record_that_no_cache_holds_is_restored_once_for_many_results(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unordered: bool
) -> None:
    pool = make(journal=tmp_path / "run.db")
    assert list(pool.map(note, range(200), schedule="static")) == list(range(200))
    pool.close()
    ran.clear()
    restored: list[object] = []
    unpack_outcome = ledger.unpack_outcome

    def unpack(kind: int, content: Any, task: object) -> Any:
        restored.append(content)
        return unpack_outcome(kind, content, task)

    monkeypatch.setattr(ledger, "_LISTS_NBYTES", 1)
    monkeypatch.setattr(ledger, "unpack_outcome", unpack)
    found = list(make(journal=tmp_path / "run.db").map(note, range(200), unordered=unordered))
    assert found == list(range(200))
    assert not ran
    assert len(restored) == 2  # one chunk for each worker


@pytest.mark.usefixtures("alarm")
def test_what_a_handler_raises_is_no_outcome_of_a_call_that_is_done(
    make: Make, tmp_path: Path
) -> None:
    pool = make(journal=tmp_path / "run.db")
    assert pool.submit(make_late, 1).result() == "late"
    pool.close()
    pool = make(journal=tmp_path / "run.db")
    late.append(signal.SIGALRM)
    with pytest.raises(Alarm):
        pool.submit(make_late, 1)
    assert ran == {1: 1}


@pytest.mark.usefixtures("alarm")
def test_what_a_handler_raises_while_results_are_stored_is_not_theirs(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Journal.store

    def interrupted(journal: Journal, entries: Any) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGALRM)
        store(journal, entries)

    monkeypatch.setattr(Ledgers, "due", False)  # the submit stores nothing
    monkeypatch.setattr(Journal, "store", interrupted)
    pool = make(journal=tmp_path / "run.db")
    future = pool.submit(note, 1)
    with pytest.raises(Alarm):
        future.result()
    assert future.result() == 1
    pool.close()
    assert make(journal=tmp_path / "run.db").submit(note, 1).result() == 1
    assert ran == {1: 1}
