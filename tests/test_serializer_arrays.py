"""Arrays and NumPy's numbers come back as plain pickle brings them, and in fewer bytes."""

from __future__ import annotations

import copyreg
import pickle
import re
import subprocess
import sys
import types

import numpy as np
import pytest

from workpool.serializer import Blocks, arrays, encode_blocks, pack_value, segments, unpack
from workpool.serializer.frames import framed
from workpool.serializer.values import encode

CODES = "?bBhHiIlLqQefdgFDG"
SHAPES = [(), (0,), (3, 0, 2), (1, 1), (2, 3), (40, 1, 30)]


def both(value):
    """Return what comes back, and what plain pickle brings, in whichever place of an encoding."""
    buffers = []
    pickled = pickle.dumps(value, 5, buffer_callback=buffers.append)
    plain = pickle.loads(pickled, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    first, (_, nested), again = unpack(as_bytes([value, (1, {"": value}), value]))
    assert first is again
    assert first is nested[""]
    return unpack(as_bytes(value)), first, plain


def as_bytes(value):
    encoded = pack_value(value)
    return encoded if isinstance(encoded, bytes) else encoded.tobytes()


def facts(array):
    """Return what can be seen of an array or a number, but for whose memory it is in."""
    flags, dtype = array.flags, array.dtype
    content = array.tolist() if dtype.hasobject else array.tobytes()
    return (
        *(type(array), repr(dtype), dtype.metadata, array.shape, array.strides),
        *(flags.writeable, flags.aligned, repr(content), str(array)),
    )


LAYOUTS = {
    "C": np.asarray,
    "Fortran": np.asfortranarray,
    "backwards": lambda array: array[::-1] if array.ndim else array,
    "strided": lambda array: array[..., ::2] if array.ndim else array,
    "turned": lambda array: np.moveaxis(np.stack([array, array]), 0, -1),
    "broadcast": lambda array: np.broadcast_to(array, (2, *array.shape)),
    "relaxed": lambda array: np.lib.stride_tricks.as_strided(
        array, (1, *array.shape), (999, *array.strides)
    ),
    "swapped": lambda array: array.astype(array.dtype.newbyteorder()),
    "metadata": lambda array: array.view(np.dtype(array.dtype.str, metadata={"unit": "m"})),
    "subclass": lambda array: array.view(np.recarray),
    "masked": lambda array: np.ma.array(array, mask=array == 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", CODES)
def test_arrays_are_those_of_plain_pickle(code, layout):
    for shape in SHAPES:
        array = LAYOUTS[layout](np.full(shape, 3, code))
        for freeze in (False, True):
            if freeze:
                array.flags.writeable = False
            alone, among, plain = both(array)
            assert facts(alone) == facts(among) == facts(plain)


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a", None], object),
        np.array([np.arange(3.0), np.float32(1)], object),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1, 2], "M8[s]"),
        np.zeros(3, [("a", "i4"), ("b", "f8")]),
        np.zeros(3, [("a", "i4"), ("b", "f8")])["b"],
        np.zeros(1, "i4,f8")[0],
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.datetime64("2020-01-01"),
        np.timedelta64(3, "ms"),
        np.str_("text"),
        np.bytes_(b"bytes"),
        np.array([0x7FF0000000000123, 0xFFF8000000000456], "u8").view("f8"),
        np.array([0x7FF0000000000123], "u8").view("f8")[0],
        np.float64(-0.0),
        np.float16(-0.0),
        np.longdouble(1) / 3,
        np.clongdouble(1 - 2j) / 3,
        *(np.array(3).astype(code)[()] for code in CODES if code not in "qQ"),
    ],
    ids=lambda value: f"{type(value).__name__}-{value.dtype}",
)
def test_values_are_those_of_plain_pickle(value):
    alone, among, plain = map(facts, both(value))
    assert alone == among == plain


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", "?Bldg")
@pytest.mark.parametrize("nbytes", [32, 2048, 48_000])
def test_an_array_of_a_kind_that_is_known_is_that_of_plain_pickle(nbytes, code, layout):
    """Each comes twice, so that only the first of its kind is pickled as a whole."""
    first = np.arange(nbytes // np.dtype(code).itemsize).astype(code)
    second = first[::-1].copy()
    second.flags.writeable = False
    for array in (first, second, first.reshape(-1, 2), first, second, first[:0], first[:0]):
        array = LAYOUTS[layout](array)
        alone, among, plain = map(facts, both(array))
        assert alone == among == plain
        (argument,) = unpack(as_bytes((array,)))
        assert facts(argument) == plain


@pytest.mark.parametrize("value", [7, 0, 1])
@pytest.mark.parametrize("code", [code for code in CODES if code not in "qQ"])
def test_a_number_of_a_kind_that_is_known_is_that_of_plain_pickle(code, value):
    number = np.array([value]).astype(code)[0]
    for _ in range(2):
        alone, among, plain = map(facts, both(number))
        assert alone == among == plain
        (argument,) = unpack(as_bytes((number,)))
        assert facts(argument) == plain


@pytest.mark.parametrize("within", [True, False])
def test_what_is_of_a_known_kind_is_encoded_to_the_same_bytes(within):
    values = [np.arange(4.0), np.zeros((2, 2), "?"), np.array(5)]
    for value in [*values, *([np.float32(3), np.zeros(0)] if within else [])]:
        for obj in (value, (value,)):
            whole = arrays.dumps_by_makers(obj, lambda _: within)
            if not within:
                whole = framed(whole, [pickle.PickleBuffer(value).raw()]).tobytes()
            for _ in range(3):
                encoded = encode(obj, within_nbytes=1 << 16 if within else 1)
                assert b"".join(segments(encoded)) == whole


@pytest.mark.parametrize("code", CODES)
def test_numbers_and_small_arrays_take_few_bytes(code):
    array = np.ones(3, code)
    for value in (array, (array,), [1, 2, 3, 4, 5, 6, 7, array], array[0], [(1, array[0]), {}]):
        encoded = pack_value(value)
        assert b"numpy" not in encoded
        assert len(encoded) < len(pickle.dumps(value, 5)) - 50
    restored = unpack(pack_value(array[0]))
    assert type(restored) is type(array[0])
    assert restored == array[0]


@pytest.mark.parametrize("chunk", [list(np.arange(256.0)), list(np.ones((256, 4)))])
def test_a_chunk_takes_no_more_bytes_than_a_plain_pickle(chunk):
    encoded = pack_value(chunk)
    assert len(encoded) < len(pickle.dumps(chunk, 5))
    assert np.array_equal(unpack(encoded), chunk)


class Counted:
    """Knows how it is pickled only from `copyreg`."""

    def __init__(self):
        self.made_by = "hand"


Counted.__module__ = "counted"


def make_counted():
    made = Counted()
    made.made_by = "copyreg"
    return made


make_counted.__module__ = "counted"


@pytest.fixture
def counted(monkeypatch):
    module = types.ModuleType("counted")
    module.Counted, module.make_counted = Counted, make_counted
    monkeypatch.setitem(sys.modules, "counted", module)


@pytest.mark.parametrize("array", [np.arange(3), np.float32(1)])
def test_reducers_in_copyreg_hold_next_to_arrays(array, counted, monkeypatch):
    monkeypatch.setitem(copyreg.dispatch_table, Counted, lambda it: (make_counted, ()))
    others = [re.compile("a"), int | str, np.add, 1j]
    encoded = encode([array, Counted(), *others], by_value=False)
    _, restored, *same = unpack(encoded)
    assert restored.made_by == "copyreg"
    assert same == others


@pytest.mark.parametrize("value", [np.arange(3), np.arange(3000), np.float32(1)])
def test_reducers_in_copyreg_of_numpy_types_hold(value, counted, monkeypatch):
    pack_value(value)
    monkeypatch.setitem(copyreg.dispatch_table, type(value), lambda it: (make_counted, ()))
    for restored in (unpack(pack_value(value)), *unpack(pack_value((value, [value])))[:1]):
        assert restored.made_by == "copyreg"
    monkeypatch.undo()
    assert np.array_equal(unpack(as_bytes(value)), value)


def test_an_array_that_warns_who_writes_to_it_makes_no_other_read_only():
    warns, _ = np.broadcast_arrays(np.arange(1000.0), np.ones((1, 1000)))
    for array in (warns, np.zeros((1, 1000)), warns):
        restored, _, plain = both(array)
        assert facts(restored) == facts(plain)


def test_kinds_of_arrays_are_not_remembered_without_end():
    for length in range(500, 500 + 2 * arrays._MOST):
        assert unpack(as_bytes(np.ones(length))).shape == (length,)
        assert len(arrays._kinds) <= arrays._MOST


@pytest.mark.parametrize("numpy", [None, types.ModuleType("numpy"), types.SimpleNamespace(dtype=1)])
def test_what_is_not_numpy_or_not_yet_is_no_error(numpy, monkeypatch):
    monkeypatch.setattr(arrays, "_reducers", {})
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "numpy", numpy)
        assert encode((1, "text"), by_value=False) == pickle.dumps((1, "text"), 5)
    assert b"numpy" not in pack_value(np.arange(3))


