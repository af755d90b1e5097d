"""Codes in memory: how many are kept and for how long, in the driver and in a worker."""

from __future__ import annotations

import gc
import math
import sys
import threading
import tracemalloc
import weakref

import pytest
from scripted import ALWAYS_THE_SAME, define, looked_up_again

from workpool.errors import SerializationError
from workpool.serializer import CallableCache, CodeCache, load_callable, unpack_call
from workpool.serializer.callables import _Restored

# Memory and identity


def test_ids_are_never_used_again(codes):
    seen = set()
    for i in range(300):
        fn = define(f"def fn(): return {i}").fn
        code = looked_up_again(codes, fn)
        assert code.code_id not in seen
        assert load_callable(code.data)() == i
        seen.add(code.code_id)


def test_the_least_recently_used_code_makes_room():
    codes = CodeCache(capacity=3)
    first, *others = (define(f"def fn(): return {i}").fn for i in range(6))
    kept = looked_up_again(codes, first)
    for fn in others:
        looked_up_again(codes, fn)
        assert codes.lookup(first) is kept
    assert codes.lookup(others[0]) is not None  # anew, since it was seen before


def test_bytes_are_bounded():
    codes = CodeCache(max_nbytes=10_000)
    make = "def make(text):\n    def fn(): return text\n    return fn"
    small, large = (define(make).make("x" * n) for n in (1000, 20_000))
    assert looked_up_again(codes, small) is codes.lookup(small)
    assert looked_up_again(codes, large) is None
    made = [
        weakref.ref(looked_up_again(codes, define(make).make("x" * (1000 + i)))) for i in range(20)
    ]
    gc.collect()
    assert 0 < sum(len(code.data) for one in made if (code := one()) is not None) <= 10_000


def test_a_code_dies_when_nobody_needs_it():
    codes = CodeCache(capacity=1)
    released = []
    code = looked_up_again(codes, define("def fn(): pass").fn)
    weakref.finalize(code, released.append, code.code_id)
    looked_up_again(codes, define("def fn(): return 1").fn)
    gc.collect()
    assert not released
    code_id = code.code_id
    del code
    gc.collect()
    assert released == [code_id]


def test_many_lambdas_do_not_grow_memory(codes):
    def submit(n, twice):
        for i in range(n):
            fn = lambda: i  # noqa: B023, E731
            codes.lookup(fn)
            if twice:
                codes.lookup(fn)

    tracemalloc.start()
    try:
        submit(2000, twice=False)  # both memories are full from here on
        submit(600, twice=True)
        full, _ = tracemalloc.get_traced_memory()
        submit(20_000, twice=False)
        submit(1000, twice=True)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - full < 200_000  # a leak of 100 bytes each would be 2 MB


def test_many_living_functions_that_are_seen_once_do_not_grow_memory(codes):
    functions = [lambda n=n: n for n in range(20_000)]
    tracemalloc.start()
    try:
        for fn in functions[:5000]:
            codes.lookup(fn)
        full, _ = tracemalloc.get_traced_memory()
        for fn in functions[5000:]:
            codes.lookup(fn)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - full < 200_000  # to remember them would take 2 MB


def test_a_new_function_at_the_address_of_a_dead_one_is_new(codes):
    assert [codes.lookup(lambda: 1) for _ in range(100)] == [None] * 100


def test_a_change_while_the_code_is_made_ends_it(codes):
    made = define("N = 1\ndef fn(): return N")

    class Changes:
        def __reduce__(self):
            made.script["N"] = 2
            return int, ()

    made.fn.__annotations__["return"] = Changes()
    assert looked_up_again(codes, made.fn) is None
    assert load_callable(codes.lookup(made.fn).data)() == 2


def test_threads_may_share_a_cache():
    codes = CodeCache(capacity=4)
    fns = [define(f"def fn(): return {i}").fn for i in range(8)]
    failures = []

    def submit():
        for _ in range(200):
            for i, fn in enumerate(fns):
                code = codes.lookup(fn)
                if code is not None and load_callable(code.data)() != i:
                    failures.append(i)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture
def restless():
    """Have threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_other_threads_may_change_what_a_function_reads(codes, restless):
    made = define("class Box:\n def get(self): return 5\ndef fn(): return Box().get()")
    for i in range(500):  # to look at all takes a while
        setattr(made.Box, f"own_{i}", i)
    over = threading.Event()

    def change():
        while not over.is_set():
            for i in range(20):
                setattr(made.Box, f"other_{i}", i)
            for i in range(20):
                delattr(made.Box, f"other_{i}")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(3000):
            code = codes.at_once(made.fn)
            encoded, code = codes.pack(made.fn, (), {}, code)
            fn, _, _ = unpack_call(encoded)
            assert (fn or load_callable(code.data))() == 5
    finally:
        over.set()
        thread.join()


def test_an_annotation_that_cannot_be_pickled_leaves_the_error_to_pack_call(codes):
    fn = define("def fn(): pass").fn
    fn.__annotations__["return"] = threading.Lock()
    assert [codes.lookup(fn) for _ in range(3)] == [None] * 3


# The worker's side


def restored(codes, fn, callables, code_id=1):
    return callables.add(code_id, memoryview(looked_up_again(codes, fn).data))


STATEFUL = """
count = 0
def counts():
    global count
    count += 1
    return count
def deletes():
    global count
    del count
    return True
def remembers():
    globals().setdefault("left", []).append(1)
    return len(globals()["left"])
def has_attribute():
    has_attribute.calls = getattr(has_attribute, "calls", 0) + 1
    return has_attribute.calls
def helper(): pass
def alters_other():
    helper.calls = getattr(helper, "calls", 0) + 1
    return helper.calls
def alters_default(x=1):
    alters_default.__defaults__ = (x + 1,)
    return x
def make():
    n = 0
    def counts():
        nonlocal n
        n += 1
        return n
    return counts
counts_in_cell = make()
"""


@pytest.mark.parametrize(
    "name",
    [
        *("counts", "deletes", "remembers", "has_attribute", "alters_other", "alters_default"),
        "counts_in_cell",
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


@pytest.mark.parametrize("name", ["factorial", "even", "reads_atoms", "closure", "local_recursive"])
def test_a_function_that_leaves_nothing_behind_is_restored_once(codes, name):
    callables = CallableCache()
    original = getattr(define(ALWAYS_THE_SAME), name)
    fn = restored(codes, original, callables)
    for _ in range(3):
        assert callables.get(1) is fn
        assert fn(4) == original(4)


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
        load_callable(b"\x80\x05nonsense")
    with pytest.raises(SerializationError, match="import"):
        load_callable(b"cno_such_module\nfn\n.")
