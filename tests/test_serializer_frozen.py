"""Results of several calls that are sent together: each is what it was when its call returned."""

from __future__ import annotations

import array
import gc
import random
import weakref
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from scripted import define

from workpool.serializer import Frozen, as_bytes, frozen, pack_value, unpack
from workpool.serializer.snapshot import Snapshot

Pair = namedtuple("Pair", "first second")


class Colour(Enum):
    RED = 1


@dataclass
class Record:
    first: Any = 1
    second: Any = field(default_factory=list)


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self, first: Any = 1) -> None:
        self.first = first

    def __repr__(self) -> str:
        return f"Slotted({self.first!r})"


class Below(Slotted):
    __slots__ = ("__weakref__", "third")


class Abstract(ABC):
    def __init__(self) -> None:
        self.first = [1]

    @abstractmethod
    def second(self) -> None: ...


class Concrete(Abstract):
    second = len  # type: ignore[assignment]


class Elsewhere:
    """Its state is not its own."""

    table: ClassVar[dict[str, int]] = {}

    def __getstate__(self) -> dict[str, int]:
        return dict(self.table)


class List(list):  # type: ignore[type-arg]
    """A list with attributes."""


def arrive(kept: object) -> Any:
    """Return what the driver gets."""
    return unpack(as_bytes(pack_value(kept)))


FRESH = {
    "list": lambda: [1, 2.0],
    "tuple": lambda: (1, [2]),
    "dict": lambda: {"a": [1], "b": {"c": (2, [3])}},
    "rows": lambda: [{"a": i} for i in range(5)],
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 2}),
    "sets": lambda: {(1, Colour.RED), frozenset({Concrete()})},
    "array": lambda: np.zeros(3),
    "arrays": lambda: (np.zeros(3), {"x": np.ones(2)}),
    "named tuple": lambda: Pair(1, [2]),
    "dataclass": lambda: Record(1, [2, {"a": 3}]),
    "abstract": Concrete,
    "deque": lambda: deque([[1]]),
    "counter": lambda: Counter("abca"),
    "ordered": lambda: OrderedDict(a=[1]),
    "default": lambda: defaultdict(list, a=[1]),
    "constants": lambda: {"shape": (3, 4), "colour": Colour.RED, "on": date(2026, 1, 1)},
}


@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_what_only_its_caller_holds_stays_itself(make):
    held = [make()]
    value = id(held[0])
    assert id(frozen(held)) == value


def test_objects_with_slots_stay_themselves_if_all_are_set():
    def below():
        made = Below([1])
        made.second, made.third = {"a": [2]}, 3
        return made

    held = [below()]
    value = id(held[0])
    assert id(frozen(held)) == value
    assert arrive(frozen([Slotted([5])])).first == [5]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_what_others_hold_of_a_set_is_as_it_was(kind):
    member = Concrete()
    whole = frozen([kind([member])])
    member.later = 1
    (arrived,) = arrive(whole)
    assert not hasattr(arrived, "later")


def test_objects_of_the_script_are_copied():
    held = define("class Count: n = 0").Count()
    held.n = 1
    alone, within = frozen([held]), frozen([[held]])
    held.n = 2
    assert (alone.n, within[0].n) == (1, 1)


UNCHANGING = [
    *(date(2026, 1, 1), Decimal(1), Fraction(1, 2), np.float64(1)),
    *(Colour.RED, Pair(1, 2), (3, 4)),
]


@pytest.mark.parametrize("value", UNCHANGING)
def test_what_nothing_can_change_stays_itself(value):
    assert frozen([value]) is value
    assert frozen([[1, value]])[1] is value


WRAPPED = {
    "itself": lambda held: held,
    "list": lambda held: [0, held],
    "tuple": lambda held: (0, held),
    "dict": lambda held: {"a": held},
    "deep": lambda held: {"a": [0, (1, {"b": held})]},
    "deeper": lambda held: [[[[[[held]]]]]],
    "many": lambda held: [*([n] for n in range(50)), held],
    "twice": lambda held: (held, held),
    "named tuple": lambda held: Pair(0, held),
    "dataclass": lambda held: Record(0, held),
    "slots": lambda held: Slotted(held),
    "deque": lambda held: deque([held]),
    "default": lambda held: defaultdict(list, a=held),
    "ordered": lambda held: OrderedDict(a=held),
    "subclass": lambda held: List([held]),
}

CHANGES = {
    "list": (lambda: [1], lambda it: it.append(2)),
    "list in a tuple": (lambda: ([1],), lambda it: it[0].append(2)),
    "dict": (lambda: {"x": 1}, lambda it: it.update(x=2)),
    "set": (lambda: {1}, lambda it: it.add(2)),
    "bytearray": (lambda: bytearray(b"x"), lambda it: it.append(2)),
    "array.array": (lambda: array.array("d", [1]), lambda it: it.append(2)),
    "array": (lambda: np.zeros(3), lambda it: it.fill(1)),
    "record": (lambda: np.zeros(1, "i8,f8")[0], lambda it: it.__setitem__(0, 1)),
    "objects": (lambda: np.array([[0], None], object), lambda it: it[0].append(1)),
    "dataclass": (Record, lambda it: setattr(it, "first", 2)),
    "its list": (Record, lambda it: it.second.append(2)),
    "slots": (Slotted, lambda it: setattr(it, "first", 2)),
    "deque": (lambda: deque([1]), lambda it: it.append(2)),
    "counter": (lambda: Counter("a"), lambda it: it.update("a")),
}


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_what_others_hold_arrives_as_it_was(wrap, make, change):
    held = make()
    before, kept = repr(wrap(held)), frozen([wrap(held)])
    change(held)
    assert repr(wrap(held)) != before
    assert repr(arrive(kept)) == before