def in_a_new_process(program):
    return subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)


def test_numpy_is_imported_by_whoever_restores_an_array_first():
    for value in (np.arange(3), np.float32(1)):
        program = f"""if 1:
            import sys
            from workpool.serializer import pack_value, unpack
            pack_value((1, "text"))
            assert "numpy" not in sys.modules
            print(repr(unpack({pack_value(value)!r})))
        """
        assert in_a_new_process(program).strip() == repr(value)


def test_numbers_are_seen_in_lists_that_are_items_or_arguments():
    several = [np.int64(n) for n in range(100)]
    for obj in ([several], (several,), [(several[0], 1)]):
        assert len(encode(obj)) < 0.9 * len(pickle.dumps(obj, 5))
    assert not arrays.has_arrays([[1, 2], ("text",)])


def test_what_is_scattered_is_copied_once():
    """A tile of an image, say: the copy is not copied into a pickle."""
    tile = np.zeros((200, 200))[:100, :100]
    assert [tile.nbytes in map(len, segments(encode(it))) for it in (tile, [tile])] == [True, True]
    large = np.zeros((400, 400))[:200, :200]
    assert isinstance(encode(large), bytes), "which many waiting tasks may share"


def test_arrays_of_some_kilobytes_share_a_block():
    arrays = [np.full(1000, n, float) for n in range(20)] + [np.zeros((30, 30), order="F")]
    arrays[0].flags.writeable = False
    assert encode_blocks([*arrays, np.zeros(1 << 11)], False, size=4) is None, "sent one by one"
    encoded = encode_blocks(arrays, False, size=4)
    blocks = Blocks(encoded, lambda start, stop: encoded[start:stop])
    ((_, restored),) = blocks.pieces(range(len(arrays)))
    assert [array.flags.writeable for array in restored] == [False] + 20 * [True]
    assert all(map(np.array_equal, restored, arrays))
    assert restored[-1].flags.f_contiguous
    assert all(array.flags.aligned for array in restored)
