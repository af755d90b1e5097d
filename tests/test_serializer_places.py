"""Classes that a module has under another name than their own, see ``byname.place_of``."""

from __future__ import annotations

MODULES = {
    "shapes": """
        from collections import namedtuple
        from enum import Enum
        Point = namedtuple("Pt", "x y")
        Colour = Enum("ShapesColour", "RED BLUE")
        def factory():
            class Local: pass
            return Local
        Made = factory()
        late = None
        def is_mine(it):
            return isinstance(it, (Point, Colour, Made))
        def make():
            return Point(1, 2), Colour.RED, Made()
    """,
}


def test_a_class_of_a_module_is_the_same_under_whatever_name_it_is_there(run_script):
    run_script(
        """
        import shapes
        from shapes import Colour, Made, Point, is_mine, make
        mine = make()
        assert all([run(is_mine, it) for it in mine])
        assert run(make)[:2] == mine[:2] and run(make)[1] is Colour.RED
        assert all(is_mine(it) for it in run(make))
        def read(x):
            return Point(x, 0), Made(), shapes.is_mine(Made()), Colour.BLUE, Made
        for x in range(5):
            point, made, is_same, colour, cls = run(read, x)
            assert type(point) is Point and type(made) is Made and is_same
            assert colour is Colour.BLUE and cls is Made
        assert worker.codes.lookup(read) is not None
        many = [Point(x, 0) for x in range(300)]
        def search():
            return all(map(is_mine, many))
        assert [run(search) for _ in range(3)] == [True] * 3
        assert worker.codes.lookup(search) is not None
        assert is_mine(run(Point, 1, 2))
        """,
        **MODULES,
    )


def test_a_class_that_only_this_process_has_put_into_a_module_is_missed(run_script):
    run_script(
        """
        import shapes
        shapes.late = shapes.factory()
        try:
            run(lambda: shapes.late, shapes.late())
        except Exception as error:
            assert "no class factory.<locals>.Local under the name late" in str(error), error
        else:
            raise AssertionError
        """,
        **MODULES,
    )


def test_classes_of_the_script_are_found_in_no_module(run_script):
    run_script(
        """
        import dataclasses, shapes
        Size = dataclasses.make_dataclass("Size", ["width"])
        shapes.late = Size
        def make(x): return Size(x)
        assert [run(make, x) for x in range(4)] == [Size(x) for x in range(4)]
        """,
        **MODULES,
    )
