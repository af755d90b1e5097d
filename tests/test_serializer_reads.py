"""Functions of a script that read other things: which have a code, and what ends it."""

from __future__ import annotations

import itertools
import sys
import threading

import pytest
from scripted import ALWAYS_THE_SAME, define, looked_up_again

from workpool.serializer import CallableCache, Code, unpack
from workpool.serializer.byvalue import dumps_by_value


@pytest.mark.parametrize(
    "name",
    [
        *("nothing", "reads_atoms", "reads_values", "reads_more", "reads_modules"),
        *("calls_importable", "calls_script", "even"),
        *("factorial", "with_defaults", "unbound", "nested_reader", "adder", "closure"),
        *("local_recursive", "anonymous", "annotated", "generator", "coroutine", "local_import"),
    ],
)
def test_functions_that_read_only_frozen_things_have_a_code(codes, name):
    fn = getattr(define(ALWAYS_THE_SAME), name)
    assert codes.lookup(fn) is None  # a function by value is first seen twice
    code = codes.lookup(fn)
    assert isinstance(code, Code)
    assert all(codes.lookup(fn) is code for _ in range(3))


HAS_GETSTATE = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="objects are asked for a __getstate__ that they may not have"
)


MUTABLE = """
import argparse, array, collections, dataclasses, enum, functools, operator, random, threading
import types, typing
import numpy as np
LIST, TABLE, SET, BYTES = [1], {}, {1}, bytearray(3)
ARRAY, EVERY_OTHER = np.zeros(6), np.arange(9)[::2]
RECORD = np.zeros(2, [("a", int), ("y", float)])
WIDE, COLUMNS, DAYS = np.zeros(600), np.zeros((30, 30), order="F"), np.zeros(600, "M8[D]")
NUMBERS = array.array("d", WIDE)
LARGE, OBJECTS, MASKED = np.zeros(1 << 18), np.array([None, "x"]), np.ma.array([1, 2])
RANDOM, QUEUE, LOCK = random.Random(1), collections.deque([1]), threading.Lock()
LARGE_TEXT = ["x" * (1 << 21)] * 300
UNITS = {"unit": "m"}
PROXY = types.MappingProxyType(UNITS)
PARTIAL, SLICE = functools.partial(max, default=LIST), slice(LIST)
class Defined: x = 0
class Below(Defined):
    @property
    def size(self): return len(LIST)
class Slots:
    __slots__ = ("x", "y")
    def unit(self): return UNITS
@dataclasses.dataclass(frozen=True, slots=True)
class Fixed: x: list
class Failed(Exception): pass
class TheOne:
    def __reduce__(self): return "THE_ONE"
class Reduced:
    def __init__(self, x): self.x = x
    def __reduce__(self): return make_reduced, (self.x,)
def make_reduced(x): return Reduced(x) if LIST else None
@functools.singledispatch
def generic(x): return LIST
@generic.register
def _(x: Defined): return 1
generic.seen = 1
class Listed(list): pass
@dataclasses.dataclass
class Point:
    x: int = dataclasses.field(default=0, metadata=UNITS)
    def moved(self): return TABLE
class Written:  # as by attrs
    field = types.SimpleNamespace(default=None, metadata=None, eq_key=lambda x: len(LIST))
    __attrs_attrs__ = field,
    del field
    exec(compile(
        "def __getattr__(self, name, get={'size': lambda: len(TABLE)}): return get[name]()",
        "<attrs generated getattr Written>", "exec",
    ))
class Colour(enum.Enum):
    RED = 1
class Pair(typing.NamedTuple):
    first: object
INSTANCE, POINT, ARGS, PAIR = Defined(), Point(), argparse.Namespace(n=1), Pair([1])
SPACE, NESTED = types.SimpleNamespace(n=[1]), [[i] * 99 for i in range(99)]
INSTANCE.y = [1]
class Unit(property):
    def __init__(self, get, unit): super().__init__(get); self.unit = unit
class Sized:
    size = Unit(lambda self: len(LIST), UNITS)
class Scaled:
    def __init__(self, fn, scale): self.fn, self.scale = fn, scale
    def __call__(self, x): return self.fn(x) * self.scale
def plus_one(x): return x + 1
called = Scaled(plus_one, ARRAY)
SLOTS, LISTED, LONG = Slots(), Listed(), list(range(257))
SLOTS.y = [1]
FIXED, ERROR, REDUCED, THE_ONE = Fixed([1]), Failed(1), Reduced(1), TheOne()
TUPLE = (1, [2])
class Number(int): pass
NUMBER, number_of = Number(3), Number.from_bytes
class Options(dict): __getattr__ = dict.__getitem__
OPTIONS = Options(size=3)
def reads_options(): return OPTIONS.size
def reads_list(): return LIST
def reads_long_list(): return LONG
def reads_dict(): return TABLE
def reads_set(): return SET
def reads_proxy(): return PROXY
def reads_partial(): return PARTIAL
def reads_slice(): return SLICE
def reads_bytes(): return BYTES
def reads_array(): return ARRAY
def reads_wide(): return WIDE
def reads_columns(): return COLUMNS
def reads_days(): return DAYS
def reads_numbers(): return NUMBERS
def reads_record(): return RECORD
def reads_view(): return EVERY_OTHER
def reads_large_array(): return LARGE
def reads_objects(): return OBJECTS
def reads_subclass_of_array(): return MASKED
def reads_random(): return RANDOM
def reads_queue(): return QUEUE
def reads_lock(): return LOCK
def reads_large_text(): return LARGE_TEXT
def reads_restless(): return RESTLESS
def reads_two_large(): return HALF, OTHER_HALF
def reads_long_list_of_classes(): return LONG_OF_CLASSES
def reads_long_list_of_functions(): return LONG_OF_FUNCTIONS
def reads_long_list_of_texts(): return LONG_OF_TEXTS
def reads_frozen_slots(): return FIXED
def reads_error(): return ERROR
def reads_reduced(): return REDUCED
def reads_the_one(): return THE_ONE
def reads_generic(): return generic
HALF, OTHER_HALF = np.zeros(1 << 16), bytearray(9 << 16)
LONG_OF_CLASSES = [Defined] * 300
LONG_OF_FUNCTIONS = [lambda: LIST] * 300
LONG_OF_TEXTS = ["__main__.py"] * 300
def reads_class(): return Defined
def reads_class_with_unit(): return Sized
def reads_subclass(): return Below
def reads_dataclass(): return Point
def reads_written(): return Written().size
def reads_enumeration(): return Colour.RED
def reads_pair(): return PAIR
def reads_instance(): return INSTANCE
def reads_point(): return POINT
def reads_namespace(): return ARGS
def reads_space(): return SPACE
def reads_nested_lists(): return NESTED
def reads_slots(): return SLOTS
def reads_subclass_of_list(): return LISTED
def reads_list_in_tuple(): return TUPLE
def reads_subclass_of_int(): return NUMBER
def reads_method_in_c(): return number_of(b"1", "big").x
def reads_through_other(): return reads_list()
def reads_nested(): return (lambda: [TABLE for _ in range(2)])()
def in_class_body():
    class Local:
        value = LIST
    return Local
def default(x=[]): return x
def keyword_default(*, x={}): return x
def has_attribute(): pass
has_attribute.seen = []
@functools.lru_cache
def cached(n): return LIST[n]
cached.scale, cached.seen = 1, []
def calls_cached(n): return cached(n)
def make(value):
    def closure(): return value
    return closure
closure = make([])
def decorate(fn):
    @functools.wraps(fn)
    def wrapper(*args): return fn(*args)
    return wrapper
@decorate
def decorated(): return LIST
"""


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("reads_list", "LIST.append(2)"),
        ("reads_list", "LIST[0] = 2"),
        ("reads_dict", "TABLE['a'] = 1"),
        ("reads_set", "SET.add(2)"),
        ("reads_array", "ARRAY[3] = np.nan"),
        ("reads_array", "ARRAY.shape = 2, 3"),
        ("reads_array", "ARRAY.dtype = int"),
        ("reads_array", "ARRAY.flags.writeable = False"),
        ("reads_wide", "WIDE[-1] = -0.0"),
        ("reads_columns", "COLUMNS[2, 1] = 1"),
        ("reads_days", "DAYS[-1] = '2026-11-29'"),
        ("reads_numbers", "NUMBERS[-1] = 1"),
        ("reads_numbers", "NUMBERS.append(0)"),
        ("reads_record", "RECORD.dtype.names = 'x', 'y'"),
        ("reads_record", "RECORD['y'] = 1"),
        ("reads_view", "EVERY_OTHER.base[2] = 7"),
        ("reads_objects", "OBJECTS[0] = 0"),
        ("reads_subclass_of_array", "MASKED[1] = 5"),
        ("reads_random", "RANDOM.random()"),
        ("reads_queue", "QUEUE.append(2)"),
        ("reads_bytes", "BYTES[0] = 1"),
        ("reads_long_list", "LONG[200] = None"),
        ("called", "ARRAY[3] = 1"),
        ("called", "called.scale = 1"),
        ("called", "called.fn = abs"),
        ("called", "Scaled.scale = 1"),
        ("called", "plus_one.seen = True"),
        ("reads_proxy", "UNITS['unit'] = 'ft'"),
        ("reads_partial", "LIST.append(2)"),
        ("reads_partial", "PARTIAL.keywords['key'] = len"),
        ("reads_partial", "PARTIAL.seen = 1"),
        ("reads_slice", "LIST.append(2)"),
        ("reads_class", "Defined.x = 1"),
        ("reads_class", "Defined.y = 1"),
        ("reads_class", "del Defined.x"),
        ("reads_subclass", "Defined.x = 1"),
        ("reads_class_with_unit", "LIST.append(2)"),
        ("reads_class_with_unit", "UNITS['unit'] = 'ft'"),
        ("reads_class_with_unit", "vars(Sized)['size'].unit = 'ft'"),
        ("reads_class_with_unit", "Unit.x = 1"),
        ("reads_subclass", "LIST.append(2)"),
        ("reads_dataclass", "TABLE['a'] = 1"),
        ("reads_dataclass", "Point.moved = None"),
        ("reads_dataclass", "UNITS['unit'] = 'ft'"),
        ("reads_written", "LIST.append(2)"),
        ("reads_written", "TABLE['a'] = 1"),
        ("reads_dataclass", "Point.__init__.__defaults__ = (1,)"),
        ("reads_pair", "Pair.__new__.__defaults__ = (1,)"),
        ("reads_enumeration", "Colour.RED.weight = 1"),
        ("reads_pair", "PAIR.first.append(2)"),
        ("reads_instance", "INSTANCE.y.append(2)"),
        ("reads_instance", "INSTANCE.x = 2"),
        ("reads_instance", "Defined.x = 2"),
        ("reads_point", "POINT.x = 2"),
        ("reads_namespace", "ARGS.n = 2"),
        ("reads_space", "SPACE.n = 2"),
        ("reads_space", "SPACE.n.append(2)"),
        ("reads_list_in_tuple", "TUPLE[1].append(2)"),
        ("reads_slots", "SLOTS.x = 1"),
        ("reads_slots", "SLOTS.y.append(2)"),
        ("reads_slots", "Slots.z = 1"),
        ("reads_slots", "UNITS['unit'] = 'ft'"),
        ("reads_frozen_slots", "FIXED.x.append(2)"),
        ("reads_frozen_slots", "Fixed.y = 1"),
        ("reads_subclass_of_list", "LISTED.append(2)"),
        ("reads_subclass_of_list", "LISTED.x = 2"),
        ("reads_subclass_of_int", "NUMBER.x = 2"),
        ("reads_subclass_of_int", "Number.x = 2"),
        ("reads_method_in_c", "Number.x = 2"),
        pytest.param("reads_options", "OPTIONS['size'] = 4", marks=HAS_GETSTATE),
        pytest.param("reads_options", "Options.y = 1", marks=HAS_GETSTATE),
        ("reads_error", "ERROR.args = 2,"),
        ("reads_error", "Failed.x = 1"),
        ("reads_reduced", "REDUCED.x = 2"),
        ("reads_reduced", "LIST.append(2)"),
        ("reads_long_list_of_classes", "LONG_OF_CLASSES[3] = None"),
        ("reads_long_list_of_classes", "Defined.x = 1"),
        ("reads_long_list_of_functions", "LIST.append(2)"),
        ("reads_long_list_of_texts", "LONG_OF_TEXTS.pop()"),
        ("reads_generic", "LIST.append(2)"),
        ("reads_generic", "generic.seen = 2"),
        ("reads_generic", "generic.register(str, len)"),
        ("reads_generic", "Defined.x = 1"),
        ("reads_through_other", "LIST.append(2)"),
        ("reads_nested", "TABLE['a'] = 1"),
        ("in_class_body", "LIST.append(2)"),
        ("default", "default.__defaults__[0].append(1)"),
        ("keyword_default", "keyword_default.__kwdefaults__['x']['a'] = 1"),
        ("has_attribute", "has_attribute.seen.append(1)"),
        ("calls_cached", "LIST.append(2)"),
        ("calls_cached", "cached.scale = 2"),
        ("cached", "LIST.append(2)"),
        ("cached", "cached.seen.append(1)"),
        ("closure", "closure().append(1)"),
        ("decorated", "LIST.append(2)"),
        ("Defined", "Defined.x = 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")  # of an array, from NumPy 2.5
