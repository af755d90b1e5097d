"""What goes by a name that is not its own, but that a module has for it.

Classes, see ``byname.place_of``; and what cannot be copied, see ``byname.settle``.
"""

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
    "service": """
        import threading
        from contextvars import ContextVar
        lock, local, current = threading.RLock(), threading.local(), ContextVar("current")
        numbers = (n for n in range(1000))
        class Session:
            def __init__(self):
                self.uses, self.source = 0, iter(numbers.__next__, None)
            def __reduce__(self):
                raise NotImplementedError("a session stays here")
            def get(self):
                self.uses += 1
                return self.uses
        session, another, late = Session(), Session(), None
        def set_all(value):
            local.value = value
            current.set(value)
        def is_mine(it):
            return any(it is mine for mine in (session, another, lock, local, current, numbers))
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
            assert "no factory.<locals>.Local under the name late" in str(error), error
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


def test_what_cannot_be_copied_is_the_one_that_the_worker_has_in_that_module(run_script):
    run_script(
        """
        import service
        from service import current, is_mine, local, lock, numbers, session
        from service import another as mine
        session.get()
        def read(x):
            service.set_all(x)
            with lock:
                return local.value, current.get(), is_mine(session), is_mine(mine), is_mine(numbers)
        def is_its_own():
            return is_mine(lock) and is_mine(local) and is_mine(current)
        def count():
            return session.get()
        class Task:
            kept = session
            def run(self):
                return self.kept.get()
        def others(x):
            return count(), is_its_own(), Task().run(), (lambda: is_mine(mine))()
        for x in range(4):
            assert run(read, x) == (x, x, True, True, True)
            assert run(is_its_own) and run(count) == 2 * x + 1 and run(Task().run) == 2 * x + 2
        assert all(worker.codes.lookup(fn) for fn in (read, is_its_own, count))
        assert [run(others, 0) for _ in range(2)] == [(9, True, 10, True), (11, True, 12, True)]
        assert session.uses == 1
        """,
        **MODULES,
    )


def test_a_lock_of_a_decorator_is_made_anew_for_what_a_class_has_too(run_script):
    script = """
        import functools, threading
        def one_at_a_time(function):
            lock = threading.RLock()
            @functools.wraps(function)
            def wrapped(*args):
                with lock: return function(*args)
            return wrapped
        @one_at_a_time
        def double(x): return 2 * x
        class Scale:
            FACTOR = 3
            @one_at_a_time
            def of(self, x): return self.FACTOR * x
            @classmethod
            @one_at_a_time
            def named(cls, x): return cls.FACTOR * x
            @staticmethod
            @one_at_a_time
            def less(x): return x - 1
        class Larger(Scale): FACTOR = 4
        for _ in range(3):
            assert run(double, 2) == 4 and run(Scale.of, Scale(), 2) == 6
            assert run(Larger().of, 2) == run(Larger.named, 2) == 8 and run(Larger.less, 2) == 1
            assert run(map, Scale().of, [1]).__next__() == 3
    """
    run_script(script)


def test_what_cannot_be_copied_is_no_argument_and_others_are_refused_as_ever(run_script):
    run_script(
        """
        import service
        from multiprocessing import Queue
        from service import session, lock
        own = (n for n in range(3))
        service.queue = queue = Queue()
        class Kept:
            def __reduce__(self): raise TypeError("kept")
        service.kept = kept = Kept()
        def read(it): return session.get(), own
        def put(): queue.put(1)
        def keep(): return kept
        for _ in range(3):
            assert "'own', which the function reads, of type generator" in str(failure(read, 1))
            assert "argument 1 of 1 of type service.Session" in str(failure(abs, session))
            assert "argument 1 of 1 of type _thread.RLock" in str(failure(abs, lock))
            assert "'queue', which the function reads, of type" in str(failure(put))
            assert "'kept', which the function reads, of type" in str(failure(keep))
        """,
        **MODULES,
    )


def test_what_only_this_process_has_put_into_a_module_is_missed(run_script):
    run_script(
        """
        import service
        session = service.late = service.Session()
        def read(): return session.get()
        assert "service has no Session under the name late" in str(failure(read))
        service.late = None
        assert "'session', which the function reads, of type" in str(failure(read))
        """,
        **MODULES,
    )


def test_a_call_that_reads_what_cannot_be_copied_is_the_same_in_the_next_run(run_script):
    run_script(
        """
        import service
        from service import current, session, numbers
        from workpool.serializer.fingerprint import fingerprint
        def read(): return session.get(), current.name
        class Task: kept = session
        before = fingerprint((read, Task), Exception)
        run(read)
        assert fingerprint((read, Task), Exception) == before
        session = service.another
        assert fingerprint(read, Exception) != fingerprint((read, Task), Exception) != before
        """,
        **MODULES,
    )


def test_what_random_draws_from_is_not_copied_with_an_argument(run_script):
    """As scipy's distributions have it: each task would draw the same."""
    run_script(
        """
        import random
        import numpy as np
        from holder import Holder
        from workpool.serializer.fingerprint import fingerprint
        class Own(Holder): pass
        def draw(it): return it.rng.random()
        for rng in random._inst, np.random.mtrand._rand:
            for held in Holder(rng), Own(rng):
                before = fingerprint(held, complex)
                assert len({run(draw, held) for _ in range(9)} | {rng.random()}) == 10, held
                assert run(lambda it: it, held).rng is rng
                assert fingerprint(held, complex) == before
        alike = Holder(random.Random(0))
        assert len({run(draw, alike) for _ in range(3)}) == 1
        """,
        holder="class Holder:\n    def __init__(self, rng): self.rng = rng\n",
    )
