"""Classes of a script, on a worker and back: see ``test_serializer_processes``."""

from __future__ import annotations


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
        import dataclasses, datetime, enum
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
        class Day(datetime.date, enum.Enum):
            FIRST = 2026, 1, 1
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
                Number.ONE + 1, Number(2).name, Day.FIRST.year, Day(Day.FIRST.value) is Day.FIRST,
            ]
        members = Planet.EARTH, Axis.X, Animal.DOG, Day.FIRST, Pair.A, Mode.RW, Mode.W, Number.ONE
        for _ in range(2):
            assert run(look, *members) == look(*members)
            for member, back in zip(members, run(lambda *them: them, *members)):
                assert back is member
        Planet.EARTH.mass = 6.0
        assert run(lambda: Planet.EARTH.mass) == 6.0
    """)


def test_a_class_may_lead_to_instances_of_itself(run_script):
    run_script("""
        import dataclasses, typing
        class Vector(typing.NamedTuple):
            x: int
            y: int = 0
            def far(self): return self.x - ORIGIN.x
        ORIGIN = Vector(1)
        Vector.ZERO = Vector(0)
        @dataclasses.dataclass(frozen=True, slots=True)
        class Point:
            x: int
            def far(self): return self.x - BASE.x
            def known(self): return self in KNOWN and PLACES.get(self)
        BASE = Point(1)
        KNOWN, PLACES = {Point(2), Point(3)}, {Point(3): "here"}
        class Length(float):
            def __new__(cls, value, unit):
                made = super().__new__(cls, value)
                made.unit = unit
                return made
            def __reduce__(self): return Length, (float(self), self.unit)
            def far(self): return self - METRE
        METRE = Length(1, "m")
        class Version:
            def __init__(self, number): self.number = number
            def __getstate__(self): return [self.number]
            def __setstate__(self, state): self.__init__(*state)
            def far(self): return self.number - LEAST.number
        LEAST = Version(1)
        class Named:
            def __init__(self, name): self.name = name
            @property
            def lower(self): return self.name.lower()
            def key(self): return self.lower
            def __eq__(self, other): return self.key() == other.key()
            def __hash__(self): return hash(self.key())
            def known(self): return self in NAMES
        NAMES = {Named("a"), Named("B")}
        def far(it): return it.far()
        for _ in range(3):
            assert run(Named("b").known) and run(lambda: Named("b").known())
            for it in Vector(3), Point(3), Length(3, "s"), Version(3):
                assert run(far, it) == run(lambda: it.far()) == 2
            assert run(Point(3).known) == run(lambda: Point(3).known()) == "here"
            assert run(lambda: (Vector.ZERO, METRE.unit)) == ((0, 0), "m")
            assert type(run(lambda: Vector.ZERO)) is Vector
            BASE = ORIGIN = Vector(1, 1)
        Version.__init__ = lambda self, number: setattr(self, "number", 2 * number)
        assert run(lambda: Version(3).number) == 6
    """)


def test_a_class_may_keep_what_is_made_of_an_attribute_of_another(run_script):
    run_script("""
        class Made:  # as what pydantic makes of the schema of a model
            def __init__(self, schema): assert schema["type"]; self.schema = schema
            def __reduce__(self): return Made, (self.schema,)
        class Inner: pass
        Inner.schema = {"of": Inner, "type": "inner"}
        Inner.a_validator = Made(Inner.schema)
        class Outer: pass
        Outer.parts = Inner
        Outer.schema = {"of": Outer, "within": Inner.schema, "type": "outer"}
        Outer.a_validator = Made(Outer.schema)
        assert type(run(lambda: Outer())) is Outer
        assert run(lambda cls: cls.a_validator.schema["within"] is Inner.schema, Outer)
    """)


def test_members_of_enumerations_are_themselves_whatever_their_values(run_script):
    run_script("""
        import enum, functools
        def add(a, b): return a + b
        class Step:
            def __init__(self, n): self.n = n
        class Operation(enum.Enum):
            ADD = "+", add
            PLUS = "1+", functools.partial(add, 1)
            STEP = Step(3)
            SUM = ADD
            NONE = object()
            def __call__(self, *args): return self.value[1](*args)
        class Pickled(enum.Enum):
            ONE = [1]
            def __reduce_ex__(self, protocol): return getattr, (Pickled, "ONE")
        class Bits(enum.IntFlag): A, B = 1, 2
        class Mode(enum.IntFlag): READ, WRITE = 1, 2
        both = Mode(Bits.A | Bits.B)  # its value is of the other type
        def task(member):
            members = [Operation.ADD, Operation.PLUS, Operation.STEP, Operation.NONE, Pickled.ONE]
            members.append(both)
            return members.index(member), member, members
        members = [*Operation, Pickled.ONE, both]
        for _ in range(3):
            for number, member in enumerate(members):
                index, same, others = run(task, member)
                assert index == number and same is member
                assert all(it is other for it, other in zip(others, members, strict=True))
                assert run(lambda: (member, Operation.SUM(1, 2)))[0] is member
        assert run(lambda: (Operation.PLUS(2), Operation.STEP.value.n)) == (3, 3)
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


