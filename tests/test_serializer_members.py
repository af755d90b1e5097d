"""What classes of a script define, on a worker and back: see ``test_serializer_processes``."""

from __future__ import annotations

import sys

import pytest


def test_attributes_of_a_class_are_in_the_order_of_its_definition(run_script):
    run_script("""
        import abc, enum
        class Record:
            name, age, city = 1, 2, 3
            def load(self): ...
            depth = 4
        class Slotted:
            __slots__ = ("_x",)
            zone, area = 1, 2
        class Shape(abc.ABC):
            zone, area = 1, 2
        class Colour(enum.Enum):
            _RED = 1
            def warm(self): ...
            def cold(self): ...
        def names(cls): return [name for name in vars(cls) if not name.startswith("_")]
        def look(): return names(Record), names(Shape), names(Slotted), names(Colour)
        for _ in range(3):
            assert run(look) == look()
            assert run(names, Record) == ["name", "age", "city", "load", "depth"]
    """)


def test_a_class_may_have_what_a_base_has_too(run_script):
    run_script("""
        import enum, pprint
        class Color(str, enum.Enum):
            RED = "red"
            __str__ = str.__str__
        class Base:
            "A base."
            verbose = False
            __hash__ = None
            def __repr__(self): return "base"
        class Loud(Base):
            verbose = True
            __hash__ = object.__hash__
            def __repr__(self): return "loud"
        class Quiet(Base):
            __doc__ = Base.__doc__
            verbose = False
            __hash__ = None
            __repr__ = Base.__repr__
        class Both(Quiet, Loud): pass
        class Printer(pprint.PrettyPrinter):
            format = pprint.PrettyPrinter.format
            _dispatch = pprint.PrettyPrinter._dispatch
        def look(color, kind):
            Base.verbose = "changed"
            assert "format" in vars(Printer)
            assert Printer._dispatch is pprint.PrettyPrinter._dispatch  # the worker's own
            return str(color), kind.verbose, kind.__hash__, repr(kind()), Quiet.__doc__
        expected = "red", False, None, "base", "A base."
        assert run(look, Color.RED, Both) == expected
        assert run(lambda: look(Color.RED, Both)) == expected
        Quiet.verbose = Base
        assert run(look, Color.RED, Both)[1] is Base
        del Quiet.verbose, Quiet.__repr__
        assert run(look, Color.RED, Both)[1:4:2] == (True, "loud")
    """)


def test_kinds_of_properties_and_methods_of_the_script_are_whole(run_script):
    run_script("""
        class Kept(property):
            def __init__(self, get, key, note=None):
                super().__init__(get)
                self.key, self.note = key, note
            def __get__(self, obj, owner=None):
                if self.key not in vars(obj):
                    vars(obj)[self.key] = self.fget(obj)
                return vars(obj)[self.key]
        class Static(staticmethod): pass
        class OfClass(classmethod):
            __slots__ = ("note",)
        class Box:
            half = Kept(lambda self: (21, type(self) is Box), "half", note=[1])
            @Static
            def add(x): return x + 1
            @OfClass
            def name(cls): return cls.__name__
        vars(Box)["name"].note = "n"
        def look():
            box, kept = Box(), vars(Box)["half"]
            box.half
            return vars(box), Box.add(1), Box.name(), kept.note, kept.key, vars(Box)["name"].note
        for _ in range(3):
            assert run(look) == ({"half": (21, True)}, 2, "Box", [1], "half", "n")
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
        import cloudpickle
        cloudpickle.loads(cloudpickle.dumps(Point(1)))  # which gives the class copies of marks
        assert run(required) == ["x"] and run(lambda point: point, Point(1)) == Point(1)
    """)


def test_annotations_of_classes_of_the_script(run_script):
    run_script("""
        import dataclasses, enum, typing
        class Plain:
            x: int
            y: "list[int]" = ()
            def get(self, n: int) -> float: return 1.0
        class Below(Plain):
            z: Plain
        class Pair(typing.NamedTuple):
            first: int
        class Row(typing.TypedDict):
            x: int
        class Shape(typing.Protocol):
            name: str
        class Colour(enum.Enum):
            weight: int
            RED = 1
        @dataclasses.dataclass(slots=True)
        class Point:
            x: int
            def __init_subclass__(cls): cls.of = cls.__annotations__
        class Space(Point):
            z: int
        classes = Plain, Below, Pair, Row, Shape, Colour, Point, Space
        def look():
            return [(cls.__annotations__, typing.get_type_hints(cls)) for cls in classes]
        for _ in range(3):
            assert run(look) == look()
        assert run(lambda: typing.get_type_hints(Plain.get)) == typing.get_type_hints(Plain.get)
        Plain.__annotations__ = {"w": int}
        assert run(look) == look()
    """)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are worked out at once")
