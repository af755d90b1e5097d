"""Classes of the script that are more than their bodies say: metaclasses, hooks, C."""

from __future__ import annotations


def test_a_class_gets_the_metaclass_of_its_base_though_that_cannot_be_imported(run_script):
    native = """
        class Meta(type): pass
        Meta.__module__ = "builtins_of_native"  # as those of pybind11 and nanobind
        class Vector(metaclass=Meta):
            def __init__(self, x): self.x = x
            def norm(self): return abs(self.x)
    """
    script = """
        import native
        class Mine(native.Vector):
            FACTOR = 2
            def norm(self): return self.FACTOR * super().norm()
        class Below(Mine): pass
        def task(x): return Mine(x).norm(), type(Mine) is native.Meta
        def norm(vector): return vector.norm()
        for Mine.FACTOR in (2, 3):
            for _ in range(3):
                assert run(task, -1) == (Mine.FACTOR, True)
                assert run(norm, Below(-1)) == run(Mine, 1).norm() == Mine.FACTOR
                assert type(run(Below, 1)) is Below
    """
    run_script(script, native=native)


def test_a_descriptor_that_is_looked_up_in_its_class_comes_with_the_class(run_script):
    caching = """
        import functools
        class cached:  # of a method, as cachetools.cachedmethod is
            def __init__(self, method):
                self._method = method
                functools.update_wrapper(self, method)
            def __set_name__(self, owner, name): self._owner, self._name = owner, name
            def __get__(self, obj, owner=None):
                assert vars(type(obj))[self._name] is self
                return vars(obj).setdefault(self._name, Wrapper(self, obj))
            def __reduce__(self): return lookup, (self._owner, self._name)
        class Wrapper:
            def __init__(self, descriptor, obj): self._parts = descriptor, obj
            def __call__(self, x):
                descriptor, obj = self._parts
                if x not in obj.seen:
                    obj.seen[x] = descriptor._method(obj, x)
                return obj.seen[x]
            def __reduce__(self): return self._parts[0].__get__, (self._parts[1],)
        def lookup(owner, name): return vars(owner)[name]
    """
    script = """
        from caching import cached
        OFFSET = 0
        class Table:
            def __init__(self): self.seen = {}
            @cached
            def get(self, x): return x + OFFSET
        def new(x): return Table().get(x)
        def ask(table, x): return table.get(x), table
        for OFFSET in (0, 10):
            for _ in range(3):
                assert run(new, 1) == run(Table().get, 1) == 1 + OFFSET
                table = Table()
                assert table.get(2) == 2 + OFFSET
                assert run(table.get, 2) == 2 + OFFSET
                value, table = run(ask, table, 1)
                assert type(table) is Table
                assert table.seen == {1: value, 2: value + 1} and table.get(3) == value + 2
    """
    run_script(script, caching=caching)


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


def test_classes_whose_importable_base_wants_arguments(run_script):
    base = """
        class Tagged:
            def __init_subclass__(cls, tag): cls.tag = tag
    """
    script = """
        from base import Tagged
        class One(Tagged, tag=1): x = 3
        for _ in range(2):
            assert run(lambda: (One.tag, One.x, One())[:2]) == (1, 3)
            assert type(run(One)) is One
    """
    run_script(script, base=base)


def test_a_generic_class_has_a_metaclass_of_the_script(run_script):
    run_script("""
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class Meta(type):
            def first(cls): return cls.items[0]
        class Many(Generic[T], metaclass=Meta):
            items = [1, 2]
        class Few(Many[int]): pass
        for _ in range(2):
            assert run(lambda: (Few.first(), Few.__orig_bases__ == (Many[int],))) == (1, True)
            assert type(run(lambda: Many[int]())) is Many
    """)


def test_classes_are_registered_with_an_abstract_one_of_the_script(run_script):
    run_script("""
        import abc
        class Base(abc.ABC): pass
        @Base.register
        class Other: pass
        for _ in range(2):
            assert run(lambda: (issubclass(Other, Base), isinstance(3, Base))) == (True, False)
            assert run(lambda it: isinstance(it, Base), Other())
    """)


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
            _layout_, _pack_ = "ms", 1
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


