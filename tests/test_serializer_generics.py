"""Generic classes of the script."""

from __future__ import annotations


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
