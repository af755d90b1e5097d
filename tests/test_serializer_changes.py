"""What changes of a function of the script, and is seen by the next task."""

from __future__ import annotations

import sys
import threading
import types

import pytest
from scripted import Job, define, looked_up_again

from workpool.serializer import CallableCache, unpack
from workpool.serializer.byvalue import dumps_by_value


def changed_global(made):
    made.script["FACTOR"] = 3


def deleted_global(made):
    del made.script["FACTOR"]


def newly_bound_global(made):
    made.script["abs"] = float


def changed_other_function(made):
    made.script["other"] = lambda x: x - 1


def changed_global_of_other_function(made):
    made.script["DEEPER"] = 2


def changed_code(made):
    made.fn.__code__ = (lambda x: x).__code__


def changed_defaults(made):
    made.fn.__defaults__ = (9,)


def changed_keyword_default(made):
    made.fn.__kwdefaults__["y"] = 9


def changed_keyword_defaults(made):
    made.fn.__kwdefaults__ = {"y": 9}


def changed_name(made):
    made.fn.__name__ = "gn"


def new_attribute(made):
    made.fn.note = 1


def replaced_attributes(made):
    made.fn.__dict__ = {"note": 1}


CHANGING = """
FACTOR, DEEPER = 2, 1
def other(x): return x + DEEPER
def fn(x=1, *, y=1): return (other(x), FACTOR, abs(y))
"""


@pytest.mark.parametrize(
    "change",
    [
        *(changed_global, deleted_global, newly_bound_global, changed_other_function),
        *(changed_global_of_other_function, changed_code, changed_defaults, new_attribute),
        *(changed_keyword_default, changed_keyword_defaults, replaced_attributes, changed_name),
    ],
)
def test_a_change_ends_the_code(codes, change):
    made = define(CHANGING)
    before = looked_up_again(codes, made.fn)
    change(made)
    assert codes.lookup(made.fn) is None
    after = codes.lookup(made.fn)
    assert after.code_id > before.code_id
    assert codes.lookup(made.fn) is after


def test_what_follows_a_change_is_the_changed_function(codes):
    made = define(CHANGING)
    assert unpack(looked_up_again(codes, made.fn).data)() == (2, 2, 1)
    made.script["DEEPER"] = 5
    assert unpack(looked_up_again(codes, made.fn).data)() == (6, 2, 1)


OBJECTS = {
    "class": """
class A:
    def __init__(self): self.x = 1
    def get(self): return self.x
class B(A):
    def get(self): return -self.x
it = A()
def fn(): return it.get()
def change(): it.__class__ = B
""",
    "class without members": """
class A: __slots__ = ()
class B: __slots__ = ()
it = A()
def fn(): return type(it).__name__
def change(): it.__class__ = B
""",
    "dictionary": """
class A: pass
it = A()
it.x = 1
def fn(): return it.x
def change(): it.__dict__ = {"x": 2}
""",
    "bases of a class": """
class A:
    def get(self): return 1
class B:
    def get(self): return 2
class C(A): pass
def fn(): return C().get()
def change(): C.__bases__ = (B,)
""",
    "tuple that is iterated over otherwise": """
class T(tuple):
    __slots__ = ()
    def __iter__(self): return iter(())
box = [1]
it = T([box])
def fn(): return it[0][0]
def change(): box[0] = 2
""",
    "registered class": """
import abc
class Base(abc.ABC): pass
class Other: pass
def fn(): return issubclass(Other, Base)
def change(): Base.register(Other)
""",
    "empty cell": """
def make():
    def fn():
        try: return later
        except NameError: return None
    def change():
        nonlocal later
        later = 5
    if not make: later = 0
    return fn, change
fn, change = make()
""",
    "method of another class": """
class C:
    n = 1
    def get(self): return self.n
class D: m = C().get
def fn(): return D.m()
def change(): C.n = 2
""",
}

UNSEEN = {
    "module": """
import types
made = types.ModuleType("made")
made.x = 1
def fn(): return made.x
def change(): made.x = 2
""",
    "classes in many lists": """
class A: n = 1
class List(list): pass
all = [List([A]) for _ in range(20)]
def fn(): return all[3][0].n
def change(): A.n = 2
""",
    "many objects": """
class A: n = 1
all = [A() for _ in range(1000)]
def fn(): return all[3].n
def change(): A.n = 2
""",
}