def test_a_metaclass_may_keep_the_classes_it_makes_by_their_names(run_script):
    run_script("""
        class Registered(type):
            known = {}
            def __new__(meta, name, bases, namespace):
                made = meta.known[name] = super().__new__(meta, name, bases, namespace)
                return made
        class Base(metaclass=Registered): pass
        class Shape(Base): sides = 4
        def task(shape, name): return shape.sides, Registered.known[name] is type(shape) is Shape
        for _ in range(3):
            assert run(task, Shape(), "Shape") == (4, True)
        assert type(run(Registered.known.get, "Shape")) is Registered
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


def test_a_class_may_be_false(run_script):
    run_script("""
        class Counted(type):
            def __len__(cls): return 0
        def make():
            class Thing(metaclass=Counted): pass
            return Thing
        Thing = make()
        def same(thing): return type(thing) is Thing and thing
        for _ in range(4):
            assert type(run(same, Thing())) is Thing
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


def test_a_class_whose_metaclass_is_registered_is_made_as_that_says(run_script):
    module = """
        import copyreg
        class Meta(type):
            def __new__(cls, name, base, content):
                return super().__new__(cls, name, (base,), content)
            def __init__(cls, name, base, content): cls.made_of = name, base, content
        def create(name, base, content):  # as that of DEAP, anew for each that is received
            globals()[name] = made = Meta(name, base, content)
            return made
        copyreg.pickle(Meta, lambda cls: (create, cls.made_of))
    """
    run_script(
        """
        import creating
        creating.create("Individual", list, {"fitness": 1})
        def task(individual): return individual + [type(individual).__name__], individual
        first = creating.Individual([1])
        creating.create("Individual", list, {"fitness": 2})
        for individual, fitness in (first, 1), (creating.Individual([1]), 2):
            seen, back = run(task, individual)
            assert seen == [1, "Individual"] and back == [1] and back.fitness == fitness
            assert type(back) is creating.Individual
        """,
        creating=module,
    )


def test_a_class_that_jax_would_find_empty_is_refused(run_script):
    equinox = """
        leaves = {}
        class Meta(type):
            def __init__(cls, name, bases, body): leaves[cls] = [*body.get("__annotations__", {})]
        class Module(metaclass=Meta): pass
    """
    script = """
        import equinox
        class Net(equinox.Module):
            weight: float
        def count(net): return len(equinox.leaves[type(net)])
        def make(): return count(Net())
        for call in (count, Net()), (make,):
            try:
                found = run(*call)
            except Exception as error:
                assert "define class Net in a module" in str(error), error
            else:
                raise AssertionError(found)
    """
    run_script(script, equinox=equinox)


def test_what_a_decorator_notes_in_a_method_of_a_class_comes_along(run_script):
    run_script("""
        def check(fields, kind=classmethod):
            def decorate(function):
                method = kind(function)
                method.fields = fields
                return method
            return decorate
        class Model:
            @check(["size"])
            def positive(cls, value): return value > 0
            @check({"name": str.islower}, staticmethod)
            def lower(value): return True
            @staticmethod
            def other(): ...
        def collect(cls):
            return {name: it.fields for name, it in vars(cls).items() if hasattr(it, "fields")}
        for _ in range(3):
            assert run(collect, Model) == {"positive": ["size"], "lower": {"name": str.islower}}
        vars(Model)["positive"].fields.append("age")
        vars(Model)["other"].fields = 1
        assert run(collect, Model)["positive"] == ["size", "age"]
        assert run(collect, Model)["other"] == 1
    """)


def test_a_typed_dict_below_another_of_the_script(run_script):
    script = """
        from typing import TypedDict
        class Point(TypedDict): x: int
        class Named(Point, total=False): name: str
        def task(x) -> Named: return Named(x=x), set(Named.__required_keys__), Named.__total__
        for _ in range(3):
            assert run(task, 1) == ({"x": 1}, {"x"}, False) and run(Named, x=1) == {"x": 1}
    """
    run_script(script)
