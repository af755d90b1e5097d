"""What functions, classes and arguments share crosses once: see ``test_serializer_processes``."""

from __future__ import annotations


def test_what_a_task_changes_its_arguments_see(run_script):
    run_script("""
        import random
        LEVEL, RANDOM, LIMIT = 0, random.Random(1), 5
        class Reader:
            def read(self): return LEVEL
            def draw(self): return RANDOM.random()
            def limit(self): return LIMIT
        def callback(): return LEVEL
        def set_level(reader, call):
            global LEVEL
            LEVEL = 5
            return reader.read(), call()
        def draws(reader, seed):
            RANDOM.seed(seed)
            return reader.draw()
        def limited(reader): return reader.limit() == LIMIT
        def set_by_argument(change):
            change()
            return LEVEL
        def change():
            global LEVEL
            LEVEL = 6
        for n in range(4):
            assert run(set_level, Reader(), callback) == (5, 5)
            assert run(draws, Reader(), n) == random.Random(n).random()
            assert run(set_by_argument, change) == 6
            assert LEVEL == 0
        before = len(worker.code_ids_sent)
        for _ in range(4):
            assert run(limited, Reader())
        assert worker.code_ids_used[-1], "nothing is changed: the function goes once"
    """)


def test_variables_of_closures_that_are_shared_are_one(run_script):
    run_script("""
        def make():
            count, seen = 0, []
            def add():
                nonlocal count
                count += 1
                seen.append(count)
            def task(add):
                add()
                add()
                return count, seen
            return task, add
        task, add = make()
        def factory():
            def double(x): return 2 * x
            return double
        double = factory()
        def is_double(f): return f is double
        def fact(n): return n * fact(n - 1) if n else 1
        def is_fact(f): return f is fact, f(3)
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        def is_even(f): return f is even, f(4)
        for _ in range(4):
            assert run(task, add) == (2, [1, 2])
            assert run(is_double, double)
            assert run(is_fact, fact) == (True, 6)
            assert run(is_even, even) == (True, True)
    """)


def test_what_is_only_read_does_not_send_a_function_again(run_script):
    run_script("""
        import datetime, enum, logging, re
        from functools import lru_cache, partial
        from numpy import exp, dot
        from workpool.serializer import encode_blocks, pack_call
        class Mode(enum.Enum):
            FAST = 1
        log, pattern, limit = logging.getLogger("x"), re.compile("a"), 3
        pair = (datetime.date(2026, 1, 2), Mode.FAST)
        @lru_cache
        def cached(x): return x
        def helper(x): return x
        class Model:
            @property
            def size(self): return helper(limit)
            @staticmethod
            def fixed(): return helper(pair)
            def apply(self):
                log.debug("x")
                return bool(pattern.match("a")), exp(0), float(dot([1], [1])), helper(limit)
        def task(model):
            log.debug("y")
            return model.apply(), model.size, exp(0), dot([1], [1]), helper(pair), Model.fixed()
        def frozen(model):
            return model.apply(), bool(pattern.match("b")), exp(0), dot([1], [1]), helper(pair)
        for _ in range(3):
            run(task, Model())
            run(frozen, Model())
        code = worker.codes.lookup(frozen)
        assert b"frozen" not in pack_call(frozen, (Model(),), {}, code)
        assert encode_blocks([Model()] * 3, False, task) is not None, "torn"
    """)


def test_what_a_function_has_cached_stays_on_its_worker(run_script):
    run_script("""
        import functools, time
        @functools.cache
        def load(name): return name, time.monotonic_ns()
        def task(n): return load("a")
        FACTOR = 1
        @functools.lru_cache(maxsize=10)
        def scaled(n): return FACTOR * n
        for fn, n in ((task, 1), (load, "b")):
            assert len({run(fn, n) for _ in range(9)}) == 2  # the first comes with its task
        for FACTOR in (1, 2):
            assert [run(scaled, 3) for _ in range(4)] == [3 * FACTOR] * 4
        assert not load.cache_info().currsize
    """)


