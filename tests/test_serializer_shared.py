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
