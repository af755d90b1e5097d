"""What a worker has of functions: restored once, and anew after a task that has changed them."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
from scripted import ALWAYS_THE_SAME, STATEFUL, define, looked_up_again

from workpool.errors import SerializationError
from workpool.serializer import Blocks, CallableCache, blocks, encode_blocks, states
from workpool.serializer.callables import _Restored
from workpool.serializer.code_cache import CodeCache
from workpool.serializer.snapshot import Snapshot


def restored(codes, fn, callables, code_id=1):
    return callables.add(code_id, memoryview(looked_up_again(codes, fn).data))


@pytest.mark.parametrize(
    "name",
    [
        *("counts", "deletes", "remembers", "has_attribute", "alters_other", "alters_default"),
        *("counts_in_cell", "counts_in_slot", "remembers_in_slot"),
        *("appends", "keeps_trace"),
    ],
)
def test_what_a_task_leaves_behind_is_gone_for_the_next(codes, name):
    callables = CallableCache()
    fn = restored(codes, getattr(define(STATEFUL), name), callables)
    results = [fn()] + [callables.get(1)() for _ in range(4)]
    assert set(results) == {1}


def test_what_is_checked_after_a_task_need_not_be_before_the_next(codes, monkeypatch):
    checks = []
    clean = _Restored.is_clean
    monkeypatch.setattr(_Restored, "is_clean", lambda self: checks.append(self) or clean(self))
    callables, made = CallableCache(), define(STATEFUL)
    fn, other = (restored(codes, getattr(made, name), callables, i) for i, name in NAMED)
    callables.check(0)
    assert callables.get(0) is fn
    assert len(checks) == 1
    callables.check(0)
    for meanwhile in (lambda: callables.get(1), callables.uncheck):
        callables.check(0)
        meanwhile()
        del checks[:]
        assert callables.get(0) is fn
        assert len(checks) == 1
    assert callables.get(1) is other
    other()
    callables.check(1)  # in vain
    assert callables.get(1)() == 1
    callables.check(99)
    assert callables.get(99) is None


NAMED = list(enumerate(("helper", "counts")))


@pytest.mark.parametrize(
    "name",
    [
        *("factorial", "even", "reads_atoms", "reads_generator", "closure", "local_recursive"),
        *("reads_slots", "reads_fixed", "calls_generic"),
    ],
)
def test_a_function_that_leaves_nothing_behind_is_restored_once(codes, name):
    callables = CallableCache()
    original = getattr(define(ALWAYS_THE_SAME), name)
    fn = restored(codes, original, callables)
    for _ in range(3):
        assert callables.get(1) is fn
        assert fn(4) == original(4)


def test_what_each_task_changes_is_looked_at_less_and_less_often(codes, monkeypatch):
    taken, asked = [], []
    take, holds = Snapshot.take, Snapshot.holds
    monkeypatch.setattr(Snapshot, "take", lambda *a, **k: taken.append(a) or take(*a, **k))
    monkeypatch.setattr(Snapshot, "holds", lambda self: asked.append(self) or holds(self))
    script = define("STATE = {}\ndef fn(key): STATE.setdefault(key, 1); return len(STATE)")
    data = looked_up_again(codes, script.fn).data
    callables = CallableCache()
    fn = callables.add(1, data)
    del taken[:], asked[:]
    for _ in range(200):
        assert fn("a") == 1
        callables.check(1)
        fn = callables.get(1)
    assert callables.restores == 201
    assert len(taken) == len(asked) - 1 < 10
    before = callables.restores
    for _ in range(200):  # from now on they change nothing
        assert len(fn.__globals__["STATE"]) == 0
        fn = callables.get(1)
    assert callables.restores - before < 64
    assert fn("a") == 1
    assert callables.get(1)("a") == 1


def test_what_is_known_as_a_whole_is_asked_little_for_each_array(monkeypatch):
    asked = []
    monkeypatch.setattr(states, "is_unchanging", lambda obj: asked.append(obj))
    value = {i: [np.full(2, i), np.float64(i)] for i in range(50)}
    known = states.known(value, states.MOST_NBYTES, whole=True)
    assert states.has_state(value, known.state, known.pickler)
    assert asked == []
    value[7][0][1] = 0
    assert not states.has_state(value, known.state, known.pickler)


def test_a_warning_is_given_once_and_is_no_trace(codes):
    callables = CallableCache()
    script = define("import warnings\ndef fn(): warnings.warn('old'); return len(globals())")
    fn = restored(codes, script.fn, callables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            callables.add(2, codes.lookup(script.fn).data)()  # as what goes whole with each task
            fn()
            assert callables.get(1) is fn
    assert len(caught) == 1


def test_a_named_callable_is_itself(codes):
    callables = CallableCache()
    assert callables.add(1, codes.lookup(math.sin).data) is math.sin
    assert callables.get(1) is math.sin


def test_functions_of_one_script_do_not_share_globals(codes):
    callables = CallableCache()
    made = define("N = 1\ndef first(): return N\ndef second(): return N")
    first = restored(codes, made.first, callables, 1)
    made.script["N"] = 2
    second = restored(codes, made.second, callables, 2)
    assert (first(), second()) == (1, 2)
    assert (callables.get(1)(), callables.get(2)()) == (1, 2)


def test_a_worker_forgets_the_least_recently_used():
    codes, callables = CodeCache(), CallableCache(capacity=2)
    for i in range(3):
        restored(codes, define(f"def fn(): return {i}").fn, callables, i)
        callables.get(0)
    assert callables.get(1) is None
    assert callables.get(0)() == 0
    assert callables.get(99) is None


def test_damaged_code_is_a_serialization_error():
    with pytest.raises(SerializationError, match="function"):
        CallableCache().add(1, b"\x80\x05nonsense")
    with pytest.raises(SerializationError, match="import"):
        CallableCache().add(1, b"\x80\x05cno_such_module\nfn\n.")


RESTORED = []


class Item:
    """Notes when it is restored."""

    def __init__(self, number):
        self.number = number

    def __setstate__(self, state):
        self.__dict__.update(state)
        RESTORED.append(self.number)


@pytest.mark.parametrize(("item_s", "long"), [(1e-3, True), (25e-6, True), (1e-6, False)])
def test_items_that_take_long_to_restore_are_not_restored_for_each_chunk(monkeypatch, item_s, long):
    monkeypatch.setattr(blocks, "monotonic", lambda: item_s * len(RESTORED))
    content = encode_blocks([Item(i) for i in range(20)], False, size=8)
    found = Blocks(content, lambda start, stop: content[start:stop])

    def restores(chunk, code=1):
        RESTORED.clear()
        numbers = [it.number for _, items in found.pieces(chunk, code) for it in items]
        assert numbers == [*chunk]
        return len(RESTORED)

    if not long:
        assert [restores(range(i, i + 1)) for i in range(20)] == [8] * 16 + [4] * 4
        return
    assert [restores(range(i, i + 1)) for i in range(4)] == [8, 0, 0, 0]
    assert restores(range(6, 7)) == 0, "others have taken those between"
    assert restores(range(7, 10)) == 8
    assert restores(range(10, 11), code=2) == 8, "they may refer to what was restored anew"
    assert restores(range(11, 12), code=2) == 0
    found.forget()
    assert restores(range(12, 13), code=2) == 8
    assert [restores(range(i, i + 2), code=2) for i in range(14, 20, 2)] == [0, 4, 0]


def test_a_function_that_finds_too_little_memory_is_not_said_to_be_damaged():
    class Exhausts:
        def __reduce__(self):
            return np.empty, (1 << 62, "u1")

    data = bytearray(pickle.dumps((None, Exhausts())))
    with pytest.raises(MemoryError):
        CallableCache().add(1, data)
