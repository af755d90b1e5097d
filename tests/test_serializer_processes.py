"""Two real processes: a script run as ``__main__``, and a worker whose ``__main__`` is another.

Each test writes a script that ends with status 0 if its assertions hold. ``peer`` is both the
script's stand-in for the driver and the program of the worker.
"""

from __future__ import annotations

import sys

import pytest


def test_functions_of_the_script_run(run_script):
    run_script("""
        import math
        SCALE = 3
        def helper(x): return x * SCALE
        def task(x, y=1): return helper(x) + math.floor(y)
        for _ in range(5):
            assert run(task, 2, y=1.5) == 7
        assert run(lambda x: x + SCALE, 1) == 4
        assert run(math.hypot, 3, 4) == 5.0
        assert len(set(worker.code_ids_used[1:5])) == 1 and worker.code_ids_used[1]
    """)


def test_changes_are_seen_by_later_tasks(run_script):
    run_script("""
        SCALE, TABLE = 1, {"a": 1}
        def scaled(x): return x * SCALE
        def looked_up(): return TABLE["a"]
        def defaulted(x=1, *, y=1, z=[]): return x, y, len(z)
        def plain(x=1, *, y=1): return x, y
        def make():
            n = 1
            def get(): return n
            def put(value):
                nonlocal n
                n = value
            return get, put
        get, put = make()
        def other(): return 1
        def calls_other(): return other()
        class Model:
            weight = 1
            def apply(self, x): return self.weight * x * SCALE
        def with_model(x): return Model().apply(x)
        model = Model()
        for i in range(1, 9):
            changed = i // 3 + 1   # unchanged for three tasks, so that codes are made and used
            SCALE = TABLE["a"] = Model.weight = changed
            put(changed)
            plain.__defaults__ = (changed,)
            plain.__kwdefaults__["y"] = changed
            defaulted.__kwdefaults__["z"].append(i)
            if changed == 2:
                def other(): return 2
            elif changed == 3:
                other.__code__ = (lambda: 3).__code__
            assert run(scaled, 10) == 10 * changed
            assert run(looked_up) == changed
            assert run(defaulted) == (1, 1, i)
            assert run(plain) == (changed, changed)
            assert run(get) == changed
            assert run(calls_other) == changed
            assert run(with_model, 1) == changed ** 2
            assert run(model.apply, 1) == changed ** 2
        assert len(set(worker.code_ids_used)) > 3
    """)


def test_what_tasks_leave_behind_is_not_seen(run_script):
    run_script("""
        count = 0
        def counts():
            global count
            count += 1
            return count
        def remembers():
            remembers.calls = getattr(remembers, "calls", 0) + 1
            return remembers.calls
        assert [run(counts) for _ in range(4)] == [1] * 4
        assert [run(remembers) for _ in range(4)] == [1] * 4
        assert None not in worker.code_ids_used[1:4]
        count = 5
        assert [run(counts) for _ in range(4)] == [6] * 4
    """)


def test_recursion_and_caches(run_script):
    run_script("""
        import functools
        def factorial(n): return 1 if n < 2 else n * factorial(n - 1)
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        @functools.lru_cache(maxsize=50)
        def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        def calls_fibonacci(n): return fibonacci(n), fibonacci.cache_parameters()["maxsize"]
        class Cached:
            @functools.cache
            def twice(self, n): return 2 * n
            @functools.cached_property
            def half(self): return 21
        assert run(lambda cached: (cached.half, vars(cached)), Cached()) == (21, {"half": 21})
        for _ in range(3):
            assert run(factorial, 10) == 3628800
            assert run(even, 10) is True
            assert run(fibonacci, 60) == 1548008755920
            assert run(calls_fibonacci, 30) == (832040, 50)
            assert run(Cached().twice, 4) == 8
        assert fibonacci.cache_info().currsize == 0
    """)


def test_annotations_by_names_of_the_script(run_script):
    run_script("""
        from typing import Callable, NamedTuple, NewType, ParamSpec, TypeVar
        Identity, P, T = NewType("Identity", int), ParamSpec("P"), TypeVar("T")
        class Pair(NamedTuple):
            first: int
        def task(x: Identity, y: T, z: "Callable[P, T] | None" = None) -> Identity: return x
        def decorate(fn: Callable[P, T]) -> Callable[P, T]:
            def call(*args: P.args, **kwargs: P.kwargs) -> T: return fn(*args, **kwargs)
            return call
        for _ in range(3):
            assert run(task, Identity(5), 1) == 5
            assert run(decorate(task), 6, 1) == 6
            assert run(Pair, 1) == Pair(1)
    """)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type aliases are Python 3.12")
