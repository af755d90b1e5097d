"""What functions and arguments are told by: the same in every run, another when it is edited."""

from __future__ import annotations

import os
import subprocess
import sys
from pickle import PicklingError
from typing import Any

import numpy as np
import pytest
from jobs import ROOT

from workpool.errors import UsageError
from workpool.serializer.fingerprint import fingerprint

FINGERPRINTS = """\
import abc, array, ctypes, dataclasses, enum, functools, pickle, sys, types, typing
import numpy as np
from workpool.serializer.fingerprint import fingerprint

class Refused: pass

SCALE = {scale}
WORDS = frozenset(["a", "b", "c", "d"])

def helper(x):
    return x in {{"one", "two", "three"}} and SCALE * len(WORDS)

def task(x, y=3):  # {comment}
    def inner(z):
        return {edit}
    return helper(x), inner, recursive, Point

def recursive(n):
    return recursive(n - 1) if n else 0

def plain(x):
    return [x, lambda: x]

def maker(x):
    class Made:
        one = 1

        def set(self):
            self.a, self.b, self.c, self.d = x, 1, 2, 3
    return Made if x else x.__firstlineno__

@dataclasses.dataclass
class Point:
    x: int
    tags: set = dataclasses.field(default_factory=set)

    def moved(self):
        return Point(self.x + 1, self.tags)

class Colour(enum.Enum):
    RED = 1

    def next(self):
        return self

class Pair(typing.NamedTuple):
    a: int

T = typing.TypeVar("T")

class Box(typing.Generic[T], abc.ABC):
    size = property(lambda self: 1)

    @classmethod
    def make(cls):
        return super().__new__(cls)

    @abc.abstractmethod
    def get(self): ...

@functools.lru_cache
def cached(n):
    return n

@functools.singledispatch
def shown(x):
    return str(x)

@shown.register
def _(x: int):
    return hex(x)

class Raw(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("ys", ctypes.c_double * 3)]

class Other(ctypes.Structure):
    _fields_ = [("x", ctypes.c_long), ("ys", ctypes.c_double * 3)]
Other.__qualname__ = "Raw"

class Frozen:
    def __init__(self, x):
        self.x = x

    exec(compile(
        f"def __hash__(self): return hash(({{hash('as attrs does')}}, self.x))",
        "<attrs generated hash __main__.Frozen>", "exec",
    ))

class Compiled:  # as those of numba
    def __init__(self, py_func):
        self.py_func = py_func
        self.targetoptions = {{"fastmath": True}}
        self.number = hash("another in each run")
        self._can_compile = py_func is plain
        self.signatures = [int]
Compiled.__module__ = "numba.core.registry"

class Storage:  # as those of PyTorch
    device = "cpu"
    cpu = lambda self: self

    def __init__(self, *values):
        self.values = array.array("b", values)

    def data_ptr(self):
        return self.values.buffer_info()[0]

    def nbytes(self):
        return len(self.values)

    def __reduce__(self):
        return torch._load_from_bytes, (hash("an address"), bytes(self.values))

def _load_from_bytes(content): ...
torch = sys.modules["torch"] = sys.modules["torch.storage"] = types.ModuleType("torch.storage")
torch._load_from_bytes = _load_from_bytes
Storage.__module__ = _load_from_bytes.__module__ = torch.__name__

@dataclasses.dataclass
class Said:
    info: str
    cls_var_name: str = "check"
    cls_ref: int = hash("the address of a class")

@dataclasses.dataclass
class Infos:
    validators: dict

class Model:  # as those of pydantic
    __pydantic_core_schema__ = {{"ref": hash("the address of a class")}}
    __pydantic_decorators__ = Infos({{"check": Said("before")}})

class Strict:
    __pydantic_decorators__ = Infos({{"check": Said("after")}})
Strict.__qualname__ = "Model"

class Unused:
    pass

for obj in [task, recursive, plain, maker, Point, Point(1, {{"x", "y", "z"}}), Colour.RED, Colour,
            Pair(1), Box, Raw, Raw(1), Other, Frozen, Frozen(1), cached,
            shown, shown.dispatch, Compiled(plain), Compiled(recursive), Model(), Model, Strict,
            Storage(), Storage(1, 2), Storage(1, 3),
            functools.partial(plain, 1), Point(1).moved, {{"k": {{"x", "y", 3}}}},
            np.arange(5), pow, str.upper, int, type(None), [{{frozenset("abc"), 1}}]]:
    print(fingerprint(obj, Refused).hex())
for cls in Point, Colour, Box, Unused:
    before = fingerprint(cls, Refused)
    type.__setattr__(cls, "__msgspec_cache__", object())
    pickle.dumps(Point(1))
    assert isinstance(cls.__annotations__, dict) and getattr(cls, "__annotate__", None) is not cls
    assert fingerprint(cls, Refused) == before, cls
before = [fingerprint(it, Refused) for it in (shown, shown.dispatch)]
assert shown("it keeps what it has chosen")
assert [fingerprint(it, Refused) for it in (shown, shown.dispatch)] == before
"""