def test_a_change_in_place_ends_the_code(codes, name, change):
    made = define(MUTABLE)
    fn = getattr(made, name)
    before = looked_up_again(codes, fn)
    assert codes.lookup(fn) is before
    exec(change, made.script)
    assert codes.lookup(fn) is None  # it goes in the payload once
    after = codes.lookup(fn)
    assert after not in (None, before)
    assert codes.lookup(fn) is after


@pytest.mark.parametrize(
    "name",
    [
        *("reads_lock", "reads_nested_lists", "OPTIONS", "reads_the_one"),
        *("reads_large_array", "reads_large_text", "reads_two_large", "reads_restless"),
    ],
)
def test_functions_that_reach_what_may_change_unseen_go_in_the_payload(codes, name):
    fn = getattr(define(MUTABLE, RESTLESS=Restless()), name)
    assert [codes.lookup(fn) for _ in range(4)] == [None] * 4


def test_what_stands_beside_a_lock_is_pickled_once():
    made = define("def locked(): return LOCK, NEXT", LOCK=threading.Lock(), NEXT=Restless())
    lock, once = unpack(dumps_by_value(made.locked))()
    _, twice = unpack(dumps_by_value(made.locked))()
    assert not lock.locked()
    assert twice == once + 1


class Restless:
    """Another one in each pickle."""

    numbers = itertools.count()

    def __reduce__(self):
        return int, (next(self.numbers),)