def test_type_aliases_of_the_script(run_script):
    run_script("""
        type Vector[T] = list[T]
        def task(x: Vector[int]) -> Vector[int]: return x
        assert run(task, [1]) == [1]
    """)


def test_exceptions_of_the_script_are_the_same_class(run_script):
    run_script("""
        class MyError(Exception):
            def __init__(self, code, *, detail):
                super().__init__(f"code {code}")
                self.code, self.detail = code, detail
        class Derived(MyError): pass
        class Quit(BaseException): pass
        def fails(kind, *args, **kwargs): raise kind(*args, **kwargs)
        def task(code):
            raise MyError(code, detail={"x": 1})
        for _ in range(3):
            try:
                run(task, 7)
            except MyError as error:
                assert (error.code, error.detail, str(error)) == (7, {"x": 1}, "code 7")
                text = error.__cause__.text
                assert text.endswith("### task task, worker rank 1 on here"), text
                assert "script.py" in text and "raise MyError(code" in text, text
            else:
                raise AssertionError
        assert type(failure(lambda: fails(Derived, 1, detail=2))) is Derived
        assert isinstance(failure(lambda: fails(Derived, 1, detail=2)), MyError)
        assert type(failure(lambda: fails(Quit))) is Quit
        assert MyError.__init__.__globals__ is globals()
    """)


def test_packing_an_exception_leaves_its_class_as_it_is(run_script):
    run_script("""
        class MyError(Exception):
            def method(self): pass
        def task():
            from workpool import serializer
            method = vars(MyError)["method"]
            serializer.pack_exception(MyError(), task="task", rank=1, host="here")
            return vars(MyError)["method"] is method
        assert run(task) and task()
    """)


def test_every_kind_of_exit_arrives(run_script):
    run_script("""
        import sys
        def exits(): sys.exit(3)
        def interrupts(): raise KeyboardInterrupt
        def closes(): raise GeneratorExit
        for _ in range(3):
            error = failure(exits)
            assert type(error) is SystemExit and error.code == 3
            assert type(failure(interrupts)) is KeyboardInterrupt
            assert type(failure(closes)) is GeneratorExit
        assert run(len, "still serving") == 13
    """)


def test_each_side_reports_what_cannot_travel(run_script):
    run_script(
        """
        import sys, threading
        from workpool.errors import SerializationError, TaskError
        import only_here

        class LocksUp(Exception):
            def __init__(self): self.lock = threading.Lock()
        def returns_lock(): return threading.Lock()
        def raises_lock(): raise LocksUp()
        def hides(name):
            sys.modules[name] = None     # so that this worker cannot import it

        error = failure(len, threading.Lock())
        assert type(error) is SerializationError and "argument 1 of 1" in str(error)

        error = failure(returns_lock)
        assert type(error) is SerializationError and "result of task returns_lock" in str(error)
        assert "worker rank 1 on here" in error.__cause__.text

        async def asynchronous(): pass
        error = failure(asynchronous)
        assert type(error) is SerializationError and "an async function" in str(error)

        error = failure(raises_lock)
        assert type(error) is TaskError and "LocksUp" in str(error)
        assert "raise LocksUp()" in error.__cause__.text

        run(hides, "only_here")
        error = failure(len, [only_here.Thing()])
        assert type(error) is SerializationError and "only_here" in str(error)
        assert "worker must be able to import" in str(error)
        assert "its own sys.path and the script's as it was when the pool" in str(error)
        assert "### task len, worker rank 1 on here" in error.__cause__.text
        error = failure(only_here.function)
        assert type(error) is SerializationError and "only_here" in str(error)
        assert error.__cause__.task == "function"
        assert "### task function, worker rank 1 on here" in error.__cause__.text

        class Here:                      # and a worker misses no module
            def __reduce__(self): return elsewhere, ()
        def elsewhere(): raise TypeError("not made by hand")
        here = Here()
        def reads(): return here
        for error in (failure(reads), failure(reads), failure(len, [here])):
            assert type(error) is SerializationError and "not made by hand" in str(error)
            assert "or import it from a module" in str(error)
            assert "must be able to import" not in str(error)
        error = failure(Here)
        assert "not made by hand; return plain data from it" in str(error)
        """,
        only_here="""
            class Thing: pass
            def function(): pass
        """,
    )