class Hiding(Slotted):
    """What is pickled is not what is in the slot of its base."""

    __slots__ = ()

    @property
    def first(self) -> Any:
        return Elsewhere.table

    @first.setter
    def first(self, value: Any) -> None:
        Slotted.first.__set__(self, value)  # type: ignore[attr-defined]


class Uneven(tuple):  # type: ignore[type-arg]
    """A tuple that nobody may go through."""

    __slots__ = ()
    _fields = ("first",)

    def __iter__(self) -> Any:
        raise RuntimeError


class Strict(type):
    def __getattr__(cls, name: str) -> Any:
        raise KeyError(name)


class Guarded(metaclass=Strict):
    """Its class is not asked for what it does not have: pickle refuses it."""


def test_a_property_that_hides_a_slot_may_be_anything():
    held = [Hiding()]
    held[0].second = 2
    assert type(frozen(held)) is Frozen


def test_a_tuple_that_cannot_be_iterated_over_arrives():
    assert arrive(frozen([Uneven((1,))]))[0] == 1


def test_what_cannot_be_pickled_is_no_error_yet():
    value = Guarded()
    assert frozen([value]) is value


def test_many_things_in_one_another_are_encoded():
    """To look at each takes longer."""
    assert type(frozen([[[[n] for n in range(9)] for _ in range(9)]])) is Frozen


def test_one_thing_in_two_places_is_one_thing_afterwards():
    array, numbers = np.zeros(3), [0]
    arrays = arrive(frozen([(array, array)]))
    by_name = arrive(frozen([{"a": numbers, "b": numbers}]))
    assert arrays[0] is arrays[1]
    assert by_name["a"] is by_name["b"]


WEAKLY = [lambda: {1}, lambda: np.zeros(1), Record, lambda: deque([1]), Below]


@pytest.mark.parametrize("make", WEAKLY)
def test_what_is_held_weakly_may_change(make):
    held = [make()]
    known = weakref.ref(held[0])
    assert frozen(held) is not known()


def test_a_view_changes_with_the_array_that_it_is_of():
    array = np.zeros(4)
    kept = frozen([array[::2]])
    array[:] = 1
    assert kept.tolist() == [0, 0]


def test_state_that_is_elsewhere_is_taken_at_once():
    Elsewhere.table = {"n": 1}
    kept = frozen([Elsewhere()])
    Elsewhere.table = {"n": 2}
    assert vars(arrive(kept)) == {"n": 1}


def test_what_holds_itself_arrives():
    loop: list[Any] = [1]
    loop.append(loop)
    kept = frozen([loop])
    loop[0] = 2
    arrived = arrive(kept)
    assert arrived[0] == 1
    assert arrived[1] is arrived


def test_attributes_that_others_hold():
    record = Record()
    attributes = vars(record)
    kept = [record]
    del record
    kept = frozen(kept)
    attributes["first"] = 2
    assert arrive(kept).first == 1


def grow(rng: random.Random, depth: int, held: list[Any]) -> Any:
    """Return something of containers at random; some of them are held elsewhere as well."""
    if not depth or rng.random() < 0.2:
        return rng.choice([1, 2.5, "text", None, (3, 4)])
    parts = [grow(rng, depth - 1, held) for _ in range(rng.randrange(4))]
    kind = rng.choice([list, tuple, dict, Record, Pair, deque, Slotted])
    if kind is dict:
        made: Any = dict(enumerate(parts))
    elif kind in (Record, Pair):
        made = kind(parts[:1], parts[1:])
    else:
        made = kind(parts)
    if rng.random() < 0.1:
        held.append(made)
    return made


def spoil(it: Any) -> None:
    """Change whatever can be changed in something, and in all that is in that."""
    if isinstance(it, dict):
        parts = list(it.values())
        it["spoilt"] = 1
    elif isinstance(it, (list, tuple, deque)):
        parts = list(it)
        if not isinstance(it, tuple):
            it.append("spoilt")
    elif isinstance(it, (Record, Slotted)):
        parts = [it.first]
        it.first = "spoilt"
    else:
        return
    for part in parts:
        spoil(part)


def test_whatever_is_changed_by_whom_it_arrives_as_it_was():
    rng = random.Random(4)
    stayed = 0
    for _ in range(3000):
        held: list[Any] = []
        given = [grow(rng, 5, held)]
        before, value = repr(given[0]), id(given[0])
        kept = frozen(given)
        stayed += id(kept) == value and bool(held)
        given.clear()
        for it in held:
            spoil(it)
        assert repr(arrive(kept)) == before
    assert stayed


def test_no_class_is_held_because_it_was_looked_at():
    made = define(
        """
class Plain:
    def __init__(self): self.x = [1]
class Slotted:
    __slots__ = ("x",)
    def __init__(self): self.x = [1]
PLAIN, SLOTTED = Plain(), Slotted()
def read(): return PLAIN, SLOTTED
"""
    )
    assert Snapshot.take(made.read).holds()
    made_here = [made.Plain(), made.Slotted()]
    assert all(frozen([it]) is not None for it in made_here)
    classes = [weakref.ref(made.Plain), weakref.ref(made.Slotted)]
    del made, made_here
    gc.collect()
    assert [cls() for cls in classes] == [None, None]
