"""Copies of what is passed on again and again: one for all that are equal."""

from __future__ import annotations

import gc
import threading
from weakref import ref

import numpy as np
import pytest

from workpool.system import copies as module
from workpool.system.copies import CHUNK_NBYTES, Copies

NBYTES = 1 << 17


def test_what_stays_the_same_is_copied_once() -> None:
    copies, array = Copies(), np.arange(NBYTES, dtype=np.uint8)
    first = copies.copy(array.data)
    assert copies.copy(memoryview(array)) is first
    assert first == array.data
    assert not np.shares_memory(first, array)


@pytest.mark.parametrize("at", [0, NBYTES // 2, NBYTES - 1])
def test_what_has_changed_is_copied_anew(at: int) -> None:
    copies, array = Copies(), np.zeros(NBYTES, np.uint8)
    before = copies.copy(array.data)
    array[at] = 1
    after = copies.copy(array.data)
    assert before[at] == 0
    assert after[at] == 1
    array[at] = 2
    assert copies.copy(array.data)[at] == 2
    assert (before[at], after[at]) == (0, 1)


def test_a_part_that_begins_at_the_same_place_has_a_copy_of_its_own() -> None:
    copies, array = Copies(), np.arange(NBYTES, dtype=np.uint8)
    whole, part = copies.copy(array.data), copies.copy(array.data[: NBYTES // 2])
    assert (len(whole), len(part)) == (NBYTES, NBYTES // 2)


def test_nobody_can_write_to_a_copy() -> None:
    copied = Copies().copy(np.zeros(NBYTES, np.uint8).data)
    with pytest.raises(TypeError):
        copied[0] = 1
    assert not np.frombuffer(copied, np.uint8).flags.writeable


def test_a_copy_that_nobody_has_is_gone() -> None:
    copies, array = Copies(), np.zeros(NBYTES, np.uint8)
    gone = ref(copies.copy(array.data))
    gc.collect()
    assert gone() is None
    assert copies.copy(array.data) == array.data


def test_places_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES", 4)
    copies, array = Copies(), np.arange(64 * NBYTES, dtype=np.uint64)
    parts = [array[n * NBYTES : (n + 1) * NBYTES].view(np.uint8).data for n in range(64)]
    had = [copies.copy(part) for part in parts]
    assert all(copy == part for copy, part in zip(had, parts, strict=True))
    assert len(copies._known) <= 4
    assert copies.copy(parts[-1]) is had[-1]


CONTENT = np.random.default_rng(1).bytes(5 * CHUNK_NBYTES + 1000)


def changed(at: int, content: bytes = CONTENT) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def own_nbytes(pieces: list[memoryview], others: list[memoryview]) -> int:
    """Return how many bytes of the pieces are no part of the others."""
    return sum(len(it) for it in pieces if not any(np.shares_memory(it, o) for o in others))


@pytest.mark.parametrize("at", [0, CHUNK_NBYTES, 3 * CHUNK_NBYTES - 1, len(CONTENT) - 1])
def test_equal_chunks_of_contents_are_kept_once(at: int) -> None:
    copies = Copies()
    (whole,) = copies.pieces(CONTENT)
    assert whole == CONTENT
    for content in (changed(at), changed(at) + b"more", changed(at)[:-10]):
        pieces = copies.pieces(content)
        assert b"".join(pieces) == content
        assert own_nbytes(pieces, [whole]) <= CHUNK_NBYTES + 1004
        assert all(pieces)


def test_contents_that_are_mostly_different_are_kept_whole() -> None:
    copies = Copies()
    (whole,) = copies.pieces(CONTENT)
    other = changed(0, changed(CHUNK_NBYTES, changed(3 * CHUNK_NBYTES)))
    (alone,) = copies.pieces(other)
    assert alone == other
    assert own_nbytes(copies.pieces(changed(9, other)), [alone]) <= CHUNK_NBYTES + 1000
    assert own_nbytes(copies.pieces(changed(2 * CHUNK_NBYTES)), [whole]) <= CHUNK_NBYTES + 1000


def test_long_contents_are_compared_to_their_end() -> None:
    copies, content = Copies(), CONTENT * 8
    (whole,) = copies.pieces(content)
    assert own_nbytes(copies.pieces(changed(0, content)), [whole]) <= CHUNK_NBYTES + 8000


def test_pieces_keep_what_they_are_parts_of() -> None:
    copies = Copies()
    first = copies.pieces(bytes(CONTENT))
    second = copies.pieces(changed(0))
    del first
    gc.collect()
    third = copies.pieces(changed(1))
    assert own_nbytes(third, second) <= CHUNK_NBYTES + 1000
    assert b"".join(second) == changed(0)
    del second, third
    gc.collect()
    assert [known() for known in copies._wholes] == [None]


def test_it_is_soon_seen_that_contents_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    genuine = module._memcmp
    monkeypatch.setattr(module, "_memcmp", lambda *args: compared.append(args[2]) or genuine(*args))
    copies = Copies()
    kept = [copies.pieces(np.full(1 << 24, n, np.uint8).tobytes()) for n in range(10)]
    assert [len(pieces) for pieces in kept] == [1] * 10
    assert len(compared) <= 10 * module.WHOLES * module.DIFFERENT


def test_threads_get_what_was_there() -> None:
    copies = Copies()
    arrays = [np.full(NBYTES, n, np.uint8) for n in range(4)]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(200):
            if copies.copy(arrays[n % 4].data) != arrays[n % 4].data:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