def test_outcomes_that_only_the_worker_can_import(run_script):
    run_script(
        """
        import sys
        from workpool.errors import SerializationError, TaskError
        def returns():
            import only_there
            return only_there.Thing()
        def raises():
            import only_there
            raise only_there.Trouble("what happened")
        sys.modules["only_there"] = None
        error = failure(returns)
        assert type(error) is SerializationError and "task returns" in str(error)
        error = failure(raises)
        assert type(error) is TaskError and "only_there.Trouble: what happened" in str(error)
        assert "raise only_there.Trouble" in error.__cause__.text
        """,
        only_there="""
            class Thing: pass
            class Trouble(Exception): pass
        """,
    )


def test_large_arrays_cross(run_script):
    run_script("""
        import numpy as np
        def task(a, b): return a * 2, b.sum(), a.flags.writeable
        a = np.asfortranarray(np.arange(1_000_000.0).reshape(1000, 1000))
        for _ in range(3):
            doubled, total, writeable = run(task, a, a[::2])
            assert (doubled == 2 * a).all() and total == a[::2].sum() and writeable
            assert doubled.flags.f_contiguous
            doubled[0] = 1
    """)


def test_a_module_registered_by_value(run_script):
    run_script(
        """
        import cloudpickle, sys
        import private
        def hides(): sys.modules["private"] = None
        def task(x): return private.Thing, private.triple(x)
        run(hides)
        cloudpickle.register_pickle_by_value(private)
        for _ in range(3):
            assert run(private.triple, 2) == 6
            assert type(run(private.identity, private.Thing())) is private.Thing
        """,
        private="""
            FACTOR = 3
            class Thing: pass
            def triple(x): return FACTOR * x
            def identity(x): return x
        """,
    )


def test_locks_of_the_script_are_made_anew(run_script):
    run_script("""
        import functools, threading
        lock, again, local = threading.Lock(), threading.RLock(), threading.local()
        lock.acquire()
        local.count = 10

        class Register:
            lock = threading.Lock()
            numbers = {}

            @classmethod
            def of(cls, name):
                with cls.lock:
                    return cls.numbers.setdefault(name, len(cls.numbers))

        class PerThread(threading.local):
            def __init__(self): self.count = 5
        per_thread, event = PerThread(), threading.Event()
        event.set()
        several = {"a": threading.Lock(), "b": [threading.Semaphore(3)]}

        class Memory:
            def __init__(self): self.lock, self.known = threading.Lock(), {}
            def get(self, key, make):
                with self.lock:
                    return self.known.setdefault(key, make())
        memory = Memory()

        def synchronized(function):
            mutex = threading.RLock()
            @functools.wraps(function)
            def wrapper(*args):
                with mutex:
                    return function(*args)
            return wrapper

        @synchronized
        def recall():
            with several["a"], several["b"][0]: pass
            return event.is_set(), per_thread.count, memory.get("a", lambda: 7)

        def recalls(): return recall()

        def count():
            assert lock.locked()
            local.count = getattr(local, "count", 0) + 1
            return local.count

        def task(name):
            with lock, again, again:
                return Register.of(name), count(), count()

        for _ in range(3):
            assert run(task, "a") == (0, 1, 2)
        assert run(Register().of, "a") == 0
        memory.known["a"] = 8
        for function in (recall, recalls):
            assert run(function) == (True, 5, 8)
        assert local.count == 10 and lock.locked()
    """)


def test_a_context_variable_of_the_script_is_made_anew(run_script):
    run_script("""
        from contextvars import ContextVar
        depth, name = ContextVar("depth", default=[1]), ContextVar("name")
        depth.set([5])
        def inner(): return depth.get(), name.get(None)
        def task():
            before = inner()
            name.set("task")
            return before, inner()
        for _ in range(3):
            assert run(task) == (([1], None), ([1], "task"))
        assert name.get(None) is None
        assert "argument 1 of 1" in str(failure(lambda variable: variable.get(), depth))
    """)