def test_types_may_be_named_before_they_are_there(codes):
    """As from Python 3.14 on attrs has them of annotations."""
    made = define("import typing\nKIND = typing.Optional['Later']\ndef fn(): return KIND")
    before = looked_up_again(codes, made.fn)
    assert before is not None
    assert codes.lookup(made.fn) is before
    assert str(unpack(before.data)()) == str(made.KIND)


@pytest.mark.skipif(sys.version_info < (3, 15), reason="frozendict is Python 3.15")
def test_a_frozendict_is_what_is_in_it(codes):
    made = define("FACTORS = frozendict(a=2, b=[3])\ndef fn(): return FACTORS")
    before = looked_up_again(codes, made.fn)
    assert codes.lookup(made.fn) is before is not None
    made.FACTORS["b"].append(4)
    assert codes.lookup(made.fn) is None
    assert unpack(codes.lookup(made.fn).data)() == made.FACTORS


def test_what_is_cached_stays_as_long_as_its_function_is_what_it_was(codes):
    source = """if True:
        import functools
        CALLS, FACTOR = (), 2
        @functools.lru_cache
        def cached(n): return [n * FACTOR]
        def calls(n): return cached(n)
    """
    for name in ("cached", "calls"):
        made = define(source)
        fn = getattr(made, name)
        code = looked_up_again(codes, fn)
        cache = CallableCache()
        first = cache.add(code.code_id, code.data)(3)
        assert first == [6]
        assert cache.get(code.code_id)(3) is first
        made.script["FACTOR"] = 5
        assert codes.lookup(fn) is None
        renewed = codes.lookup(fn)
        assert cache.add(renewed.code_id, renewed.data)(3) == [15]


def test_a_decorated_function_of_frozen_things_has_a_code(codes):
    source = MUTABLE + "@decorate\ndef plain(): return 5\n"
    assert unpack(looked_up_again(codes, define(source).plain).data)() == 5
