"""Codes in memory: how many are kept and for how long, in the driver and in a worker."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref

from scripted import Job, define, looked_up_again

from workpool.pool.checks.generators import GeneratorCheck
from workpool.serializer import CallableCache, unpack
from workpool.serializer.byvalue import dumps_by_value
from workpool.serializer.code_cache import CodeCache


def test_ids_are_never_used_again(codes):
    seen = set()
    for i in range(300):
        fn = define(f"def fn(): return {i}").fn
        code = looked_up_again(codes, fn)
        assert code.code_id not in seen
        assert unpack(code.data)() == i
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
    assert unpack(codes.lookup(made.fn).data)() == 2


def test_threads_may_share_a_cache():
    codes = CodeCache(capacity=4)
    fns = [define(f"def fn(): return {i}").fn for i in range(8)]
    failures = []

    def submit():
        for _ in range(200):
            for i, fn in enumerate(fns):
                code = codes.lookup(fn)
                if code is not None and unpack(code.data)() != i:
                    failures.append(i)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_annotation_that_cannot_be_pickled_leaves_the_error_to_pack_call(codes):
    fn = define("def fn(): pass").fn
    fn.__annotations__["return"] = threading.Lock()
    assert [codes.lookup(fn) for _ in range(3)] == [None] * 3


UNBOUND = """
class Unbound:
    @property
    def __class__(self): raise RuntimeError("nothing is bound")
    @property
    def __dict__(self): raise RuntimeError("nothing is bound")
    def __reduce__(self): return Unbound, ()
proxy = Unbound()
def read(): return type(proxy).__name__
def take(it): return type(it).__name__
"""


def test_a_function_is_sent_whole_that_reads_what_cannot_be_looked_at(codes):
    fn = define(UNBOUND).read
    for _ in range(3):
        GeneratorCheck().look(fn)
        assert codes.lookup(fn) is None
    callables = CallableCache()
    callables.add(1, dumps_by_value(fn))
    assert callables.get(1)() == "Unbound"
    assert callables.restores == 2


def test_an_argument_that_cannot_be_looked_at_goes_to_a_function_that_is_known_as_well():
    job = Job(define(UNBOUND))
    for known in (False, True, True):
        name, code, _ = job.run(job.made.take, job.made.proxy)
        assert name == "Unbound"
        assert (code is not None) is known