def test_what_a_decorator_of_a_module_makes_goes_by_its_name_in_the_script(run_script):
    run_script(
        """
        import private
        @private.Cached
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        def task(n): return fib(n), fib.known[n]
        for _ in range(2):
            assert run(task, 20) == (6765, 6765)
            assert run(fib, 20) == 6765
        assert not fib.known
        """,
        private="""
            import functools, threading
            class Cached:
                def __init__(self, function):
                    functools.update_wrapper(self, function)
                    self.known, self.lock = {}, threading.RLock()
                def __call__(self, n):
                    with self.lock:
                        if n not in self.known:
                            self.known[n] = self.__wrapped__(n)
                        return self.known[n]
                def __reduce__(self): return self.__qualname__
        """,
    )


def test_what_stands_for_another_object_is_not_asked_before_it_is_whole(run_script):
    module = """
        class Proxy:
            def __init__(self, inner): self.inner = inner
            def __getattr__(self, name): return getattr(self.inner, name)
        def checked(fn):
            proxy = Proxy(fn)
            def call(*args): return proxy.__call__(*args)
            return call
    """
    run_script(
        """
        import inspected
        PROXY = inspected.Proxy(3)
        class Slotted:
            __slots__ = ("inner", "__dict__")
            __getattr__ = inspected.Proxy.__getattr__
        SLOTTED = Slotted()
        SLOTTED.inner, SLOTTED.note = 4, "n"
        class Numbers(list):
            __getattr__ = inspected.Proxy.__getattr__
        NUMBERS = Numbers([1, 2])
        NUMBERS.inner = 6
        class Told:
            def __getattr__(self, name): return self.parts[name]
            def __getstate__(self): return 5
            def __setstate__(self, state): self.parts = {"state": state}
        TOLD = Told()
        @inspected.checked
        def double(x): return 2 * x
        def task():
            numbers = list(NUMBERS), NUMBERS.real
            return PROXY.real, SLOTTED.real, SLOTTED.note, *numbers
        for _ in range(3):
            assert run(task) == (3, 4, "n", [1, 2], 6)
            assert run(lambda: TOLD.state) == 5
            assert run(double, 4) == run(lambda: double(4)) == 8
        """,
        inspected=module,
    )


def test_instances_have_a_dictionary_where_they_have_one_in_the_script(run_script):
    run_script("""
        import collections, dataclasses, typing
        X = typing.TypeVar("X")
        Row = collections.namedtuple("Row", "a b")
        class Pair(typing.NamedTuple):
            a: int
        class Numbers(list): __slots__ = ()
        class Several(tuple): __slots__ = ()
        class Generic(tuple, typing.Generic[X]): __slots__ = ()
        class Below(Pair): __slots__ = ()
        class Noted(Row): pass
        @dataclasses.dataclass(slots=True)
        class Point:
            x: int
        ALL = Row, Pair, Numbers, Several, Generic, Below, Noted, Point
        def layouts(): return [(cls.__dictoffset__, cls.__basicsize__) for cls in ALL]
        assert run(layouts) == layouts()
        """)


def test_a_local_that_cannot_be_made_anew_is_as_in_this_thread(run_script):
    run_script("""
        import threading
        class Context(threading.local):
            def __init__(self, path): self.path, self.depth = path, 0
        context = Context("/tmp")
        context.depth = 3
        def task():
            context.depth += 1
            return context.path, context.depth
        for _ in range(2):
            assert run(task) == ("/tmp", 4)
    """)


def test_weak_references_are_to_what_comes_along(run_script):
    run_script("""
        import weakref
        class Node:
            def __init__(self, parent=None):
                self.parent = None if parent is None else weakref.ref(parent)
        root = Node()
        leaf, orphan = Node(root), Node(Node())
        by_name, by_node = weakref.WeakValueDictionary(root=root), weakref.WeakKeyDictionary()
        by_node[root] = 7
        def task():
            assert leaf.parent() is root and orphan.parent() is None
            return by_name["root"] is root, by_node[root], len(by_name)
        for _ in range(2):
            assert run(task) == (True, 7, 1)
    """)


