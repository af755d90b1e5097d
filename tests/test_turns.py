"""What a worker reports of a turn: how much, and that arrays go as they are and come as views."""

from __future__ import annotations

import numpy as np
import pytest
from stepped_pool import Make

from workpool.serializer import Encoded, Packed, as_bytes, pack_value, unpack
from workpool.turns import Part, Turn
from workpool.worker import ranges
from workpool.worker.ranges import TURN_NBYTES


@pytest.mark.parametrize("kept", [False, True])
def test_large_arrays_among_the_results_of_a_turn_are_not_copied(kept: bool) -> None:
    arrays = [np.arange(10_000.0) + n for n in range(3)]
    results = [pack_value([n, array]) for n, array in enumerate(arrays)]
    if kept:
        results[:2] = map(as_bytes, results[:2])
    parts = [Part(2 * n, 1, each) for n, each in enumerate(results)]
    encoded = Turn(parts, b"failed", True, []).encoded()
    assert isinstance(encoded, Packed)
    sent = [np.frombuffer(each, "u1") for each in encoded.segments]
    assert any(np.shares_memory(each, arrays[2]) for each in sent)

    memory = np.frombuffer(bytearray(len(encoded) + 64), "u1")
    received = memory[-memory.ctypes.data % 64 :][: len(encoded)]
    received[:] = np.frombuffer(as_bytes(encoded), "u1")
    found = Turn.decode(memoryview(received))
    assert (found.failed, found.exhausted, found.covered) == (b"failed", True, [])
    assert [part[:2] for part in found.parts] == [(0, 1), (2, 1), (4, 1)]
    for n, part in enumerate(found.parts):
        number, array = unpack(part.encoded)
        assert number == n
        assert np.array_equal(array, arrays[n])
        assert np.shares_memory(array, received)
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0


@pytest.mark.parametrize("results", [[], [[1], ["a", None]], [[np.zeros(600)]], [["a" * 100_000]]])
def test_small_results_and_those_without_arrays_are_bytes(results: list[list[object]]) -> None:
    parts = [Part(n, len(each), pack_value(each)) for n, each in enumerate(results)]
    encoded = Turn(parts, None, False, [(0, 9)]).encoded()
    assert isinstance(encoded, bytes)
    found = Turn.decode(encoded)
    assert (found.failed, found.exhausted, found.covered) == (None, False, [(0, 9)])
    assert [part[:2] for part in found.parts] == [(n, len(each)) for n, each in enumerate(results)]
    assert str([unpack(part.encoded) for part in found.parts]) == str(results)


def test_what_a_result_needs_is_held_until_the_turn_is_sent() -> None:
    result = pack_value([np.zeros(10_000)])
    assert isinstance(result, Packed)
    encoded = Turn([Part(0, 1, result)], None, False, []).encoded()
    assert isinstance(encoded, Packed)
    assert result in encoded.held


def test_a_turn_ends_with_so_many_bytes_of_results(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(turn: Turn) -> Encoded:
        reported.append(sum(len(part.encoded) for part in turn.parts))
        return encoded(turn)

    encoded, reported, nbytes = Turn.encoded, list[int](), TURN_NBYTES // 10
    monkeypatch.setattr(Turn, "encoded", noted)
    monkeypatch.setattr(ranges, "monotonic", lambda: 5.0)  # else it ends with its time
    pool = make(workers=1, arena_nbytes=16 * TURN_NBYTES)
    assert list(pool.map(bytes, [nbytes] * 50, schedule="self")) == [bytes(nbytes)] * 50
    assert TURN_NBYTES <= max(reported) < TURN_NBYTES + 2 * nbytes