def test_what_msgspec_keeps_of_a_class_stays_where_it_is(run_script):
    run_script("""
        import dataclasses, enum, typing
        @dataclasses.dataclass
        class Row:
            number: int
        class Pair(typing.NamedTuple):
            number: int
        class Color(enum.Enum):
            RED = 1
        class Said(typing.TypedDict):
            number: int
        def read(): return Row(1), Pair(1), Color.RED, Said(number=1)
        assert run(read) == read()
        for cls in (Row, Pair, Color, Said):  # as decoding does
            type.__setattr__(cls, "__msgspec_cache__", (None for _ in ()))
        for _ in range(4):
            assert run(read) == read()
        assert len(set(worker.code_ids_used[2:])) == 1 and worker.code_ids_used[2]
    """)


def test_a_class_may_have_an_object_whose_attributes_are_its_items(run_script):
    run_script("""
        class Options(dict):
            __getattr__ = dict.__getitem__
            def __reduce__(self): return Options, (dict(self),)

        def helper(x): return x + 1

        class Model:
            options = Options(size=3)
            step = staticmethod(helper)

        def task(model, x): return helper(model.step(x)) * model.options.size
        for _ in range(3):
            assert run(task, Model(), 1) == 9
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


def test_what_a_class_keeps_for_its_own_new_is_restored_without_that(run_script):
    run_script("""
        import threading
        import weakref
        class Only:
            only, lock = None, threading.Lock()
            def __new__(cls):
                with cls.lock:
                    if cls.only is None:
                        cls.only = super().__new__(cls)
                return cls.only
            def __getattr__(self, name):  # asked for nothing before it has `known`
                if name not in self.known: raise AttributeError(name)
                return self.known[name]
        class Keyed:
            known = {}
            def __new__(cls, key):
                if key not in cls.known:
                    made = cls.known[key] = super().__new__(cls)
                    made.key = key
                return cls.known[key]
            def __getnewargs__(self): return (self.key,)
        class Weak(Keyed):
            known = weakref.WeakValueDictionary()
        class Pair(tuple):
            known = {}
            def __new__(cls, *both):
                return cls.known.get(both) or cls.known.setdefault(both, super().__new__(cls, both))
            def __getnewargs__(self): return tuple(self)
        only, keyed, weak, pair = Only(), Keyed("key"), Weak("weak"), Pair(1, 2)
        only.known = {"x": 1}
        def same(it): return it is Only() is only and it.x
        for _ in range(2):
            assert run(lambda: Only() is only and only.x) == run(same, only) == 1
            assert run(lambda: Keyed("key") is keyed and Keyed("new").key) == "new"
            assert run(lambda it: it is Keyed("key") is keyed and it.key, keyed) == "key"
            assert run(lambda: Weak("weak") is weak and weak.key) == "weak"
            assert run(lambda it: it is Pair(1, 2) is pair and it, pair) is pair
            only.known["x"] = 1
        assert Keyed.known == {"key": keyed}
    """)


def test_a_class_may_have_what_every_class_has_under_that_name(run_script):
    script = """
        class Named:
            def __init__(self, function): self.function = function
            def __call__(self, x): return self.function(x), self.__name__
            @property
            def __name__(self): return self.function.__name__
        class Quoted(Named):
            @property
            def __name__(self): return repr(super().__name__)
        class Other:
            __name__, __bases__, __mro__ = "other", 1, ()
            __class__ = property(lambda self: int)
        def square(x): return x * x
        def task(): return Other.__name__, Other.__mro__[1], Other().__name__, Other().__class__
        for _ in range(3):
            assert run(Named(square), 3) == (9, "square") and Named.__name__ == "Named"
            assert run(Quoted(square), 3) == run(Quoted, square)(3) == (9, "'square'")
            assert run(task) == ("Other", object, "other", int)
    """
    run_script(script)