def test_a_struct_travels_as_its_format(run_script):
    run_script("""
        import struct
        HEAD = struct.Struct("<IQ")
        class Reader:
            head = HEAD
            def size(self): return self.head.size
        def task(): return HEAD.pack(1, 2), Reader().size()
        for _ in range(3):
            assert run(task) == (HEAD.pack(1, 2), 12)
        assert worker.code_ids_used[-1]
        def packs(): return HEAD.pack(1, 2)
        for _ in range(3):
            assert run(packs) == HEAD.pack(1, 2)
        assert worker.code_ids_used[-1]
        assert run(lambda head: head.unpack(head.pack(3, 4)), HEAD) == (3, 4)
        assert run(lambda: HEAD).format == HEAD.format
    """)


def test_a_library_of_ctypes_is_loaded_again(run_script):
    run_script("""
        import ctypes
        from ctypes import CDLL, CFUNCTYPE, c_double, c_int, util
        maths, here = CDLL(util.find_library("m")), CDLL(None, use_errno=True)
        maths.cos.restype, maths.cos.argtypes = c_double, [c_double]
        sin = maths["sin"]
        sin.restype, sin.argtypes = c_double, (c_double,)
        def check(status, function, args):
            if status < 0:
                raise OSError(ctypes.get_errno(), function.__name__)
            return status
        here.open.errcheck = check
        def task(x): return maths.cos(x), sin(x), maths.abs(-3)
        for _ in range(3):
            assert run(task, 0.0) == (1.0, 0.0, 3)
        assert run(lambda library: library.cos(0.0), maths) == 1.0
        def opens(): return here.open(b"/there/is/no/such", 0)
        error = failure(opens)
        assert error.errno == 2 and "open" in str(error)
        version = ctypes.pythonapi.Py_GetVersion
        version.restype = ctypes.c_char_p
        assert run(lambda: version()) == version()
        back = CFUNCTYPE(c_int)(lambda: 1)
        assert "'back', which the function reads" in str(failure(lambda: back()))
        class Plugin(CDLL):
            def __init__(self, path, name):
                super().__init__(path)
                self.name = name
        plugin = Plugin(util.find_library("m"), "maths")
        assert run(lambda: (plugin.abs(-3), plugin.name)) == (3, "maths")
    """)


def test_locks_that_tasks_would_have_to_share_cannot_travel(run_script):
    run_script("""
        import threading
        lock, ended = threading.Lock(), (n for n in ())
        def enclosing():
            lock = threading.Lock()
            return lambda: lock.locked()
        def takes(lock): return lock.locked()
        class Memory:
            def __init__(self): self.lock = threading.Lock()
        memory = Memory()
        def task(): return lock.locked(), memory, ended
        def encloses():
            another = threading.Lock()
            return lambda: (memory, another)
        assert "argument 1 of 1" in str(failure(takes, lock))
        assert "'lock', which the function reads" in str(failure(enclosing()))
        assert "'ended', which the function reads" in str(failure(task))
        assert "argument 1 of 1" in str(failure(takes, memory))
        assert "'another', which the function reads" in str(failure(encloses()))
    """)


def test_a_class_in_a_task_reads_globals_of_the_script(run_script):
    run_script("""
        from collections.abc import Sequence
        from dataclasses import dataclass
        UNIT = 7
        def hash(x): return UNIT + x
        def task(x):
            class Row:
                unit = UNIT
                code = hash(x)
                class Inner:
                    scale = UNIT * 2
            @dataclass
            class Prices:
                prices: Sequence
            return Row.unit, Row.code, Row.Inner.scale, sum(Prices([x, 1]).prices)
        for _ in range(3):
            assert run(task, 3) == (7, 10, 14, 4)
        assert run(lambda: task(1)) == (7, 8, 14, 2)
    """)


def test_submodules_that_nested_code_looks_up_are_there(run_script):
    run_script("""
        import xml.dom.minidom
        def listed(text): return [xml.dom.minidom.parseString(t).toxml() for t in [text]]
        def nested(text): return (lambda t: xml.dom.minidom.parseString(t).toxml())(text)
        def split_up(text):
            dom = xml.dom
            return (lambda t: dom.minidom.parseString(t).toxml())(text)
        for task in (listed, nested, split_up):
            worker = type(worker)()  # one that has not imported it
            assert "<a/>" in str(worker.run(task, "<a/>"))
            worker.close()
    """)


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


