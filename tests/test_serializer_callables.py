"""What is importable has a code at once; other callables go in the payload, or by their name."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import os
import os.path
import random
import sys
import threading
import types
import weakref

import cloudpickle
import numpy as np
import pytest
from scripted import looked_up_again

from workpool.errors import SerializationError
from workpool.pool.checks.generators import GeneratorCheck
from workpool.serializer import Code, byvalue, pack_call, pack_value, unpack, unpack_call
from workpool.serializer.code_cache import CodeCache
from workpool.serializer.fingerprint import fingerprint

LIMIT = 10


class Refusing:
    """Refuses to be pickled, as what wrapt has decorated does."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)

    def __call__(self, *args):
        return self.__wrapped__(*args)

    def __reduce_ex__(self, protocol):
        raise NotImplementedError("object proxy must define __reduce__()")


@Refusing
def refusing(x):
    return x + 1


def module_level(x):
    return x + LIMIT


class OfBoost(weakref.ref):
    """Has no qualified name, nor a ``__reduce__`` that refuses, as functions of Boost.Python.

    It claims to be of another type, as they do.
    """

    __class__ = types.BuiltinFunctionType

    def __call__(self, x):
        return x + 1


of_boost = OfBoost(Refusing)


of_boost.__name__ = "of_boost"


locked = threading.Lock().locked  # a method in C of what cannot be pickled, as those of pybind11


locked.__module__ = __name__


class ModuleLevel:
    @staticmethod
    def static(x):
        return x

    def method(self):
        return 1


_bound = ctypes.pythonapi.PyInstanceMethod_New
_bound.restype, _bound.argtypes = ctypes.py_object, [ctypes.py_object]


class OfPybind:
    """Has a method in C of what cannot be pickled."""

    locked = _bound(threading.Lock().locked)


# By name


@pytest.mark.parametrize(
    "fn",
    [
        module_level,
        ModuleLevel,
        ModuleLevel.static,
        ModuleLevel.method,
        math.sin,
        len,
        dict,
        os.path.join,
        operator.add,
        str.upper,
        np.linspace,
        np.sin,
        np.float64,
    ],
    ids=lambda fn: getattr(fn, "__qualname__", str(fn)),
)
def test_importable_callables_have_a_code_at_once(codes, fn):
    code = codes.lookup(fn)
    assert isinstance(code, Code)
    assert len(code.data) < 100
    assert codes.lookup(fn) is code
    assert unpack(code.data) is fn


def test_a_changed_global_of_an_importable_function_does_not_matter(codes, monkeypatch):
    code = codes.lookup(module_level)
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", [])
    assert codes.lookup(module_level) is code


def test_a_shadowed_function_is_not_importable(codes, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "module_level", None)
    code = looked_up_again(codes, shadowed := globals_of_this_module()["original"])
    assert len(code.data) > 100
    assert unpack(code.data)(1) == shadowed(1)


def globals_of_this_module(original=module_level):
    return {"original": original}


@pytest.mark.parametrize(
    "fn",
    [
        [].append,
        ModuleLevel().method,
        functools.partial(module_level, 1),
        functools.partial(operator.add, 1),
        operator.itemgetter(1),
    ],
    ids=["builtin method", "method", "partial", "partial of builtin", "callable object"],
)
def test_other_callables_go_in_the_payload(codes, fn):
    assert [codes.lookup(fn) for _ in range(4)] == [None] * 4


def reader(fn):
    script = {"__name__": "__main__", "fn": fn}
    exec("def task(x): return fn(x)", script)
    return script["task"]


@pytest.mark.parametrize(
    "fn",
    [refusing, reader(refusing), of_boost, reader(of_boost)],
    ids=["itself", "read", "of Boost.Python", "of Boost.Python, read"],
)
def test_what_refuses_to_be_pickled_goes_by_the_name_of_its_module(fn):
    assert unpack_call(pack_call(fn, (1,), {}))[0](1) == 2
    assert unpack_call(pack_call(map, (fn, [1]), {}))[1][0](1) == 2
    assert unpack(pack_value(fn))(1) == 2
    assert fingerprint((fn, 1), type(None)) != fingerprint((fn, 2), type(None))  # for a journal


