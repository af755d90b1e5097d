"""Classes cross once, with what brings them: see ``test_serializer_processes``."""

from __future__ import annotations

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


def test_what_sys_tells_of_the_interpreter_is_that_of_the_worker(run_script):
    run_script("""
        import sys
        from sys import flags, float_info, implementation, version_info
        def reads():
            return float_info is sys.float_info, flags is sys.flags, version_info >= (3, 10)
        for _ in range(3):
            assert run(reads) == (True, True, True)
        assert worker.code_ids_used[-1]
        assert run(lambda it: it is sys.int_info, sys.int_info)
        assert run(lambda: sys.hash_info) is sys.hash_info
        assert run(lambda it: it.version, implementation) == version_info
    """)
