"""Definitions that other threads change while they are looked at and pickled.

Threads seldom meet within the few microseconds that matter.  So here the other thread is a tracer,
which changes something between two instructions, in the serializer and in cloudpickle.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
from scripted import Job, define

import workpool.serializer
from workpool.serializer import FINGERPRINT_NBYTES, byvalue, fingerprint, values

#: Where others come between two instructions.
PLACES = tuple(str(Path(it.__file__).parent) for it in (workpool.serializer, cloudpickle))

#: Others come once in so many instructions; where all begins anew each time, less often, and never
#: more often than it is done again.
OFTEN, SELDOM = 60, 600
AGAIN = byvalue._MOST_ATTEMPTS

#: Attributes that they add, before they delete them all.
MOST = 12

SCRIPT = """
import abc, enum, threading
from dataclasses import dataclass

class Meta(abc.ABCMeta):
    @property
    def label(cls): return cls.__name__
class Base(abc.ABC, metaclass=Meta):
    __slots__ = ("a", "b")
    def get(self): return PLAIN.get()
class Box(Base):
    __slots__ = ("c", "__dict__")
    size = 5
class Plain:
    def __init__(self, x): self.x = x
    def get(self): return self.x
@dataclass
class Point:
    x: int
    def shifted(self): return Point(self.x + 1)
class Color(enum.Enum):
    RED = 1

PLAIN, CACHE = Plain(2), {i: Plain(i) for i in range(20)}
LOCK = threading.Lock()
def double(x): return 2 * x
def apply(fn, x): return fn(x)
def adder(n): return lambda x: x + n
def apply_all(functions, box): return sum(fn(3) for fn in functions) + double(box.get()) + Box.size
def look_up(i): return CACHE[i].get()
def read(box):
    with LOCK:
        return box.get() + Color.RED.value + Box.size + Point(1).shifted().x + len(Box.label)
"""


class Others:
    """Other threads: within this context they add attributes, or keys, and delete them again."""

    def __init__(self, seed, *objects, every=OFTEN, most=sys.maxsize):
        self.changes, self._most = 0, most
        self._every, self._random = every, random.Random(seed)
        self._set = [it.__setitem__ if type(it) is dict else partial(setattr, it) for it in objects]
        self._delete = [
            it.__delitem__ if type(it) is dict else partial(delattr, it) for it in objects
        ]
        self._added = [0] * len(objects)

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc):
        sys.settrace(self._before)

    def _called(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(PLACES):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._between

    def _between(self, frame, event, arg):
        due = event == "opcode" and not self._random.randrange(self._every)
        if due and self.changes < self._most:
            self.changes += 1
            self._change(self._random.randrange(len(self._added)))
        return self._between

    def _change(self, number):
        added = self._added[number]
        if added < MOST:
            self._set[number](f"other_{added}", added)
            self._added[number] += 1
            return
        for at in range(added):
            self._delete[number](f"other_{at}")
        self._added[number] = 0


def classes(made):
    """Return the definitions of the script, and objects that hold nothing but numbers."""
    return made.Meta, made.Base, made.Box, made.Plain, made.Point, made.PLAIN, made.double


@pytest.fixture
def once(monkeypatch):
    """Have nothing be tried again that others have disturbed."""
    for module in (byvalue, values):
        monkeypatch.setattr(module, "is_disturbed", lambda error: False)


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("seed", range(10))
def test_a_call_is_what_it_was_though_others_add_attributes(seed):
    job = Job(define(SCRIPT))
    made = job.made
    with Others(seed, *classes(made), made.Color.RED) as others:
        calls = [job.pack(made.read, made.Box()) for _ in range(3)]
        passed = [job.pack(made.apply, made.double, 4) for _ in range(3)]
        passed += [job.pack(made.apply, made.Box.get, made.Box())]
        both = [[made.double, made.adder(i)] for i in range(3)]
        passed += [job.pack(made.apply_all, functions, made.Box()) for functions in both]
    assert others.changes > 100
    assert [job.call(*call) for call in calls] == [2 + 1 + 5 + 2 + 3] * 3
    assert [job.call(*call) for call in passed] == [8, 8, 8, 2, 18, 19, 20]


@pytest.mark.parametrize("seed", range(10))
def test_a_call_goes_with_what_others_fill(seed):
    job = Job(define(SCRIPT))
    made = job.made
    for i in range(5):
        with Others(seed, made.CACHE, made.PLAIN, every=SELDOM, most=AGAIN):
            call = job.pack(made.look_up, i)
        assert job.call(*call) == i


@pytest.mark.parametrize("seed", range(10))
def test_a_fingerprint_is_taken_though_others_add_attributes(seed):
    made = define(SCRIPT)
    with Others(seed, *classes(made)[:-2], made.Color.RED):
        assert len(fingerprint(made.read, Others)) == FINGERPRINT_NBYTES
    for fn in (made.read, made.look_up):
        with Others(seed, made.PLAIN, made.CACHE, every=SELDOM, most=AGAIN):
            assert len(fingerprint(fn, Others)) == FINGERPRINT_NBYTES
