"""Functions as a script has them: defined in a ``__main__`` of its own."""

from __future__ import annotations

import types

from workpool.serializer import CallableCache, as_bytes, unpack_call
from workpool.serializer.code_cache import CodeCache

ALWAYS_THE_SAME = """
import dataclasses
import datetime, functools, ipaddress, logging, math, operator, os.path, pathlib, struct
from decimal import Decimal
import numpy as np
from math import pi, sin
from numpy import exp
from collections import OrderedDict
A, B, C = 1, (2.5, "x", (None, b"y")), frozenset({1, 2})
MISSING, HEAD, ROOT = object(), struct.Struct("<I"), pathlib.Path("/tmp")
LOG, START, PRICE, NUMBER = logging.getLogger("x"), datetime.date(2000, 1, 1), Decimal(1), exp(0.0)
HOST, FIRST = ipaddress.ip_address("::1"), operator.itemgetter(0, "x")
SLICE, TYPE, LEAST = slice(1, None), np.dtype("f4"), functools.partial(min, default=0)
GENERATOR = np.random.default_rng(1)
class Slots: __slots__ = ("x",)
SLOTS = Slots()
SLOTS.x = 1
@dataclasses.dataclass(frozen=True, slots=True)
class Fixed: x: int
FIXED = Fixed(2)
@functools.singledispatch
def generic(x): return FIXED.x
@generic.register
def _(x: int): return SLOTS.x
def nothing(): pass
def reads_generator(x): return GENERATOR.bit_generator.state
def reads_slots(x): return SLOTS.x + x
def reads_fixed(x): return FIXED.x + x
def calls_generic(x): return generic(x) + generic("")
def reads_values(x=MISSING): return x is MISSING, HEAD, ROOT, LOG, START, PRICE, NUMBER
def reads_more(): return HOST, FIRST, SLICE, TYPE, LEAST([]), LEAST.func
def reads_atoms(x): return A, B, C, x, pi
def reads_modules(x): return math.cos(x) + np.sum(x) + len(os.path.join("a", "b"))
def calls_importable(x): return sin(x), exp(x), OrderedDict(), isinstance(x, int)
def calls_script(x): return reads_atoms(x)
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
def factorial(n): return 1 if n < 2 else n * factorial(n - 1)
def with_defaults(x=A, *, y=(1, 2)): return x, y
def unbound(): return not_yet_defined
def nested_reader():
    class Local:
        value = A
    return [A for _ in range(2)], (lambda: B)(), Local
def adder(n):
    def add(x): return x + n
    return add
def count_down():
    def down(n): return n and down(n - 1)
    return down
def generator():
    yield A
async def coroutine():
    return A
closure, local_recursive, anonymous = adder(3), count_down(), lambda x: x + A
def annotated(x: "list[int]" = 0) -> dict: return x
def local_import():
    import json
    return json
"""

#: Functions that leave something behind.
STATEFUL = """
count = 0
def counts():
    global count
    count += 1
    return count
def deletes():
    global count
    del count
    return True
def remembers():
    globals().setdefault("left", []).append(1)
    return len(globals()["left"])
def has_attribute():
    has_attribute.calls = getattr(has_attribute, "calls", 0) + 1
    return has_attribute.calls
def helper(): pass
def alters_other():
    helper.calls = getattr(helper, "calls", 0) + 1
    return helper.calls
def alters_default(x=1):
    alters_default.__defaults__ = (x + 1,)
    return x
def make():
    n = 0
    def counts():
        nonlocal n
        n += 1
        return n
    return counts
counts_in_cell = make()
class Slots:
    __slots__ = ("calls", "seen")
    def __init__(self): self.calls, self.seen = 0, []
    def __getstate__(self): return None, {"calls": self.calls}
    def __setstate__(self, state): self.calls, self.seen = state[1]["calls"], []
SLOTS = Slots()
def counts_in_slot():
    SLOTS.calls += 1
    return SLOTS.calls
def remembers_in_slot():
    SLOTS.seen.append(1)
    return len(SLOTS.seen)
class Listed(list): pass
LISTED = Listed()
def appends():
    LISTED.append(1)
    return len(LISTED)
class Failed(Exception): pass
FAILED = Failed()
def keeps_trace():
    try: raise FAILED
    except Failed as error: return 1 if error.__traceback__.tb_next is None else 2
"""


def define(source, **names):
    """Run `source` as a script would run, and return the namespace in which it ran."""
    script = {"__name__": "__main__", **names}
    exec(source, script)
    return types.SimpleNamespace(script=script, **{k: v for k, v in script.items() if k[0] != "_"})


def looked_up_again(codes, fn):
    """Return what the second of two lookups gives."""
    codes.lookup(fn)
    return codes.lookup(fn)


class Job:
    """What is submitted by one cache, and run by another."""

    def __init__(self, made):
        self.made = made
        self.codes, self.callables = CodeCache(), CallableCache()

    def run(self, fn, *args, **kwargs):
        """Return what a call returns, the code that it went with, and its payload."""
        payload, code = self.codes.pack(fn, args, kwargs, self.codes.lookup(fn))
        return self.call(payload, code), code, payload

    def call(self, payload, code):
        """Return what a call returns."""
        found = None
        if code is not None:
            if code.code_id not in self.callables:
                self.callables.add(code.code_id, code.data)
            found = self.callables.get(code.code_id)
        sent, args, kwargs = unpack_call(as_bytes(payload))
        return (sent or found)(*args, **kwargs)

    def pack(self, fn, *args):
        """Return a call as it is submitted: its payload, and the code with which it goes."""
        return self.codes.pack(fn, args, {}, self.codes.at_once(fn))

    def settle(self, fn, *args, **kwargs):
        """Have all come along that does."""
        for _ in range(3):
            _, code, _ = self.run(fn, *args, **kwargs)
        return code
