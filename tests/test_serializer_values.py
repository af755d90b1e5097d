"""Values to frames and back: forms, alignment, no copies, damaged encodings."""

from __future__ import annotations

import mmap
import pickle
import random
import signal
import socket
import struct
import sys
import types

import cloudpickle
import numpy as np
import pytest

from workpool.errors import SerializationError
from workpool.serializer import Packed, as_bytes, compact, join, pack_value, split, unpack
from workpool.serializer.frames import ALIGNMENT, SHARED_NBYTES, framed

LARGE = 1 << 15  # of doubles: 256 KiB


def aligned(nbytes):
    """Return a writable uint8 array that begins at a multiple of 64."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + nbytes]


def received(encoded):
    """Return an encoding as it arrives: in one aligned, writable piece of memory."""
    pieces = [encoded] if isinstance(encoded, bytes) else encoded.segments
    memory = aligned(len(encoded))
    memory[:] = np.frombuffer(b"".join(pieces), np.uint8)
    return memory


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 1.5, "text", b"", b"x" * 10_000, (), (1, 2.0), {"a": [1]}, {1, 2}, 2**200],
    ids=lambda value: repr(value)[:12],
)
def test_small_values_are_plain_pickles(value):
    encoded = pack_value(value)
    assert isinstance(encoded, bytes)
    assert pickle.loads(encoded) == value
    for buffer in (encoded, bytearray(encoded), memoryview(encoded), received(encoded)):
        assert unpack(buffer) == value


def test_items_wider_than_a_byte_are_cast():
    encoded = received(pack_value("1234567" * 8)).tobytes()
    padded = encoded + bytes(-len(encoded) % 8)
    assert unpack(np.frombuffer(padded, np.int64)) == "1234567" * 8


def test_a_small_array_stays_in_the_pickle_and_is_writable():
    encoded = pack_value(np.arange(16.0))
    assert isinstance(encoded, bytes)
    restored = unpack(encoded)
    restored[0] = 5.0
    assert restored[0] == 5.0


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_array_is_not_copied(order):
    array = np.asarray(np.arange(LARGE, dtype=float).reshape(128, -1), order=order)
    encoded = pack_value({"array": array})
    assert isinstance(encoded, Packed)
    segments = encoded.segments
    assert any(np.shares_memory(np.frombuffer(s, np.uint8), array) for s in segments if len(s))
    assert sum(len(s) for s in segments) == encoded.nbytes == len(encoded)
    assert encoded.nbytes < array.nbytes + 1024

    memory = received(encoded)
    restored = unpack(memory)["array"]
    assert np.array_equal(restored, array)
    assert restored.flags[f"{order}_CONTIGUOUS"]
    assert restored.flags.writeable
    assert np.shares_memory(restored, memory)
    assert restored.ctypes.data % ALIGNMENT == 0


def test_the_restored_array_keeps_the_memory_alive():
    restored = unpack(received(pack_value(np.full(LARGE, 7.0))))
    noise = [np.zeros(LARGE) for _ in range(8)]
    assert (restored == 7.0).all()
    assert len(noise) == 8


def test_every_frame_is_aligned():
    arrays = [np.arange(n, dtype=np.uint8) for n in (4096, 4097, 5001, 100, 10_007)]
    memory = received(pack_value(arrays))
    restored = unpack(memory)
    for before, after in zip(arrays, restored, strict=True):
        assert np.array_equal(before, after)
        if len(before) >= 4096:
            assert after.ctypes.data % ALIGNMENT == 0
            assert np.shares_memory(after, memory)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2.0 * LARGE)[::2],
        np.arange(LARGE).astype("datetime64[s]"),
        np.array([None, "x"] * LARGE, dtype=object),
    ],
    ids=["strided", "datetime64", "object"],
)
def test_arrays_without_a_contiguous_buffer_go_in_the_pickle(array):
    encoded = pack_value(array)
    assert isinstance(encoded, bytes)
    assert np.array_equal(unpack(encoded), array)


def test_a_structured_array_goes_out_of_band():
    array = np.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8")])
    array["b"] = np.arange(LARGE)
    encoded = pack_value(array)
    assert isinstance(encoded, Packed)
    assert np.array_equal(unpack(received(encoded)), array)


def test_a_read_only_array_stays_read_only():
    array = np.zeros(LARGE)
    array.flags.writeable = False
    assert not unpack(received(pack_value(array))).flags.writeable


def test_an_array_sent_twice_is_one_array():
    array = np.zeros(LARGE)
    first, second = unpack(received(pack_value([array, array])))
    assert first is second


def test_read_only_memory_is_copied_so_that_arrays_are_writable():
    encoded = pack_value(np.zeros(LARGE)).tobytes()
    restored = unpack(encoded)
    restored[0] = 1.0
    assert unpack(encoded)[0] == 0.0


def test_tobytes_is_independent_of_the_array():
    array = np.zeros(LARGE)
    encoded = pack_value(array)
    joined = encoded.tobytes()
    array[:] = 1.0
    assert unpack(joined)[0] == 0.0
    assert unpack(received(encoded))[0] == 1.0


def test_lengths_are_64_bit(tmp_path):
    with (tmp_path / "empty").open("wb+") as file:
        file.truncate(5 << 30)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with memory, memoryview(memory) as content:
        packed = framed(b"\x80\x05.", [content, content])
        assert packed.nbytes > 10 << 30
        assert packed.segments[-1].nbytes == 5 << 30
        del packed


@pytest.mark.parametrize("nbytes", [LARGE, SHARED_NBYTES])
def test_what_is_kept_does_not_change_with_the_callers_array(nbytes):
    array = np.arange(nbytes, dtype="u1")
    packed = pack_value(("as it is now", array))
    kept = packed.keep()
    assert kept is not packed
    assert kept is (kept if isinstance(kept, bytes) else kept.keep())
    array[:] = 0
    _, restored = unpack(bytearray(as_bytes(kept)))
    assert np.array_equal(restored, np.arange(nbytes, dtype="u1"))


def test_what_several_keep_is_kept_once():
    array, small = np.zeros(SHARED_NBYTES), np.zeros(LARGE, "u1")
    kept = [pack_value((n, small, array)).keep() for n in range(3)]
    array[-1] = 1
    kept.append(pack_value((3, small, array)).keep())
    frames = [{id(s) for s in each.segments if isinstance(s, memoryview)} for each in kept]
    assert frames[0] == frames[1] == frames[2]
    assert len(frames[0]) == len(frames[3]) == 1
    assert not frames[0] & frames[3]
    restored = [unpack(bytearray(as_bytes(each))) for each in kept]
    assert [(n, values[-1]) for n, _, values in restored] == [(0, 0), (1, 0), (2, 0), (3, 1)]


def test_calls_with_a_large_argument_in_common_share_most_of_what_is_kept():
    common, array = {str(n): float(n) for n in range(30_000)}, np.zeros(LARGE)
    kept = [compact(pack_value((n, common))) for n in range(10)]
    kept += [pack_value((n, common, array)).keep() for n in range(10, 20)]
    common["0"] = -1.0
    kept.append(compact(pack_value((20, common))))
    array[0] = 1
    owners = {}
    for each in kept:
        for piece in each.segments:
            owner = piece if isinstance(piece, bytes) else piece.obj
            while isinstance(getattr(owner, "base", None), np.ndarray):
                owner = owner.base
            owners[id(owner)] = memoryview(owner).nbytes
    assert sum(owners.values()) < 6 * len(as_bytes(kept[0]))
    restored = [unpack(bytearray(as_bytes(each))) for each in kept]
    assert [n for n, *_ in restored] == [*range(21)]
    assert [common["0"] for _, common, *_ in restored] == [0.0] * 20 + [-1.0]
    assert all(dict(it[1], **{"0": -1.0}) == common for it in restored)
    assert not any(values[0] for _, _, values in restored[10:20])


def test_a_small_pickle_is_kept_as_it_is():
    assert compact(b"content") == b"content"
    assert type(compact(b"content")) is bytes


class Owner(bytearray):
    """Restores itself from the object to which its buffer belongs, as the example of PEP 574."""

    def __reduce_ex__(self, protocol):
        return Owner.of, (pickle.PickleBuffer(self),)

    @classmethod
    def of(cls, buffer):
        with memoryview(buffer) as view:
            return cls(view.obj)


def test_a_buffer_belongs_to_what_has_its_bytes_alone():
    owners = Owner(b"12" * LARGE), Owner(b"3" * LARGE)
    assert unpack(received(pack_value(owners))) == owners


def test_what_is_lent_is_not_copied_to_be_kept():
    packed = pack_value(np.zeros(SHARED_NBYTES))
    packed.lent = True
    assert packed.keep() is packed


@pytest.mark.parametrize("large", [False, True])
def test_what_pickle_cannot_goes_by_value(large):
    array = np.arange(LARGE if large else 3)
    fn, restored = unpack(received(pack_value([lambda x: x + 1, array])))
    assert fn(1) == 2
    assert np.array_equal(restored, array)


def test_a_second_attempt_starts_without_frames():
    array = np.arange(LARGE)
    encoded = pack_value([array, lambda: 1])
    assert encoded.nbytes < array.nbytes + 4096
    assert np.array_equal(unpack(received(encoded))[0], array)


def test_a_module_registered_by_value_is_not_imported(monkeypatch):
    module = types.ModuleType("only_on_the_driver")
    exec("class Thing:\n    answer = 42\ndef fn(): return Thing.answer", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    try:
        encoded = pack_value([module.fn, module.Thing()])
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, module.__name__)
    fn, thing = unpack(encoded)
    assert fn() == thing.answer == 42


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class Raises:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), GeneratorExit(), TypeError()])
def test_errors_in_reduce_become_serialization_errors(error):
    with pytest.raises(SerializationError, match="Raises") as caught:
        pack_value(Raises(error))
    assert caught.value.__cause__ is error


def test_keyboard_interrupt_passes():
    with pytest.raises(KeyboardInterrupt):
        pack_value(Raises(KeyboardInterrupt()))


def test_deep_recursion_is_a_serialization_error():
    with pytest.raises(SerializationError):
        pack_value(nested(200_000))


def test_an_unpicklable_object_is_a_serialization_error():
    with (
        socket.socket() as unpicklable,
        pytest.raises(SerializationError, match="socket") as caught,
    ):
        pack_value(unpicklable)
    assert isinstance(caught.value.__cause__, TypeError)


class Exits:
    def __reduce__(self):
        return sys.exit, (3,)


def test_errors_while_unpickling_become_serialization_errors():
    with pytest.raises(SerializationError) as caught:
        unpack(pack_value(Exits()))
    assert isinstance(caught.value.__cause__, SystemExit)


# Damaged encodings


@pytest.mark.parametrize("buffer", [b"", bytearray(), memoryview(b""), b"\x00", b"\x02abc"])
def test_foreign_bytes_are_refused(buffer):
    with pytest.raises(SerializationError, match="cannot decode"):
        unpack(buffer)


def test_every_truncation_is_noticed():
    encoded = pack_value([np.zeros(600), np.ones(700), "text"]).tobytes()
    step = 1 if len(encoded) < 400 else 7
    for n in [*range(300), *range(300, len(encoded), step)]:
        with pytest.raises(SerializationError):
            unpack(encoded[:n])
    with pytest.raises(SerializationError, match="arrived as"):
        unpack(encoded + b"\x00")


def test_where_an_encoding_is_cut_is_said():
    encoded = pack_value([np.zeros(600)] + [np.ones(600)] * 9).tobytes()
    for nbytes, where in ((10, "inside its head"), (20, "inside its table"), (2000, "arrived as")):
        with pytest.raises(SerializationError, match=where):
            unpack(encoded[:nbytes])


def test_every_truncation_of_a_plain_encoding_is_noticed():
    encoded = pack_value(["text", 1.0, {"a": 2}])
    for n in range(len(encoded)):
        with pytest.raises(SerializationError):
            unpack(encoded[:n])


def test_random_frame_tables_are_refused():
    chance = random.Random(20)
    for _ in range(3000):
        damaged = bytearray(b"\x01" + chance.randbytes(chance.randrange(200)))
        if chance.random() < 0.5 and len(damaged) >= 16:  # a plausible head before the noise
            struct.pack_into("<IQ", damaged, 4, chance.randrange(8), chance.randrange(200))
        with pytest.raises(SerializationError):
            unpack(damaged)


def test_huge_lengths_allocate_nothing():
    for frames, pickled in ((2**32 - 1, 0), (0, 2**64 - 1), (1, 2**63)):
        head = struct.pack("<BxxxIQ", 1, frames, pickled) + struct.pack("<Q", 2**64 - 1)
        with pytest.raises(SerializationError):
            unpack(bytearray(head))


def test_flipped_bits_of_the_table_are_noticed_or_harmless():
    arrays = [np.zeros(600), np.ones(700)]
    encoded = pack_value(arrays).tobytes()
    for bit in range(8 * 32):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            restored = unpack(damaged)
        except SerializationError:
            continue
        assert all(np.array_equal(a, b) for a, b in zip(arrays, restored, strict=True))


def test_what_a_signals_handler_raises_is_no_damage():
    class Rings:
        def __reduce__(self):
            return signal.raise_signal, (int(signal.SIGALRM),)

    before = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    try:
        with pytest.raises(ZeroDivisionError):
            split(join([Rings()]))
    finally:
        signal.signal(signal.SIGALRM, before)