CLASSES = """
        import dataclasses, enum, functools, time, typing
        @dataclasses.dataclass
        class Point:
            x: float
            y: float = 0.0
            scale: typing.ClassVar = 2
            def norm(self): return self.scale * abs(self.x + self.y)
        class Pair(typing.NamedTuple):
            first: object
            second: object = None
        class Colour(enum.Enum):
            RED = 1
        class Other:
            def __init__(self, point): self.point = point
            def run(self, n): return self.point.norm() + n
            def __call__(self): return self.point
        class Hidden:
            seen = bytearray(1)
        def whole(payload):
            return b"norm" in payload
"""


def test_classes_of_the_script_cross_once_with_their_functions(run_script):
    run_script(
        CLASSES
        + """
        def make(x): return Point(x), Pair(x), Colour.RED, Other(Point(x)), Point
        for x in range(4):
            point, pair, colour, other, cls = run(make, x)
            assert point == Point(x) and pair == Pair(x) and colour is Colour.RED and cls is Point
            assert type(point) is type(other.point) is Point and type(other) is Other
        code = worker.codes.lookup(make)
        payload, _ = worker.codes.pack(make, (3,), {}, code)
        assert len(payload) < 30 and whole(code.data)
        Point.scale = 5
        def norm(x): return Point(x).norm()
        assert [run(norm, 1) for _ in range(3)] == [5] * 3
        Point.scale = 6
        assert [run(norm, 1) for _ in range(3)] == [6] * 3
        def spoil():
            Point.scale += 1
            Point.added = 1
            return Point(1).norm()
        assert [run(spoil) for _ in range(4)] == [7] * 4
        assert [run(norm, 1) for _ in range(3)] == [6] * 3
        def pickles():
            import pickle
            return pickle.loads(pickle.dumps(Point(1)))
        assert [run(pickles) for _ in range(3)] == [Point(1)] * 3
        def hidden(): return len(Hidden.seen)
        assert [run(hidden) for _ in range(3)] == [1] * 3
        """
    )


def test_what_is_asked_of_a_class_does_not_change_it(run_script):
    run_script(
        """
        import abc, copy, dataclasses, enum, functools, inspect, pickle, time, typing

        class Plain:
            x: int
            y: "int" = 3
            def get(self, scale: int = 2) -> int: return self.y * scale
        class Below(Plain):
            def get(self): return super().get() + len(__class__.__name__)
        class Bare: pass
        @dataclasses.dataclass
        class Point:
            x: int = 1
            seen: list = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(frozen=True, slots=True, order=True, kw_only=True)
        class Frozen:
            x: int = 1
            y: typing.ClassVar[int] = 2
        class Pair(typing.NamedTuple):
            first: int = 1
            second: object = None
        class Row(typing.TypedDict, total=False):
            x: int
        class Colour(enum.Enum):
            RED = 1
            def __init__(self, number): self.half = number / 2
        class Number(enum.IntFlag):
            ONE = 1
            TWO = enum.auto()
        T = typing.TypeVar("T")
        class Box(typing.Generic[T]):
            content: T
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self) -> float: ...
        class Square(Shape):
            def area(self) -> float: return 1.0
        class Sized(typing.Protocol):
            def size(self) -> int: ...
        class Small(Sized):
            def size(self) -> int: return 1
        class Failed(Exception):
            code: int = 1
        class Cached:
            @functools.cached_property
            def value(self) -> int: return 1
            @property
            def other(self) -> int: return 2
            def add(self, x: int) -> int: return x
            plus_one = functools.partialmethod(add, 1)

        @functools.cache
        def stamp(): return time.monotonic_ns()

        def uses(cls):
            def task():
                typing.get_type_hints(cls), cls.__annotations__, getattr(cls, "__annotate__", None)
                inspect.get_annotations(cls)
                if not inspect.isabstract(cls):
                    made = list(cls)[0] if issubclass(cls, enum.Enum) else cls()
                    repr(made), copy.copy(made), pickle.loads(pickle.dumps(made)), made == made
                return stamp()
            return task

        for cls in (
            *(Plain, Below, Bare, Point, Frozen, Pair, Row, Colour, Number, Box, Shape, Square),
            *(Small, Failed, Cached),
        ):
            task = uses(cls)
            worker.code_ids_used.clear()
            first, second, *others = [run(task) for _ in range(5)]
            assert {second} == set(others), cls  # the worker has the function as it was
            codes = {worker.codes.lookup(task), worker.codes.lookup(task)}
            if cls is not Small:  # a class below a protocol gets its __init__ with an instance
                task()
            codes.add(worker.codes.lookup(task))
            assert len(codes) == 1 and None not in codes, cls
            assert set(worker.code_ids_used) == {None, codes.pop().code_id}, cls
        """
    )


