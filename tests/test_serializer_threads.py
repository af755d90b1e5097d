"""Definitions that other threads change while they are looked at and pickled.

Threads seldom meet within the few microseconds that matter.  So here the other thread is a tracer,
which changes something between two instructions, in the serializer and in cloudpickle.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import cloudpickle
import pytest
from scripted import Job, define

import workpool.serializer
from workpool.errors import SerializationError
from workpool.serializer import byvalue
from workpool.serializer.fingerprint import FINGERPRINT_NBYTES, fingerprint
from workpool.serializer.snapshot import Snapshot

#: Where others come between two instructions.
PLACES = tuple(str(Path(it.__file__).parent) for it in (workpool.serializer, cloudpickle))

#: Others come once in so many instructions.
EVERY = 60

#: How often a dict that has changed is pickled again.
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

PLAIN = Plain(2)
LOCK = threading.Lock()
def double(x): return 2 * x
def apply(fn, x): return fn(x)
def adder(n): return lambda x: x + n
def apply_all(functions, box): return sum(fn(3) for fn in functions) + double(box.get()) + Box.size
def read(box):
    with LOCK:
        return box.get() + Color.RED.value + Box.size + Point(1).shifted().x + len(Box.label)
"""


class Others:
    """Other threads: within this context they add attributes to objects, and delete them again."""

    def __init__(self, seed, *objects):
        self.changes, self._random = 0, random.Random(seed)
        self._objects = objects
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
        if event == "opcode" and not self._random.randrange(EVERY):
            self.changes += 1
            self._change(self._random.randrange(len(self._added)))
        return self._between

    def _change(self, number):
        added = self._added[number]
        if added < MOST:
            setattr(self._objects[number], f"other_{added}", added)
            self._added[number] += 1
            return
        for at in range(added):
            delattr(self._objects[number], f"other_{at}")
        self._added[number] = 0


def classes(made):
    """Return the definitions of the script, and objects that hold nothing but numbers."""
    return made.Meta, made.Base, made.Box, made.Plain, made.Point, made.PLAIN, made.double


@pytest.fixture
def once(monkeypatch):
    """Have nothing be tried again that others have disturbed."""
    monkeypatch.setattr(byvalue, "is_disturbed", lambda error: False)


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
def test_a_fingerprint_is_taken_though_others_add_attributes(seed):
    made = define(SCRIPT)
    with Others(seed, *classes(made)[:-2], made.Color.RED):
        assert len(fingerprint(made.read, Others)) == FINGERPRINT_NBYTES


class Keys:
    """Lets others add keys to a dict as they add attributes to an object."""

    def __init__(self, keys):
        vars(self)["keys"] = keys

    def __setattr__(self, name, value):
        self.keys[name] = value

    def __delattr__(self, name):
        del self.keys[name]


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_is_looked_at_though_others_add_keys(seed):
    table = {1: 2}
    snapshot = Snapshot.take(lambda: table)
    with Others(seed, Keys(table)) as others:
        found = {snapshot.holds() for _ in range(300)}
    assert others.changes > 100
    assert found == {True, False}


FILLED = """
import numpy as np
class Entry:
    def __reduce__(self):
        if changes:
            CACHE[changes.pop()] = 0  # as another thread would, amidst of pickle's own loop
        return Entry, ()
CACHE, changes = {"array": np.ones(1000), "entry": Entry()}, []
def count(): return len(CACHE) + int(CACHE["array"].sum())
"""


@pytest.mark.parametrize("changes", [0, 1, AGAIN, AGAIN + 1])
def test_a_dict_that_others_fill_is_pickled_again_and_again(changes):
    job = Job(define(FILLED))
    made = job.made
    made.changes += range(changes)
    if changes > AGAIN:
        with pytest.raises(SerializationError, match="changed size during iteration"):
            job.codes.pack(made.count, (), {}, None)
    else:
        assert job.call(*job.codes.pack(made.count, (), {}, None)) == 1002 + changes


@pytest.mark.parametrize("changes", [0, 1, AGAIN])
def test_its_fingerprint_is_that_of_what_it_is_in_the_end(changes):
    made, filled = define(FILLED), define(FILLED)
    made.changes += range(changes)
    found = fingerprint(made.CACHE, Others)
    assert not made.changes
    for key in reversed(range(changes)):
        filled.CACHE[key] = 0
    assert found == fingerprint(filled.CACHE, Others)