def test_a_curried_function_of_the_script_is_made_again_of_its_function(run_script, tmp_path):
    functoolz = """
        import importlib, sys
        class curry:  # names what it is in its module, as those of toolz and cytoolz do
            def __init__(self, func, *args):
                self.func, self.args = func, args
                self.__module__, self.__qualname__ = func.__module__, func.__qualname__
            def __call__(self, *args):
                given = *self.args, *args
                enough = len(given) == self.func.__code__.co_argcount
                return self.func(*given) if enough else curry(self.func, *given)
            def __reduce__(self):
                found = getattr(sys.modules[self.__module__], self.__qualname__, None)
                is_there = isinstance(found, curry) and found.func is self.func
                func = f"{self.__module__}:{self.__qualname__}" if is_there else self.func
                return restore, (curry, func, self.args, found is self)
        def restore(cls, func, args, is_decorated):
            if isinstance(func, str):
                module, name = func.split(":")
                found = getattr(importlib.import_module(module), name)
                if is_decorated:
                    return found
                func = found.func
            return cls(func, *args)
    """
    (tmp_path / "toolz").mkdir()
    script = """
        from toolz.functoolz import curry
        OFFSET = 0
        @curry
        def add(a, b): return a + b + OFFSET if a else add(1)(b) - 1
        increment = add(1)
        def task(x): return increment(x) + add(x, 0)
        def apply(fn, x): return fn(x)
        for OFFSET in (0, 10):
            for _ in range(4):
                assert run(add, 1, 2) == run(add, 1)(2) == run(add(1), 2) == 3 + OFFSET
                assert run(add, 0, 2) == 2 + OFFSET
                assert run(task, 2) == 5 + 2 * OFFSET
                assert run(apply, increment, 2) == run(apply, add, 1)(2) == 3 + OFFSET
    """
    run_script(script, **{"toolz/functoolz": functoolz})


def test_a_function_that_is_passed_is_the_one_that_the_task_knows(run_script):
    run_script("""
        def gaussian(x): return -x * x
        def linear(x): return x
        def helper(x): return x
        def branch(kernel): return "gaussian" if kernel is gaussian else helper(kernel(2))
        class Model:
            def apply(self, x): return helper(x)
        def uses(model): return helper(model.apply(3))
        for _ in range(4):
            assert run(branch, gaussian) == "gaussian"
            assert run(branch, linear) == 2
        for _ in range(4):
            assert run(uses, Model()) == 3
        code = worker.codes.lookup(uses)
        payload = __import__("workpool").serializer.pack_call(uses, (Model(),), {}, code)
        assert b"uses" not in payload, "both call it, which makes no difference"
    """)


def test_changes_that_no_attribute_shows_are_seen(run_script):
    run_script("""
        from dataclasses import dataclass, field
        class Slotted: __slots__ = ("value",)
        class Below(Slotted): pass
        slotted = Below()
        slotted.value = 1
        class One:
            name = "one"
        class Other:
            name = "other"
        item = One()
        item.value = 1
        START = 1
        @dataclass
        class Made:
            value: int = field(default_factory=lambda: START)
        def read(): return slotted.value, item.name, item.value, Made().value
        def leaves():
            slotted.value += 1
            item.__dict__ = {"value": 7}
            item.__class__ = One
            return slotted.value
        for _ in range(3):
            assert run(read) == (1, "one", 1, 1)
        slotted.value, START = 2, 2
        item.__class__ = Other
        item.__dict__ = {"value": 2}
        for _ in range(3):
            assert run(read) == (2, "other", 2, 2)
        for _ in range(3):
            assert run(leaves) == 3
            assert run(read) == (2, "other", 2, 2)
    """)


def test_bound_methods_are_themselves_whatever_their_names(run_script):
    run_script("""
        def logged(method):
            def wrapper(self): return method(self), "logged"
            return wrapper
        class Base:
            def get(self): return "base"
        class Below(Base):
            def get(self): return "below"
            def above(self): return super().get
            def __hidden(self): return "hidden"
            def hidden(self): return self.__hidden
            @logged
            def told(self): return 1
        below = Below()
        for _ in range(4):
            assert run(below.get) == "below" and run(below.above()) == "base"
            assert run(below.hidden()) == "hidden" and run(below.told) == (1, "logged")
    """)
