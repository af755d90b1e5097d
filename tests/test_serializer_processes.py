"""Two real processes: a script run as ``__main__``, and a worker whose ``__main__`` is another.

Each test writes a script that ends with status 0 if its assertions hold. ``peer`` is both the
script's stand-in for the driver and the program of the worker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import workpool.serializer

PRELUDE = """
from peer import Worker
worker = Worker()
run = worker.run

def failure(fn, *args):
    try:
        run(fn, *args)
    except BaseException as error:
        return error
    raise AssertionError("nothing raised")
"""


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script next to ``peer`` and checks that it succeeds."""
    shutil.copy(Path(__file__).with_name("peer.py"), tmp_path)
    root = Path(workpool.serializer.__file__).parents[2]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run_script(body, **modules):
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        script = tmp_path / "script.py"
        script.write_text(PRELUDE + textwrap.dedent(body))
        ended = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    return run_script


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


def test_instances_of_classes_of_the_script(run_script):
    run_script("""
        import dataclasses, enum
        import numpy as np
        @dataclasses.dataclass
        class Point:
            x: float
            y: np.ndarray
        class Color(enum.Enum):
            RED = 1
        class Text(str): pass
        def task(point, color): return Point(point.x + 1, point.y * 2), color, Color.RED, Text("t")
        for _ in range(3):
            point, *rest = run(task, Point(1.0, np.ones(100_000)), Color.RED)
            assert type(point) is Point and point.x == 2.0 and (point.y == 2).all()
            point.y[0] = 3
            assert rest == [Color.RED, Color.RED, "t"] and rest[0] is rest[1] is Color.RED
            assert type(rest[-1]) is Text
        assert run(lambda: Point) is Point
    """)


def test_members_of_enumerations_of_the_script_are_whole(run_script):
    run_script("""
        import dataclasses, enum
        class Planet(enum.Enum):
            EARTH = 5.9, 6.3
            HOME = EARTH
            def __init__(self, mass, radius): self.mass, self.radius = mass, radius
            def __reduce_ex__(self, protocol): return getattr, (Planet, self.name)
        class Axis(bytes, enum.Enum):
            def __new__(cls, value, label):
                member = bytes.__new__(cls, [value])
                member._value_, member.label = value, label
                return member
            X = 1, "ex"
        @dataclasses.dataclass(frozen=True)
        class Kind:
            legs: int
        class Animal(Kind, enum.Enum):
            DOG = 4
        class Pair(tuple, enum.Enum):
            A = 1, 2
        class Lists(list, enum.Enum):
            L = [1, 2]
        class Mode(enum.Flag):
            R = 4
            W = 2
            RW = 6
        class Number(enum.IntEnum):
            ONE = 1
            TWO = 2
        def look(*members):
            assert members[0] is Planet.EARTH and members[1] is Axis.X
            return [
                Planet.EARTH.mass, Planet.HOME.radius, list(Planet.__members__),
                Axis.X.label, Axis.X.value, bytes(Axis.X), Axis(1) is Axis.X,
                Animal.DOG.legs, Animal.DOG == Animal(Animal.DOG.value), Pair.A.value, Pair.A[1],
                list(Lists.L), Mode.RW.name, (Mode.R | Mode.W) is Mode.RW, (~Mode.R).value,
                Number.ONE + 1, Number(2).name,
            ]
        members = Planet.EARTH, Axis.X, Animal.DOG, Pair.A, Mode.RW, Mode.W, Number.ONE
        for _ in range(2):
            assert run(look, *members) == look(*members)
            for member, back in zip(members, run(lambda *them: them, *members)):
                assert back is member
        Planet.EARTH.mass = 6.0
        assert run(lambda: Planet.EARTH.mass) == 6.0
    """)


def test_what_a_class_has_no_more_is_gone_on_a_worker(run_script):
    run_script("""
        class Base:
            flag = False
            def name(self): return "base"
        class Sub(Base): pass
        kept = []
        def look(instance):
            kept.append(instance)  # so that the class stays there
            return Sub.flag, Sub().name(), getattr(Sub, "extra", None)
        for _ in range(3):
            assert run(look, Sub()) == (False, "base", None)
            Sub.flag, Sub.name, Sub.extra = True, lambda self: "patched", 5
            Sub.__doc__ = "of its own"
            assert run(look, Sub()) == (True, "patched", 5)
            Sub.flag, Sub.name, Sub.__doc__ = Base.flag, Base.name, Base.__doc__
            del Sub.extra
    """)


def test_a_class_that_comes_home_is_left_as_it_is(run_script):
    run_script("""
        made = []
        class Base:
            def __init_subclass__(cls): made.append(cls)
        class Counted(Base):
            created = 0
            def __init__(self): Counted.created += 1
            def reads_global(self): return made
        method = Counted.__dict__["reads_global"]
        def task(x): return x
        for i in range(1, 4):
            back = run(task, Counted())
            assert type(back) is Counted
            assert Counted.created == i
        assert Counted.__dict__["reads_global"] is method
        assert back.reads_global() is made
        assert made == [Counted]
    """)