def test_what_claims_to_be_a_method_in_c_may_have_no_object():
    assert CodeCache().lookup(of_boost) is None
    GeneratorCheck().look(reader(of_boost))


@pytest.mark.parametrize("fn", [locked, reader(locked)], ids=["itself", "read"])
def test_a_function_in_c_of_what_cannot_be_pickled_goes_by_the_name_of_its_module(fn):
    found = unpack_call(pack_call(fn, (), {}))[0]
    assert (found if fn is locked else found.__globals__["fn"]) is locked
    assert unpack_call(pack_call(map, (locked, [1]), {}))[1][0] is locked


def test_a_method_in_c_of_what_cannot_be_pickled_goes_by_the_name_that_its_object_has_for_it():
    method = OfPybind().locked
    read = unpack_call(pack_call(reader(method), (), {}))[0].__globals__["fn"]
    argument = unpack_call(pack_call(map, (method, lambda: 1), {}))[1][0]
    for found in (read, argument):
        assert found.__func__ is method.__func__
        assert type(found.__self__) is OfPybind
    fingerprint(reader(method), type(None))  # for a journal


def logged(method):
    def wrapper(self):
        return method(self), "logged"

    return wrapper


class Base:
    def get(self):
        return "base"


class Below(Base):
    def get(self):
        return "below"

    def above(self):
        return super().get

    def __hidden(self):
        return "hidden"

    def hidden(self):
        return self.__hidden

    @logged
    def told(self):
        return 1


def test_bound_methods_of_what_is_importable_are_themselves_whatever_their_names():
    below = Below()
    methods = below.get, below.above(), below.hidden(), below.told
    for method in methods:
        called = unpack_call(pack_call(method, (), {}))[0]
        read = unpack_call(pack_call(reader(method), (), {}))[0].__globals__["fn"]
        argument = unpack_call(pack_call(map, (method, [1]), {}))[1][0]
        kept = unpack(pack_value([types.SimpleNamespace(method=method)]))[0].method
        assert {it() for it in (called, read, argument, kept)} == {method()}
    assert len({fingerprint(it, type(None)) for it in methods}) == 4  # for a journal


@pytest.mark.parametrize("draw", [random.random, np.random.normal])
def test_functions_that_draw_are_those_of_the_process_among_arguments_too(draw):
    argument = unpack_call(pack_call(map, (draw, [1]), {}))[1][0]
    attribute = unpack_call(pack_call(map, (types.SimpleNamespace(draw=draw),), {}))[1][0].draw
    assert argument == attribute == draw  # with a copy of the state, all tasks would draw the same


def test_what_refuses_to_be_pickled_and_is_not_found_by_its_name_is_named():
    hidden = Refusing(module_level)  # which another one is there
    with pytest.raises(SerializationError, match=r"'fn', which the function reads.*must define"):
        pack_call(reader(hidden), (1,), {})
    with pytest.raises(SerializationError, match="or a function that calls it, in a module"):
        pack_call(hidden, (1,), {})


def test_registering_a_module_by_value_takes_effect(codes):
    module = sys.modules[__name__]
    by_name = codes.lookup(module_level)
    cloudpickle.register_pickle_by_value(module)
    try:
        by_value = looked_up_again(codes, module_level)
        assert by_value.code_id != by_name.code_id
        assert len(by_value.data) > 200
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert codes.lookup(module_level).data == by_name.data


def test_what_is_by_value_asks_once_for_each_class_and_keeps_marks_apart(monkeypatch, tmp_path):
    (tmp_path / "marking.py").write_text(
        "class Mark:\n    def __init__(self, name): self.name = name\n"
        "STOP, FIRST = Mark('STOP'), Mark('anything')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import marking

    asked = []
    refusing = byvalue.name_of_refusing
    monkeypatch.setattr(byvalue, "name_of_refusing", lambda obj: asked.append(obj) or refusing(obj))
    others = [marking.Mark(f"{i}") for i in range(50)]
    arrays = [np.full(2, i) for i in range(50)]
    sent = [marking.FIRST, *others, marking.STOP, arrays, lambda: 0]
    first, *back, stop, filled, _ = unpack(pack_value(sent))
    assert stop is marking.STOP
    assert first is not marking.FIRST
    assert [it.name for it in back] == [it.name for it in others]
    assert np.array_equal(filled, arrays)
    assert len(asked) < 10