@pytest.mark.parametrize("source", [*OBJECTS.values(), *UNSEEN.values()], ids=[*OBJECTS, *UNSEEN])
def test_a_change_of_what_is_read_is_there_for_the_next_task(source):
    made = define(source)
    job = Job(made)
    before = job.settle(made.fn)
    assert (before is None) == (source in UNSEEN.values())
    assert job.run(made.fn)[0] == made.fn()
    was = made.fn()
    made.change()
    assert [job.run(made.fn)[0] for _ in range(3)] == [made.fn()] * 3 != [was] * 3
    assert before is None or job.settle(made.fn) is not before


def test_a_changed_cell_ends_the_code(codes):
    made = define("""
def make():
    n = 1
    def get(): return n
    def put(value):
        nonlocal n
        n = value
    return get, put
get, put = make()
""")
    before = looked_up_again(codes, made.get)
    made.put(2)
    assert codes.lookup(made.get) is None
    assert unpack(codes.lookup(made.get).data)() == 2
    assert unpack(before.data)() == 1
    made.put(threading.Lock())
    assert [codes.lookup(made.get) for _ in range(3)] == [None] * 3


def test_one_changed_cell_of_several_ends_the_code(codes):
    made = define("""
def make():
    m, n = 1, 1
    def get(): return m, n
    def put(value):
        nonlocal n
        n = value
    return get, put
get, put = make()
""")
    looked_up_again(codes, made.get)
    made.put(2)
    assert codes.lookup(made.get) is None
    assert unpack(codes.lookup(made.get).data)() == (1, 2)


def test_a_function_that_changes_for_every_task_leaves_no_codes(codes):
    made = define(CHANGING)
    looked_up_again(codes, made.fn)
    for i in range(100, 120):
        made.script["FACTOR"] = i
        assert codes.lookup(made.fn) is None


@pytest.fixture
def package_for_test(monkeypatch):
    package = types.ModuleType("pkg_for_test")
    package.__path__ = []
    package.__package__ = "pkg_for_test"
    monkeypatch.setitem(sys.modules, "pkg_for_test", package)
    return package


def test_a_submodule_imported_later_crosses(codes, package_for_test, monkeypatch):
    package, module = package_for_test, types.ModuleType("pkg_for_test.sub")
    made = define("def fn(): return pkg_for_test.sub", pkg_for_test=package)
    before = looked_up_again(codes, made.fn)
    monkeypatch.setitem(sys.modules, "pkg_for_test.sub", module)
    package.sub = module
    after = looked_up_again(codes, made.fn)
    assert b"pkg_for_test.sub" in after.data
    assert b"pkg_for_test.sub" not in before.data


def test_a_submodule_imported_in_the_place_of_another_module_crosses(package_for_test, monkeypatch):
    monkeypatch.setitem(sys.modules, "other_for_test", types.ModuleType("other_for_test"))
    made = define("def fn(): return pkg_for_test.sub, 1", pkg_for_test=package_for_test)
    assert b"pkg_for_test.sub" not in dumps_by_value(made.fn)
    monkeypatch.delitem(sys.modules, "other_for_test")
    monkeypatch.setitem(sys.modules, "pkg_for_test.sub", types.ModuleType("pkg_for_test.sub"))
    assert b"pkg_for_test.sub" in dumps_by_value(made.fn)


def test_modules_are_looked_through_once_for_what_reads_a_package(package_for_test, monkeypatch):
    class Name(str):
        looked_at = 0

        def startswith(self, *args):
            Name.looked_at += 1
            return super().startswith(*args)

    submodule = types.ModuleType("pkg_for_test.sub")
    monkeypatch.setitem(sys.modules, Name("pkg_for_test.sub"), submodule)
    made = define("def fn(): return pkg_for_test.sub, 2", pkg_for_test=package_for_test)
    assert len({dumps_by_value(made.fn) for _ in range(3)}) == 1
    assert Name.looked_at == 1


def test_what_has_no_snapshot_is_restored_for_each_task():
    made = define("SEEN = []\ndef fn():\n    SEEN.append(1)\n    return len(SEEN)")
    cache = CallableCache()
    assert cache.add(1, dumps_by_value(made.fn))() == 1
    assert [cache.get(1)() for _ in range(3)] == [1, 1, 1]