def test_annotations_that_stand_for_nothing(run_script):
    run_script("""
        import dataclasses, typing
        if typing.TYPE_CHECKING:
            from nowhere import Missing
        UNREAD = (i for i in range(3))  # which cannot be pickled
        class Plain:
            x: Missing
            def get(self, n: list[Missing]) -> "Missing": return n
        @dataclasses.dataclass
        class Point:
            x: Missing
            y: dict[str, Missing] = None
        class Pair(typing.NamedTuple):
            first: Missing
        def scale(x: Missing, *, by: int = 2, **more: Missing.Part) -> Missing | None:
            "Scale it."
            return x * by, Plain().get(x), Point(x), Pair(x)
        scale.note = 5
        def make(x):
            def closure(y: Missing = 1) -> Missing: return x + y
            return closure
        def look(): return Plain.__annotations__, Point.__annotations__, scale.__annotations__
        for _ in range(3):
            assert run(scale, 3) == (6, 3, Point(3), Pair(3))
            assert run(make(3)) == 4
            assert run(lambda: (scale.note, scale.__doc__)) == (5, "Scale it.")
            assert run(lambda: scale(1, by=5)[0]) == 5
            plain, point, function = run(look)
            assert plain == {"x": "Missing"}
            assert point == {"x": "Missing", "y": "dict[str, Missing]"}
            assert function == {
                "x": "Missing", "by": "int", "more": "Missing.Part", "return": "Missing | None"
            }
        assert worker.code_ids_used[-1]
        class Missing: Part = int
        assert scale.__annotations__["x"] is Missing  # those of the script are as they were
    """)


def test_methods_that_are_partial(run_script):
    run_script("""
        import functools
        class Gate:
            def turn(self, angle, *, by=1): return angle * by
            flip = functools.partialmethod(turn, 180)
            half = functools.partialmethod(turn, by=2)
        def task(gate): return gate.flip(), gate.flip(by=3), gate.half(5)
        for _ in range(3):
            assert run(task, Gate()) == (180, 540, 10)
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
            assert run(Shape().area, 3) == 9 and run(Shape().area, "x") is None
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


def test_what_a_function_reads_may_be_made_of_arguments_that_nobody_knows(run_script):
    """As a template of jinja2 is: its class has a ``__new__`` that wants some."""
    run_script(
        """
        import maker
        class Pair(tuple):
            def __new__(cls, left, right): return super().__new__(cls, (left, right))
        class Slotted:
            __slots__ = ("name",)
            def __new__(cls, name):
                made = super().__new__(cls)
                made.name = name
                return made
        template, table = maker.Template("x"), maker.Table(3)
        pair, slotted = Pair(1, 2), Slotted("y")
        from maker import one      # its module has it, but a copy is read
        third = maker.Ratio(1, 3)
        template.me, table["pair"] = template, pair
        def read():
            assert template.me is template and table["pair"] is pair
            assert type(table) is maker.Table and type(pair) is Pair
            assert one.value == (1, 1) and third.value == (1, 3)
            return template.source, template.show(1), table["n"], tuple(pair), slotted.name
        for _ in range(3):
            assert run(read) == ("x", "x1", 3, (1, 2), "y")
        assert len(set(worker.code_ids_used[1:])) == 1 and worker.code_ids_used[1]
        """,
        maker="""
            class Template:
                def __new__(cls, source):
                    made = super().__new__(cls)
                    made.source, made.show = source, lambda n: source + str(n)
                    return made
            class Table(dict):
                def __new__(cls, n): return super().__new__(cls)
                def __init__(self, n): self["n"] = n
            class Ratio:
                __slots__ = ("value",)
                def __new__(cls, p, q):
                    made = super().__new__(cls)
                    made.value = p, q
                    return made
            one = Ratio(1, 1)
        """,
    )