def test_arguments_bring_their_classes_once(run_script):
    run_script(
        CLASSES
        + """
        import operator
        def norm(point, *others, colour=None): return point.norm(), len(others), colour
        for others in [(), (Pair(1), Other(3)), (Colour.RED,)]:
            for _ in range(3):
                assert run(norm, Point(1), *others, colour=Colour.RED) == (
                    2, len(others), Colour.RED
                )
        payload, code = worker.codes.pack(norm, (Point(1), Pair(2)), {}, worker.codes.lookup(norm))
        assert not whole(payload) and whole(code.data)
        Point.scale = 5
        assert [run(norm, Point(1))[0] for _ in range(3)] == [5] * 3
        for _ in range(3):  # what goes by name
            assert run(operator.attrgetter("x"), Point(7)) == 7
            assert run(max, [Pair(1), Pair(2)]) == Pair(2)
            assert run(isinstance, Hidden(), object)  # which may change unseen
        assert not whole(worker.codes.pack(max, ([Point(1)],), {}, worker.codes.lookup(max))[0])
        for _ in range(3):  # methods and objects
            assert run(Other(Point(1)).run, 4) == 9
            assert run(Other(Point(1))) == Point(1)
        assert not whole(worker.codes.pack(Other(Point(1)).run, (4,), {}, None)[0])
        for _ in range(3):  # with a function beside it, it goes whole
            assert run(norm, Point(1), lambda: Point)[1] == 1
        """
    )


def test_functions_that_share_a_class_have_it_with_what_they_read(run_script):
    run_script(
        CLASSES
        + """
        NUMBERS = []
        class Adder:
            def add(self): NUMBERS.append(1)
        def first():
            Adder().add()
            return len(NUMBERS), Point(1).norm()
        def second():
            Adder().add()
            Adder().add()
            return len(NUMBERS), Point(1).norm()
        def third(*args): return Point(1).norm()
        for Point.scale in (2, 3):
            for _ in range(4):
                assert run(first) == (1, Point.scale)
                assert run(second) == (2, Point.scale)
                assert run(third, lambda: Point) == Point.scale
        """
    )


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


def test_a_class_is_one_with_the_function_that_shares_what_its_methods_read(run_script):
    run_script("""
        TOTAL, SEEN, MISSING = 0, [], object()
        def fast(): return 1
        COSTS = {fast: 5}
        class Reader:
            def read(self): return TOTAL, len(SEEN)
            def miss(self): return MISSING
            def pick(self): return fast
        class Counter:
            def read(self): return TOTAL
        class Keeper: seen = SEEN
        class Picker:
            def pick(self): return fast
        def first(): return Reader().read(), Counter().read(), len(Keeper.seen), Picker().pick()()
        def second():
            global TOTAL
            TOTAL += 1
            SEEN.append(1)
            same = Reader().miss() is MISSING, Reader().pick() is fast, COSTS[Picker().pick()]
            return Reader().read(), Counter().read(), len(Keeper.seen), same
        for _ in range(3):
            for _ in range(3):
                assert run(first) == ((0, 0), 0, 0, 1)
            for _ in range(3):
                assert run(second) == ((1, 1), 1, 1, (True, True, 5))
    """)


def test_tasks_may_pickle_objects_of_a_class_that_another_function_brought(run_script):
    run_script("""
        import pickle
        class Point: pass
        def first(): return type(pickle.loads(pickle.dumps(Point()))) is Point
        def second(): return first() and len(pickle.dumps(Point())) > 0
        for _ in range(3):
            assert all(run(first) for _ in range(3))
            assert all(run(second) for _ in range(3))
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


def test_what_a_task_adds_to_a_class_is_gone_for_the_next(run_script):
    run_script("""
        from enum import Enum
        class Plain: pass
        class Color(Enum):
            RED = 1
            MIXED = [1, 2]
        def task():
            found = hasattr(Plain, "mark"), hasattr(Color.RED, "mark"), len(Color.MIXED.value)
            Plain.mark = Color.RED.mark = 1
            Color.MIXED.value.append(3)
            return found
        for _ in range(4):
            assert run(task) == (False, False, 2)
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