def test_a_class_made_in_a_task_comes_back_whole(run_script):
    run_script("""
        def task():
            class Local:
                def answer(self): return 42
            return Local()
        first, second = run(task), run(task)
        assert first.answer() == second.answer() == 42
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

        error = failure(raises_lock)
        assert type(error) is TaskError and "LocksUp" in str(error)
        assert "raise LocksUp()" in error.__cause__.text

        run(hides, "only_here")
        error = failure(len, [only_here.Thing()])
        assert type(error) is SerializationError and "only_here" in str(error)
        assert "worker must be able to import" in str(error)
        assert "the worker's sys.path and the script's as it was when the pool" in str(error)
        assert "### task len, worker rank 1 on here" in error.__cause__.text
        error = failure(only_here.function)
        assert type(error) is SerializationError and "only_here" in str(error)
        assert error.__cause__.task == "function"
        assert "### task function, worker rank 1 on here" in error.__cause__.text
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


def test_fields_without_defaults_are_known_as_such(run_script):
    run_script("""
        import dataclasses

        @dataclasses.dataclass
        class Point:
            x: int
            tags: list = dataclasses.field(default_factory=list)

        def required():
            missing = dataclasses.MISSING
            fields = dataclasses.fields(Point)
            return [f.name for f in fields if f.default is missing is f.default_factory]

        def below():
            @dataclasses.dataclass
            class Space(Point): z: int = 0
            try:
                Space()
            except TypeError as error:
                return str(error)

        assert run(required) == ["x"]
        assert "'x'" in run(below)
    """)


def test_classes_with_slots(run_script):
    run_script("""
        import abc, dataclasses, typing

        @dataclasses.dataclass(slots=True)
        class Point:
            x: int
            y: int = 2

        @dataclasses.dataclass(slots=True)
        class Space(Point):
            z: int = 3

        class One: __slots__ = "x"
        class Private:
            __slots__ = ("__x",)
            def __init__(self, x): self.__x = x
            def get(self): return self.__x
        class Below(Private):
            __slots__ = iter(["y"])
        class Open(Private): pass
        class Dict(One): __slots__ = ("__dict__", "__weakref__")
        class Abstract(abc.ABC):
            __slots__ = ()
            @abc.abstractmethod
            def get(self): pass
        class Concrete(Abstract):
            __slots__ = {"x": "documented"}
            def get(self): return self.x
        class Pair(typing.NamedTuple):
            a: int
            b: int = 2
        class Failure(Exception):
            __slots__ = ("code",)

        def point(p): return Point(p.x + 1)
        def space(p): return Space(p.x, z=5)
        def one():
            value = One()
            value.x = 5
            return value
        def private(p): return Private(p.get() + 1)
        def below(p):
            made = Below(p.get())
            made.y = 7
            return made
        def opened():
            value = Open(1)
            value.free = 2
            return value
        def dictionary():
            value = Dict()
            value.x, value.other = 1, 2
            return value
        def concrete():
            value = Concrete()
            value.x = 9
            return value
        def pair(p): return p._replace(b=3)
        def fails():
            error = Failure("why")
            error.code = 4
            raise error
        def has_dict(p): return hasattr(p, "__dict__")

        for _ in range(3):
            assert run(point, Point(1)) == Point(2)
            assert run(space, Point(1)) == Space(1, 2, 5)
            assert not run(has_dict, Point(1))
            assert run(one).x == 5 and type(run(one)) is One
            assert run(private, Private(1)).get() == 2
            assert (run(below, Private(1)).get(), run(below, Private(1)).y) == (1, 7)
            assert (run(opened).get(), run(opened).free) == (1, 2)
            assert (run(dictionary).x, run(dictionary).other) == (1, 2)
            assert run(concrete).get() == 9
            assert run(pair, Pair(1)) == Pair(1, 3)
            assert failure(fails).code == 4
    """)


def test_classes_whose_base_wants_arguments(run_script):
    run_script("""
        class Tagged:
            def __init_subclass__(cls, tag, **more):
                super().__init_subclass__(**more)
                cls.tag = tag
        class One(Tagged, tag=1): pass
        class Two(One, tag=2): x = 3

        def below():
            class Three(Two, tag=One.tag + 2): pass
            return Three.tag, Three.x
        def two(value): return type(value).tag, Two()

        for _ in range(3):
            assert run(below) == (3, 3)
            tag, value = run(two, Two())
            assert tag == 2 and type(value) is Two
        assert str(failure(lambda: type("Four", (Tagged,), {}))).endswith("argument: 'tag'")
    """)


def test_generic_functions(run_script):
    run_script("""
        import functools

        @functools.singledispatch
        def size(value, scale=1):
            "How large it is."
            raise TypeError("of no size")
        @size.register
        def _(value: int): return value
        @size.register(list)
        def of_list(value): return sum(map(size, value))
        size.note = "kept"

        class Shape:
            @functools.singledispatchmethod
            def area(self, side): return None
            @area.register
            def _(self, side: int): return side * side

        def asks(value): return size(value), size.note, size.__doc__
        def area(side): return Shape().area(side)

        for _ in range(3):
            assert run(size, [1, [2, 3]]) == 6
            assert run(asks, [4]) == (4, "kept", "How large it is.")
            assert str(failure(size, "text")) == "of no size"
            assert (run(area, 3), run(area, "x")) == (9, None)
        try:
            run(size)
        except TypeError as error:
            assert str(error) == "size requires at least 1 positional argument", error
        size.register(str, len)
        assert run(asks, ["abc"])[0] == 3, "what is registered later counts"
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


def test_classes_of_ctypes(run_script):
    run_script("""
        import ctypes

        class Point(ctypes.Structure):
            _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]
            kind = ctypes.c_long
            def total(self):
                return self.x + self.y

        class Deep(Point):
            _fields_ = [("z", ctypes.c_int)]

        class Number(ctypes.Union):
            _fields_ = [("i", ctypes.c_uint32), ("f", ctypes.c_float)]

        class Packet(ctypes.BigEndianStructure):
            _pack_ = 1
            _fields_ = [("bits", ctypes.c_uint8, 3), ("n", ctypes.c_uint16)]

        class Tagged(ctypes.Structure):
            _anonymous_ = ("number",)
            _fields_ = [("tag", ctypes.c_char), ("number", Number)]

        class Row(ctypes.Array):
            _type_, _length_ = Point, 2

        class Id(ctypes.c_int): ...

        class Node(ctypes.Structure): ...
        Node._fields_ = [("next", ctypes.POINTER(Node)), ("value", ctypes.c_int)]

        class Box(ctypes.Structure):
            _fields_ = [("points", Row), ("name", ctypes.c_char * 8), ("ids", Id * 2)]

        def same(value):
            return value

        box = Box(Row(Point(1, 2.5), Point(3, 4)), b"name", (Id * 2)(Id(5), Id(6)))
        values = [Point(1, 2.5), Deep(1, 2.5, 3), Number(f=1.5), Packet(5, 0x102), Row(), Id(7)]
        arrays = (Point * 2)(Point(1, 2)), (ctypes.c_int * 3)(1, 2, 3)
        for value in (*values, *arrays, box, Tagged(b"x", (1,))):
            back = run(same, value)
            assert type(back) is type(value) and bytes(back) == bytes(value), value

        def work(point):
            assert Tagged(i=7).number.i == 7
            point.x += 1
            first, second = Node(value=1), Node(value=2)
            first.next = ctypes.pointer(second)
            return point.total(), first.next.contents.value, bytes(Packet(5, 0x102))

        for _ in range(2):  # there are copies of the classes there by now
            assert run(work, Point(1, 2.5)) == (4.5, 2, bytes(Packet(5, 0x102)))
        Point.total = lambda self: "changed"
        assert run(work, Point(1, 2.5))[0] == "changed"
    """)


def test_locks_of_the_script_are_made_anew(run_script):
    run_script("""
        import threading
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
        assert local.count == 10 and lock.locked()
    """)


def test_locks_that_tasks_would_have_to_share_cannot_travel(run_script):
    run_script("""
        import threading
        lock, ended = threading.Lock(), (n for n in ())
        def enclosing():
            lock = threading.Lock()
            return lambda: lock.locked()
        def takes(lock): return lock.locked()
        def task(): return lock.locked(), ended
        assert "argument 1 of 1" in str(failure(takes, lock))
        assert "'lock', which the function reads" in str(failure(enclosing()))
        assert "'ended', which the function reads" in str(failure(task))
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


def test_hooks_of_classes_are_called_once(run_script):
    run_script("""
        class Base:
            count, names = 0, []
            def __init_subclass__(cls, tag=None):
                Base.count += 1
                Base.names.append(cls.__name__)
        class A(Base, tag=1): pass
        class B(A): pass
        class Plugin(type):
            made = []
            def __new__(meta, name, bases, namespace):
                if bases and "command" not in namespace:
                    raise TypeError("no command")
                return super().__new__(meta, name, bases, namespace)
            def __init__(cls, name, bases, namespace):
                super().__init__(name, bases, namespace)
                Plugin.made.append(name)
        class M(metaclass=Plugin): pass
        class N(M): command = "n"
        def classes(): return A.__name__, B.__name__, Base.count, Base.names
        def metaclass(): return M.__name__, N.command, Plugin.made
        def subclass():
            class C(B, tag=2): pass
            return Base.count, Base.names[-1]
        for _ in range(3):
            assert run(classes) == ("A", "B", 2, ["A", "B"])
            assert run(metaclass) == ("M", "n", ["M", "N"])
        assert run(subclass) == (3, "C")
        assert run(lambda: isinstance(N(), M)) and type(run(N)) is N
    """)


def test_what_a_metaclass_does_not_let_be_set_is_there(run_script):
    run_script("""
        import abc
        class Counted(abc.ABCMeta):
            @property
            def arity(cls): return cls.__dict__["arity"] + 1
        class Function(metaclass=Counted):
            arity = 1
            def call(self): return type(self).arity
        class Other(Function): arity = 4
        def task(): return Function.arity, Other().call(), isinstance(Other(), Function)
        for _ in range(3):
            assert run(task) == (2, 5, True)
    """)


def test_classes_that_their_metaclass_takes_for_equal_stay_apart(run_script):
    run_script("""
        class ByName(type):
            def __eq__(cls, other): return cls.__name__ == getattr(other, "__name__", None)
            def __hash__(cls): return hash(cls.__name__)
        class Old:
            class Config(metaclass=ByName):
                def version(self): return "old"
        class New:
            class Config(metaclass=ByName):
                def version(self): return "new"
        def versions(*objects): return [thing.version() for thing in objects]
        assert run(versions, Old.Config(), New.Config()) == ["old", "new"]
        assert run(versions, New.Config()) == ["new"]
        assert type(run(New.Config)) is New.Config
    """)


def test_what_says_by_which_name_the_script_has_it_is_that(run_script):
    run_script("""
        class Missing:
            def __init__(self): self.text = "nothing"
            def __reduce__(self): return "MISSING"
        class Slotted:
            __slots__ = ("text",)
            def __init__(self): self.text = "slot"
            def __reduce__(self): return "SLOTTED"
        class Plain:
            def __init__(self, x): self.x = x
            def __reduce__(self): return Plain, (self.x,)
        MISSING, SLOTTED = Missing(), Slotted()
        def task(x=MISSING): return x is MISSING, x is SLOTTED, getattr(x, "text", None)
        for _ in range(3):
            assert run(task) == run(task, MISSING) == (True, False, "nothing")
            assert run(task, SLOTTED) == (False, True, "slot")
            assert run(task, None) == (False, False, None)
        assert run(lambda: [MISSING, SLOTTED]) == [MISSING, SLOTTED]
        assert run(lambda x: x.x, Plain(3)) == 3
        def change():
            before, MISSING.text = MISSING.text, "changed"
            return before
        for _ in range(3):
            assert run(change) == "nothing", "what a task has made of it, the next does not see"
        del SLOTTED
        assert "SLOTTED" in str(failure(task, Slotted()))
    """)


def test_a_metaclass_is_not_told_again_what_is_set(run_script):
    run_script("""
        class Frozen(type):
            told = []
            def __setattr__(cls, name, value):
                Frozen.told.append(name)
                if name != "y":
                    raise AttributeError("frozen class")
                super().__setattr__(name, value)
        class Constants(metaclass=Frozen):
            X = 1
        Constants.y = 2
        for _ in range(3):
            assert run(lambda: (Constants.X, Constants.y, Frozen.told)) == (1, 2, ["y"])
    """)


def test_a_task_can_pickle_what_is_of_a_class_of_the_script(run_script):
    run_script("""
        import dataclasses, pickle, sys
        @dataclasses.dataclass
        class Row:
            x: int
        class Outer:
            class Inner(Row): pass
        class Worker: pass  # by that name the other program has another class
        def task(x): return pickle.dumps([Row(x), Outer.Inner(x), Row])
        assert pickle.loads(run(task, 3)) == [Row(3), Outer.Inner(3), Row]
        class Row:
            pass
        assert pickle.loads(run(lambda: pickle.dumps(Row))) is Row
        assert pickle.loads(run(lambda: pickle.dumps(Worker))) is Worker

        @dataclasses.dataclass(frozen=True, slots=True)
        class Point:  # the second class of that name: the first had no slots
            x: int
        assert pickle.loads(run(lambda: pickle.dumps(Point(2)))) == Point(2)
        made = type("Made", (), {})
        assert run(lambda: (made, "Made" in vars(sys.modules["__main__"])))[1] is False
        sent = pickle.dumps(Row())
        assert "Row" in str(failure(pickle.loads, sent)), "no task has brought it along"
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
        import logging, re
        from functools import lru_cache, partial
        from numpy import exp, dot
        from workpool.serializer import encode_blocks, pack_call
        log, pattern, limit, pair = logging.getLogger("x"), re.compile("a"), 3, (1, "a")
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
