"""Generic classes of the script, type aliases, and type parameters."""

from __future__ import annotations

import sys

import pytest


def test_a_class_that_a_generic_one_makes_of_arguments_is_the_one_it_makes_there(run_script):
    models = """
        import weakref
        made = weakref.WeakValueDictionary()
        class Meta(type):
            def __new__(meta, name, bases, ns, origin=None, args=()):
                cls = super().__new__(meta, name, bases, ns)
                cls.__pydantic_generic_metadata__ = {"origin": origin, "args": args}
                return cls
        class Model(metaclass=Meta):
            def __init__(self, x): self.x = self.kind(x)
            def __class_getitem__(cls, args):
                args = args if isinstance(args, tuple) else (args,)
                found = made.get((cls, args))
                if args[0].__module__ == "__main__" and not hasattr(args[0], "fields"):
                    raise TypeError(f"{args[0]} has no fields")
                if found is None:
                    name, ns = f"{cls.__name__}[{args[0].__name__}]", {"__module__": cls.__module__}
                    if args[0] is float: ns["kind"] = float
                    found = made[cls, args] = Meta(name, (cls,), ns, origin=cls, args=args)
                return found
        class Imported(Model):
            kind = int
    """
    script = """
        from models import Imported, Model
        made = []
        class Own(Model):
            kind = int
            def double(self): return 2 * self.x
            def __init_subclass__(cls): made.append(cls.__name__)
        class Within(Model):
            kind = int
            def other(self): return Alias(self.x)
        Alias = Within[int]
        class Part:
            fields = ()
            def other(self): return Parts(self)
        class Whole(Model):
            kind = staticmethod(lambda x: x)
        Parts = Whole[Part]
        class Field:
            kind = Own[int]
        def same(x, cls): return type(x) is Own[int] is cls is Field.kind, x.double(), made
        def new(x): return Own[float](x), Imported[float](x), Own[str]
        for x in range(3):
            assert run(same, Own[int](x), Own[int]) == (True, 2 * x, made)
            own, imported, text = run(new, x)
            assert type(own) is Own[float] and type(imported) is Imported[float]
            assert text is Own[str] and repr(own.x) == repr(imported.x) == repr(float(x))
            assert [run(type, x) for x in (own, imported)] == [Own[float], Imported[float]]
            within = run(Alias, x)
            assert type(within) is type(run(within.other)) is Within[int] and within.x == x
            whole = run(Parts, run(Part))
            assert type(whole) is type(run(whole.x.other)) is Parts and type(whole.x) is Part
        assert made == ["Own[int]", "Own[float]", "Own[str]"]
    """
    run_script(script, models=models)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type aliases are Python 3.12")
def test_type_aliases_of_the_script(run_script):
    run_script("""
        type Vector[T] = list[T]
        type Json = dict[str, Json] | list[Json] | int
        type Even = list[Odd] | None
        type Odd = list[Even]
        def task(x: Vector[int]) -> Vector[int]: return x
        def length(x: Json) -> Even: return len(x)
        def value(alias): return alias.__name__, alias.__value__.__args__[0].__args__[-1] is alias
        def inner(): return Even.__value__.__args__[0].__args__[0].__value__.__args__[0] is Even
        for _ in range(3):
            assert run(task, [1]) == [1]
            assert run(length, [1]) == 1
            assert run(value, Json) == ("Json", True)
            assert run(inner)
    """)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12")
def test_generic_aliases_that_refer_to_themselves(run_script):
    run_script("""
        from typing import Callable
        type Tree[T] = T | list[Tree[T]]
        type Row[T: int, U: (int, str), *Ts, **P] = tuple[Rows[T], Callable[P, U], *Ts]
        type Rows[T] = list[Row[T, str, int, [int]]]
        def depth(x: Tree[int]) -> int: return 1 + depth(x[0]) if isinstance(x, list) else 0
        def tree():
            leaf, below = Tree.__value__.__args__
            parameter, = Tree.__type_params__
            return leaf is parameter and below == list[Tree[parameter]]
        def row():
            first, second, *_ = Row.__type_params__
            bounds = first.__bound__, second.__constraints__
            texts = [str(it).replace("~", "") for it in (Row.__value__, Row.__type_params__)]
            return *texts, *bounds, Rows.__value__.__args__[0].__origin__ is Row
        for _ in range(3):
            assert run(depth, [[1]]) == 2
            assert run(tree)
            assert run(row) == row()
    """)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12")
def test_functions_and_classes_have_their_type_parameters(run_script):
    run_script("""
        def pick[T: int, *Ts](first: T, *others: *Ts) -> T: return first
        class Box[T]:
            content: T
            def get[U](self, default: U) -> T | U: return self.content or default
        def names():
            assert pick.__annotations__["return"] is pick.__type_params__[0]
            made = pick, Box, Box.get
            return [[it.__name__ for it in each.__type_params__] for each in made]
        for _ in range(3):
            assert run(pick, 1, 2) == 1
            assert run(names) == [["T", "Ts"], ["T"], ["U"]]
    """)
