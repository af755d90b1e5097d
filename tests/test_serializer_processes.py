"""Two real processes: a script run as ``__main__``, and a worker whose ``__main__`` is another.

Each test writes a script that ends with status 0 if its assertions hold.  ``peer`` is both the
script's stand-in for the driver and the program of the worker.
"""

from __future__ import annotations


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


def test_a_worker_of_functions_alone_starts_without_cloudpickle(run_script):
    run_script("""
        import functools, logging, math, os.path, re, threading, sys
        SCALE, LOCK, WORD = 3, threading.Lock(), re.compile("a+")
        def is_there(): return "cloudpickle" in sys.modules
        def enclosing(n):
            @functools.wraps(is_there)
            def inner(*, k: "int" = 2):
                with LOCK:
                    return [n * k * SCALE for _ in range(2)]
            return inner
        @functools.lru_cache
        def cached(x): return math.floor(x), os.path.basename("a/b"), WORD.match("aa").end()
        def raises(): raise FileNotFoundError(2, "missing", "here")
        def raises_own(): raise Own
        assert run(enclosing(1)) == [6, 6] and run(cached, 1.5) == (1, "b", 2)
        assert run(lambda x: x + SCALE, 1) == 4 and run(functools.partial(max, 1), 2) == 2
        try: run(raises)
        except FileNotFoundError as error: assert error.filename == "here"
        assert not run(is_there)
        class Own(Exception): pass
        try: run(raises_own)
        except Own: pass
        assert run(is_there)
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
        def yields():
            yield 1
        error = failure(yields)
        assert type(error) is SerializationError and "return a list" in str(error)
        assert error.__cause__.text.count("Traceback") == 1

        error = failure(raises_lock)
        assert type(error) is TaskError and "LocksUp" in str(error)
        assert "raise LocksUp()" in error.__cause__.text

        run(hides, "only_here")
        error = failure(len, [only_here.Thing()])
        assert type(error) is SerializationError and "only_here" in str(error)
        assert "worker must be able to import" in str(error)
        assert "its own sys.path and the script's as it was when the pool" in str(error)
        assert "given to cloudpickle.register_pickle_by_value" in str(error)
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
            assert "and read what a module has as module.name" in str(error)
            assert "must be able to import" not in str(error)
        error = failure(Here)
        assert "not made by hand; return plain data from it" in str(error)

        import uncopied
        from uncopied import method
        def reads_a_copy(): return method()
        def reads_the_module(): return uncopied.method()
        assert "as module.name" in str(failure(reads_a_copy))
        assert run(reads_the_module) == 1
        """,
        only_here="""
            class Thing: pass
            def function(): pass
        """,
        uncopied="""
            class Uncopied:
                value = property(lambda self: 1)
                def __getstate__(self): return {"value": 1}
                def __setstate__(self, state): self.value = state["value"]
                def method(self): return self.value
            method = Uncopied().method
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
