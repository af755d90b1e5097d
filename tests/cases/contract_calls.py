"""What may be submitted, and what crosses unharmed."""

from __future__ import annotations

import array
import collections
import functools
import math
import operator
import os
import string
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from runner import SHARED, only, raises, twice

from __main__ import Adder, Colour, Point, Record, echo, factorial, same

# Submitting.


def case_submit_returns_a_future_of_the_standard_library(pool):
    future = pool.submit(pow, 2, 10)
    assert isinstance(future, Future)
    assert future.result() == 1024


def case_submit_without_a_function_is_a_type_error(pool):
    with raises(TypeError):
        pool.submit()


def case_submit_what_cannot_be_called_fails_on_the_future(pool):
    for it in (3, None):
        assert isinstance(pool.submit(it).exception(), TypeError)


def case_keyword_arguments_reach_the_function(pool):
    assert pool.submit(echo, 1, 2, three=3).result() == ((1, 2), {"three": 3})


def case_keyword_arguments_may_be_named_as_the_parameters_of_submit(pool):
    assert pool.submit(echo, fn=1, self=2, pool=3).result() == ((), {"fn": 1, "self": 2, "pool": 3})


def case_functions_of_the_standard_library(pool):
    assert pool.submit(math.hypot, 3, 4).result() == 5
    assert pool.submit(operator.add, "a", "b").result() == "ab"
    assert pool.submit("abc".upper).result() == "ABC"
    assert pool.submit(operator.itemgetter(1), [5, 6]).result() == 6
    assert pool.submit(functools.partial(pow, exp=2), 7).result() == 49
    assert pool.submit(str.join, "-", "abc").result() == "a-b-c"


def case_partials_of_the_scripts_functions(pool):
    last = functools.partial(echo, 1, b=2)
    last.note = "of no matter"
    for fn, expected in (
        (last, ((1, 3), {"b": 4, "c": 5})),
        (functools.partial(last, 0, b=6), ((1, 0, 3), {"b": 4, "c": 5})),
    ):
        assert pool.submit(fn, 3, b=4, c=5).result() == expected
    plus = functools.partial(Adder(2), 5)
    assert [pool.submit(plus).result() for _ in range(3)] == [7] * 3
    assert list(pool.map(functools.partial(pow, 2), range(5), chunksize=2)) == [1, 2, 4, 8, 16]


def case_a_function_of_a_module_next_to_the_script(pool):
    assert pool.submit(twice, 21).result() == 42


def case_methods_and_callable_objects_of_the_script(pool):
    assert pool.submit(Adder(3), 4).result() == 7
    assert pool.submit(Adder(3).add, 4).result() == 7
    assert pool.submit(Record("r", [Point(1, 2), Point(3, 4)]).total).result() == 4


def case_maps_of_methods_of_the_script(pool):
    class Scale:
        unit = 1

        def __init__(self, factor):
            self.factor = factor

        def times(self, x):
            return self.unit * self.factor * (x.factor if type(x) is type(self) else x)

    for unit in (1, 2, 2, 3):
        Scale.unit = unit
        double, triple = Scale(2), Scale(3)
        doubled, tripled = pool.map(double.times, range(300)), pool.map(triple.times, range(300))
        both = list(zip(doubled, tripled, strict=True))
        assert both == [(unit * 2 * x, unit * 3 * x) for x in range(300)]
        assert list(pool.map(double.times, [triple, 4] * 20)) == [unit * 6, unit * 8] * 20


def case_lambda(pool):
    assert pool.submit(lambda x: x + 1, 1).result() == 2


def case_closure(pool):
    def outer(step):
        return lambda x: x + step

    assert [pool.submit(outer(step), 1).result() for step in (1, 10, 100)] == [2, 11, 101]


def case_closures_that_differ_only_in_their_cells(pool):
    def outer(number):
        return lambda: number

    for functions in (
        [outer(n) for n in range(50)],
        [lambda n=n: n for n in range(50)],
        [functools.partial(same, n) for n in range(50)],
    ):
        futures = [pool.submit(function) for function in functions]
        assert [future.result() for future in futures] == list(range(50))