def fingerprints(seed: int, scale: int = 2, comment: str = "", edit: str = "z + y") -> list[str]:
    program = FINGERPRINTS.format(scale=scale, comment=comment, edit=edit)
    out = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return out.split()


def test_fingerprints_are_the_same_in_every_run() -> None:
    first = fingerprints(0)
    assert len(set(first)) == len(first)
    assert fingerprints(1) == first
    assert fingerprints(2, comment="\n\n# lines later") == first


def test_what_is_edited_is_another_function() -> None:
    first = fingerprints(0)
    for changed in (fingerprints(0, scale=3), fingerprints(0, edit="z - y")):
        assert [i for i, (a, b) in enumerate(zip(first, changed, strict=True)) if a != b] == [0]


ENUM = """
import enum, functools
from enum import Enum
class Colour(Enum):
    __scale = 10
    RED = 1
    GREEN = 2
    DEFAULT = RED
    def next(self): return self
    @property
    def shade(self): return self.value * 2
    @functools.lru_cache
    def light(self): return self.value * 4
    @enum.property
    def dark(self): return self.value * 5
    @functools.cached_property
    def pale(self): return self.value * 6
    @classmethod
    def _missing_(cls, value): return cls.RED
class Part(enum.Flag, boundary=enum.KEEP):
    HEAD = 1
class Named(Enum):
    def __new__(cls, value, label):
        self = object.__new__(cls)
        self._value_, self.label = value, label
        return self
    FIRST = 1, "one"
    SECOND = 2, "two"
"""


