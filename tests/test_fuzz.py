"""Whatever bytes stand where a reader looks: it answers, or it raises an error of ours."""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from steps import after

from workpool import layout, protocol
from workpool.errors import LayoutError, ProtocolError, SerializationError, WorkPoolError
from workpool.layout import DESCRIPTOR_NBYTES, OUTCOME_NBYTES, Geometry
from workpool.loss import Loss
from workpool.protocol import State, Step
from workpool.serializer import (
    Blocks,
    Kind,
    encode_blocks,
    pack_value,
    unpack,
    unpack_call,
    unpack_outcome,
)

WORDS = st.integers(0, 2**63 - 1)

fuzz = settings(
    max_examples=300, deadline=5000, database=None, suppress_health_check=list(HealthCheck)
)


@given(WORDS, st.sampled_from(Step), st.integers(1, layout.MAX_MEMBERS - 1))
@fuzz
def test_any_control_word_makes_a_step_of_the_table_or_none(
    word: int, step: Step, owner: int
) -> None:
    protocol.describe(word)
    states = [state for state in State if state == layout.state_of(word)]
    try:
        found = protocol.claim(word, owner) if step is Step.CLAIM else after(word, step)
    except ProtocolError:
        return
    assert protocol.TRANSITIONS[states[0], step] == layout.state_of(found)
    assert layout.generation_of(found) == layout.generation_of(word)
    assert 0 <= found < 2**63


@given(st.binary(min_size=40, max_size=40))
@fuzz
def test_no_other_table_is_taken_for_ours(record: bytes) -> None:
    geometry = Geometry(16, 3, 1 << 20)
    if record != geometry.identity():
        with pytest.raises(LayoutError):
            geometry.check_identity(record)


@given(st.binary(min_size=DESCRIPTOR_NBYTES, max_size=DESCRIPTOR_NBYTES))
@fuzz
def test_records_keep_every_bit(record: bytes) -> None:
    """A record is plain numbers: what is read is what is written, however senseless."""
    descriptor, inline = layout.read_descriptor(memoryview(record))
    assert layout.write_descriptor(descriptor, bytes(inline)) == record
    outcome = layout.read_outcome(memoryview(record))
    inline = bytes(layout.inline_outcome(memoryview(record), layout.INLINE_OUTCOME_NBYTES))
    place = layout.write_extent(layout.read_place(memoryview(record)))
    assert layout.write_outcome(*outcome, inline) + place == record[:OUTCOME_NBYTES]
    piece = layout.read_piece(memoryview(record))
    assert record.startswith(layout.write_piece(piece))


@given(st.binary(max_size=200))
@fuzz
@example(struct.pack("<IIQ", 0, 2**32 - 1, 0))
def test_outcomes_of_a_batch_never_reach_beyond_their_bytes(content: bytes) -> None:
    try:
        entries = layout.read_task_outcomes(memoryview(content))
    except LayoutError:
        return
    assert sum(len(encoded) for _, _, encoded in entries) <= len(content)


def tame(pickled: bytes) -> bytes:
    """Return some bytes without an opcode that makes unpickling take as much memory as it names."""
    return pickled.replace(pickle.LONG_BINPUT, b"\0")


def hurt(content: bytes, at: int, value: int, cut: int) -> bytes:
    """Return some bytes with one of them changed, and some of the end cut off."""
    damaged = bytearray(content)
    damaged[at % len(damaged)] ^= value
    return tame(bytes(damaged[: len(damaged) - cut % len(damaged)]))


SAMPLES = [None, 17, "text", [1, {"a": (2.5, b"x" * 40)}], np.zeros(9000)]
PLACES = st.tuples(st.sampled_from(SAMPLES), *[st.integers(0, 1 << 20)] * 3)


def reads_or_refuses(read: Callable[[], Any]) -> None:
    """See that a reader ends, and that what it raises is an error of ours.

    Or of memory: a damaged length may be more than there is.
    """
    with contextlib.suppress(WorkPoolError, MemoryError):
        read()


@given(PLACES)
@fuzz
def test_damaged_calls_and_outcomes(case: tuple[object, int, int, int]) -> None:
    sample, at, value, cut = case
    packed = pack_value(sample)
    whole = packed if isinstance(packed, bytes) else packed.tobytes()
    damaged = hurt(whole, at, value % 255 + 1, cut)
    reads_or_refuses(lambda: unpack(damaged))
    reads_or_refuses(lambda: unpack_call(damaged))
    for kind in (*Kind, 17):
        value_, error = unpack_outcome(kind, damaged)
        assert error is None or (value_ is None and isinstance(error, BaseException))


@given(st.binary(max_size=300), st.integers(0, 40))
@fuzz
def test_random_bytes_are_no_calls_and_no_outcomes(content: bytes, kind: int) -> None:
    content = tame(content)
    reads_or_refuses(lambda: unpack(content))
    reads_or_refuses(lambda: unpack_call(content))
    _, error = unpack_outcome(kind, content)
    if kind not in (Kind.VALUE, Kind.EXCEPTION, Kind.BROKEN):
        assert isinstance(error, SerializationError)


@given(st.integers(0, 1 << 20), st.integers(0, 254), st.integers(0, 1 << 20))
@fuzz
def test_damaged_blocks(at: int, value: int, cut: int) -> None:
    content = encode_blocks(list(range(1000)), False)
    assert content is not None
    damaged = hurt(content, at, value + 1, cut)

    def read() -> None:
        blocks = Blocks(damaged, lambda start, stop: damaged[start:stop])
        list(blocks.pieces(range(min(10, blocks.total))))

    reads_or_refuses(read)


@given(st.binary(max_size=100))
@fuzz
def test_random_bytes_are_no_loss(content: bytes) -> None:
    reads_or_refuses(lambda: Loss.decode(tame(content)).error("task"))