def case_nested_function_with_defaults(pool):
    def inner(a, b=2, *, c=3):
        return a, b, c

    assert pool.submit(inner, 1).result() == (1, 2, 3)
    inner.__defaults__ = (20,)
    inner.__kwdefaults__ = {"c": 30}
    assert pool.submit(inner, 1).result() == (1, 20, 30)


def case_recursive_function(pool):
    assert pool.submit(factorial, 20).result() == math.factorial(20)


def case_function_made_by_exec(pool):
    names: dict[str, Any] = {}
    exec("def made(x):\n    return x * 3", names)
    assert pool.submit(names["made"], 3).result() == 9


# What crosses.


def case_none_and_constants(pool):
    for value in (None, True, False, ..., NotImplemented, 0, -1, 2**70, 1.5, 2j, "", b"", ()):
        back = pool.submit(same, value).result()
        assert back is value or back == value


def case_nested_objects(pool):
    value = {
        "list": [1, [2, [3, [4]]]],
        (1, 2): {3, 4},
        "frozen": frozenset("ab"),
        "bytes": b"\0" * 100,
        "array": array.array("d", [1, 2]),
        "deque": collections.deque([1, 2], maxlen=3),
        "counter": collections.Counter("hello"),
        "text": string.printable + "äöü\U0001f600",
        "range": range(3),
        "slice": slice(1, 2),
        "path": Path("a/b"),
    }
    args, kwargs = pool.submit(echo, value, again=value).result()
    assert args == (value,)
    assert kwargs == {"again": value}


def case_deep_nesting(pool):
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    assert pool.submit(same, value).result() == value


def case_an_object_that_holds_itself(pool):
    value: list[Any] = [1]
    value.append(value)
    back = pool.submit(same, value).result()
    assert back[1] is back


def case_classes_of_the_script(pool):
    record = Record("r", [Point(1, 2)])
    back = pool.submit(same, record).result()
    assert type(back) is Record
    assert type(back.points[0]) is Point
    assert back == record
    assert pool.submit(same, Colour.BLUE).result() is Colour.BLUE
    assert pool.submit(same, Point).result() is Point
    assert pool.submit(lambda: Record("made there", [])).result() == Record("made there")


def case_a_class_made_inside_a_function(pool):
    class Local:
        def __init__(self, value):
            self.value = value

    back = pool.submit(lambda value: Local(value), 5).result()
    assert isinstance(back, Local)
    assert back.value == 5


def case_bytes_of_every_size_around_a_power_of_two(pool):
    for exponent in (0, 1, 5, 6, 7, 8, 10, 12, 15, 16, 18):
        for nbytes in (2**exponent - 1, 2**exponent, 2**exponent + 1):
            value = os.urandom(nbytes)
            assert pool.submit(same, value).result() == value


def case_results_cross_with_their_own_identity(pool):
    shared = [1]
    first, second = pool.submit(same, [shared, shared]).result()
    assert first is second


@only("workpool", SHARED)
def case_a_function_shows_no_trace_of_what_others_do_with_its_helpers(pool):
    calls = 0

    def counts():
        nonlocal calls
        calls += 1

    def leaves_a_callback(_):
        string.callback = counts  # as a library does
        return calls

    def calls_back(item):
        getattr(string, "callback", counts)()  # if it is known where this runs
        return item

    class Caller:
        def call(self):
            calls_back(None)

    by_parts = functools.partial(lambda item: calls_back(item))
    others = (
        lambda: pool.submit(Caller().call).result(),
        lambda: pool.submit(by_parts, 1).result(),
        lambda: pool.submit(calls_back, 1).result(),
        lambda: list(pool.map(by_parts, [1, 2])),
    )
    for other in others:
        for _ in range(3):
            everywhere = [pool.submit(leaves_a_callback, None) for _ in range(20)]
            assert {future.result() for future in everywhere} == {0}
            other()
            assert pool.submit(leaves_a_callback, None).result() == 0