def digest(text: str, name: str) -> bytes:
    """Return the fingerprint of what a script calls `name`."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(text, space)
    return fingerprint(space[name], type(None))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="enum.property, boundary: Python 3.11")
def test_an_enumeration_is_all_that_its_body_defines() -> None:
    names = "Colour", "Part", "Named"
    first = {name: digest(ENUM, name) for name in names}
    assert {name: digest(ENUM, name) for name in names} == first
    for old, new in (
        ("scale = 10", "scale = 11"),
        ("* 4", "* 7"),
        ("* 5", "* 7"),
        ("* 6", "* 7"),
        ("KEEP", "EJECT"),
        ('"two"', '"three"'),
        ("    GREEN = 2\n    DEFAULT = RED\n", "    DEFAULT = RED\n    GREEN = 2\n"),
        ("* 2", "* 3"),
        ("cls.RED", "cls.GREEN"),
        ("DEFAULT = RED", "DEFAULT = GREEN"),
        ("GREEN = 2", "GREEN = 3"),
        ("return self\n", "return None\n"),
    ):
        assert old in ENUM
        edited = {name: digest(ENUM.replace(old, new, 1), name) for name in names}
        assert sum(edited[name] != first[name] for name in names) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, y=1): return x",
        "def f(x, *, y=1): return x",
        "def make(y): return lambda x: x + y\nf = make(1)",
        "def f(x): return x\nf.y = 1",
        "class A1: pass\nclass A2: pass\nclass f(A1): pass",
        "def f(x: 1): return x",
        "class f:\n x: 1",
        "from typing import *\nclass A(Generic[T := TypeVar('T')]): 0\nclass f(A[Literal[1]]): 0",
        "import typing as t\nf = t.TypeVar('T', bound=t.Literal[1])",
        "import abc\nclass A1: pass\nclass A2: pass\nclass f(abc.ABC): pass\nf.register(A1)",
        "import threading\nk, r, x = threading.Lock(), threading.RLock(), threading.local()\n"
        "def f():\n with k, r: return x, 1",
        "import threading\nclass L(threading.local):\n def __init__(self): self.n = 1\n"
        "x = L()\ndef f(): return x.n",
        "import threading\nclass L(threading.local):\n def __init__(self, n): self.n = n\n"
        "x = L(1)\ndef f(): return x.n",
        "import contextvars\nv = contextvars.ContextVar('v', default=1)\ndef f(): return v.get()",
        "import struct\ns = struct.Struct('<1Q')\ndef f(): return s.size",
        "from ctypes import *\nx = CDLL(None)\nx.abs.argtypes = [c_int] * 1\ndef f(): x",
        "k = set()\ndef g(): return k\ndef f(): return k, 1\nk.update([f, g])",
        "class A:\n k = set()\n def __init_subclass__(cls): A.k.add(cls)\n"
        "class f(A): pass\nclass B(A): x = 1",
        "class CField:\n def __init__(self, n): self.n = n\nclass f:\n x = CField(1)",
    ],
)
def test_a_definition_is_all_that_its_calls_may_depend_on(text: str) -> None:
    start, _, end = text.rpartition("1")
    assert digest(text, "f") == digest(text, "f") != digest(f"{start}2{end}", "f")


def test_equal_arguments_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    from workpool.serializer.fingerprint import call_fingerprint, item_fingerprints

    monkeypatch.setitem(call_fingerprint.__globals__, "LARGE_NBYTES", 1 << 20)

    class Refused:
        pass

    def of(*args: object, **kwargs: object) -> bytes:
        return call_fingerprint(b"f" * 16, args, kwargs, 0, Refused)

    text, again = "x" * 50, "".join(["x"] * 50)
    assert of(text, text) == of(text, again)
    assert of([text, (text, 1)]) == of([again, (text, 1)])
    assert of(1, b=2, c=3) != of(1, c=3, b=2)
    values = [of(), of(1), of(True), of(1.0), of("1"), of(1, 1), of((1, 1)), of(b=1), of(1, b=1)]
    values += [of({"a": 1}), of([1]), of({1}), of(frozenset({1})), of(None), of(np.float64(1))]
    assert len(set(values)) == len(values)
    assert of(5) + of("a") == item_fingerprints(b"f" * 16, [5, "a"], False, Refused)
    assert of(5, [1]) == item_fingerprints(b"f" * 16, [(5, [1])], True, Refused)
    ring: list[object] = []
    ring.append(ring)
    assert of(ring) != of([])
    wide: list[object] = [1]
    for _ in range(60):
        wide = [wide, wide]
    assert of(wide) == of(wide)
    with pytest.raises(UsageError, match="not in the journal"):
        of([Refused()])


class Known:
    """Knows others of its kind, in no order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.others: set[Known] = set()


def test_sets_may_have_each_other() -> None:
    def of(names: str) -> bytes:
        found = [Known(name) for name in names]
        for one in found:
            one.others.update(found)
        return fingerprint(found[0], OSError)

    assert of("abc") == of("acb") != of("abd")
    with pytest.raises(PicklingError, match="sets within sets"):
        of("abcdefghijklmnop")


def test_there_may_be_many_frozen_sets() -> None:
    def of(*letters: str) -> bytes:
        return fingerprint([frozenset([*letters, str(i)]) for i in range(60)], OSError)

    assert of("a", "b") == of("b", "a") != of("a", "c")


@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 16, 1 << 20, (1 << 26) + 8])
def test_large_arguments(nbytes: int) -> None:
    from workpool.serializer.fingerprint import call_fingerprint

    def of(value: object) -> bytes:
        return call_fingerprint(b"", (value,), {}, 0, OSError)

    kinds = [np.zeros(nbytes // 8), bytes(nbytes), "x" * nbytes, np.zeros(nbytes, np.int8)]
    found = [of(value) for value in kinds]
    assert len(set(found)) == len(kinds)
    assert [of(value) for value in kinds] == found
    changed = np.zeros(nbytes // 8)
    changed[-1] = 1
    assert of(changed) != of(kinds[0])
