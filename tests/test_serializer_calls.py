"""Calls as payloads: every shape, and errors that name what cannot travel."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import pickle
import socket
import threading
import traceback
import weakref
from concurrent.futures import Future

import numpy as np
import pytest
from scripted import define

from workpool.errors import SerializationError, UsageError
from workpool.serializer import (
    Packed,
    pack_call,
    task_name,
    unpack_call,
    values,
    without_partial,
)
from workpool.serializer.code_cache import CodeCache

ENDED = (n for n in ())


def add(x, y=1, *args, **kwargs):
    return x + y


@pytest.fixture
def code():
    return CodeCache().lookup(add)


@pytest.mark.parametrize("args", [(), (1,), (1.0, 2.0, 3.0), ((1, 2),), ([1], {}), (None, None)])
@pytest.mark.parametrize("kwargs", [{}, {"y": 2}, {"args": (), "kwargs": {}}])
def test_calls_come_back(code, args, kwargs):
    assert unpack_call(pack_call(add, args, kwargs, code)) == (None, args, kwargs)
    assert unpack_call(pack_call(add, args, kwargs)) == (add, args, kwargs)


def test_a_method_of_the_script_is_not_pickled_in_vain_first(codes, monkeypatch):
    """By plain pickle, which would name its class."""
    method = define("class Scale:\n  def times(self, x): return x").Scale().times
    codes.pack(method, (2,), {}, None)
    tried = []
    monkeypatch.setattr(values, "dumps", lambda *args, **_: tried.append(args))
    codes.pack(method, (2,), {}, None)
    assert not tried


def test_a_call_of_a_partial_is_one_of_its_function():
    inner = functools.partial(add, 1, y=2)
    inner.note = "else the two would be one partial"
    outer = functools.partial(inner, 3, y=4, z=5)
    found = without_partial(outer, (6,), {"z": 7})
    assert found == (add, (1, 3, 6), {"y": 4, "z": 7})


@pytest.mark.skipif(not hasattr(functools, "Placeholder"), reason="Placeholder is Python 3.14")
def test_a_partial_with_places_left_is_called_by_itself():
    fn = functools.partial(add, functools.Placeholder, 2)
    assert without_partial(fn, (1,), {}) == (fn, (1,), {})


def test_what_cannot_be_pickled_goes_with_its_error():
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

    locked = Locked()
    gone = weakref.ref(locked)
    gc.disable()  # in a cycle it would stay until then, however large it is
    try:
        pack_call(add, (locked,), {})
    except SerializationError:
        del locked
    finally:
        gc.enable()
    assert gone() is None


def test_common_calls_are_compact(code):
    assert len(pack_call(add, (), {}, code)) < 8
    assert len(pack_call(add, (1.0, 2.0, 3.0), {}, code)) < 50


def test_each_call_has_its_own_keywords(code):
    payload = pack_call(add, (), {}, code)
    unpack_call(payload)[2]["x"] = 1
    assert unpack_call(payload)[2] == {}


def test_a_function_by_value_shares_globals_with_its_arguments():
    script = {"__name__": "__main__"}
    exec("class Thing: pass\ndef is_thing(x): return isinstance(x, Thing)", script)
    fn, args, kwargs = unpack_call(pack_call(script["is_thing"], (script["Thing"](),), {}))
    assert fn(*args, **kwargs)


def test_large_arrays_are_not_copied(code):
    array = np.arange(10_000.0)
    payload = pack_call(add, (array,), {"y": array[:600]}, code)
    assert isinstance(payload, Packed)
    memory = np.frombuffer(bytearray(payload.tobytes()), np.uint8)
    _, (x,), kwargs = unpack_call(memory)
    assert np.array_equal(x, array)
    assert np.shares_memory(x, memory)
    assert np.shares_memory(kwargs["y"], memory)


# What cannot be pickled


def failure(fn, *args, **kwargs):
    with pytest.raises(SerializationError) as caught:
        pack_call(fn, args, kwargs)
    return caught.value


def test_a_positional_argument_is_named():
    with socket.socket() as connection:
        error = failure(add, 1, connection, 3)
    message = str(error)
    assert "argument 2 of 3" in message
    assert "type socket.socket" in message
    assert "task add" in message
    assert "__reduce__" in message
    assert isinstance(error.__cause__, TypeError)
    assert traceback.extract_tb(error.__cause__.__traceback__)[0].filename == socket.__file__


def test_a_keyword_argument_is_named():
    error = failure(add, 1, y=ENDED)
    assert "keyword argument 'y' of type generator" in str(error)
    assert error.__cause__.__traceback__ is None  # ours, and cloudpickle's


@pytest.mark.parametrize("kind", ["Lock", "Queue", "Value"])
def test_what_stands_in_for_that_of_multiprocessing_is_named(kind):
    shared = getattr(multiprocessing, kind)(*["i"][: kind == "Value"])
    space = {"shared": shared, "__name__": "__main__"}
    exec("def reads(): return shared", space)
    for error in (failure(add, shared, 1), failure(space["reads"])):
        assert "take one of a multiprocessing.Manager, or" in str(error)


@pytest.mark.parametrize("where", ["global", "closure"])
def test_what_the_function_reads_is_named(where):
    ended = (n for n in ())  # not ENDED, which goes by its name
    if where == "global":
        script = {"__name__": "__main__", "guard": ended, "other": 1}
        exec("def fn(): return other, guard", script)
        fn = script["fn"]
    else:
        guard = ended

        def fn():
            return guard

    for task in (fn, functools.partial(fn, 1)):
        message = str(failure(task, 1))
        assert "'guard', which the function reads, of type generator" in message
        assert "in the initializer (the script itself must have none under that name" in message
        assert "read it as an attribute of a module" in message


HOLDERS = """
ended = (n for n in ())
def by_default(w, x=ended): pass
def by_keyword(w, x=1, *, y=ended): pass
def by_attribute(x): pass
by_attribute.kept = ended
class Base:
    kept = ended
class Derived(Base):
    def method(self, x): pass
by_class = Derived().method
def along(x): return by_default(x)
del ended
"""


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("by_default", "the default of 'x' of by_default,"),
        ("by_keyword", "the default of 'y' of by_keyword,"),
        ("by_attribute", "by_attribute.kept"),
        ("by_class", "Base.kept, an attribute of the class,"),
        ("along", "the default of 'x' of by_default,"),
    ],
)
def test_what_comes_along_with_a_function_is_named(name, what):
    script = define(HOLDERS)
    message = str(failure(getattr(script, name), 1))
    assert f"cannot pickle {what} of type generator for task" in message


def test_a_callable_object_is_named():
    class Caller:
        def __call__(self):
            pass

        def __reduce__(self):
            raise TypeError("no")

    assert "Caller for task" in str(failure(Caller()))


def test_what_a_method_or_a_called_object_takes_along_is_named():
    class Study:
        def __init__(self, **attributes):
            vars(self).update(attributes)

        def step(self):
            return self

        __call__ = step

    study = Study(number=1, ended=ENDED)
    for task in (study.step, study, functools.partial(study, 1)):
        message = str(failure(task))
        assert "self.ended, which comes along, of type generator" in message
        assert "have __getstate__ of its class leave it out" in message

    class Careful(Study):
        def __getstate__(self):
            return {"number": self.number}

    pack_call(Careful(number=1, ended=ENDED).step, (), {})


def test_what_a_class_or_another_function_reads_is_named():
    script = {"__name__": "__main__", "guard": (n for n in ()), "lock": threading.Lock()}
    exec(
        """
class Model:
    def run(self):
        with lock: return guard
    @property
    def name(self): return name
class Better(Model):
    def run(self): return super().run()
    again = run
model = Model()
def name(): return Model, name
def fn(): return model.run()
def passes(): return fn()
""",
        script,
    )
    model, better = script["model"], script["Better"]()
    tasks = (model.run, better.again, script["Model"], script["fn"], script["passes"])
    for error in (*map(failure, tasks), failure(add, 1, better), failure(add, y=script["Model"])):
        message = str(error)
        assert "'guard', which Model.run reads, of type generator" in message
        assert "build it in the task or in the initializer" in message
    assert "argument 1 of 1 of type list" in str(failure(add, [model]))


def test_an_unpicklable_global_of_an_importable_function_is_not_blamed():
    with socket.socket() as connection:
        assert "argument 1 of 1" in str(failure(add, connection))


class Handle:
    @property
    def name(self):
        return LIBRARY

    def __reduce__(self):
        raise ValueError("it has pointers")


LIBRARY = Handle()


def test_nor_one_of_an_importable_class():
    assert "argument 2 of 2 of type" in (message := str(failure(add, 1, Handle())))
    assert "it has pointers" in message


def reads_ended(x, y):
    return ENDED


def test_what_a_partial_holds_is_not_blamed_on_what_its_function_reads():
    message = str(failure(functools.partial(reads_ended, threading.Lock()), 1))
    assert "the function of type functools.partial for task partial(reads_ended)" in message


class Reduces:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


class GetsState:
    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        raise self.error


@pytest.mark.parametrize("kind", [Reduces, GetsState])
@pytest.mark.parametrize(
    "error", [ValueError("odd"), RecursionError("deep"), SystemExit(1), AttributeError("none")]
)
def test_errors_of_the_users_methods_are_reported(kind, error):
    reported = failure(add, 0, kind(error))
    assert f"argument 2 of 2 of type {__name__}.{kind.__name__}" in str(reported)
    assert type(error).__name__ in str(reported)
    assert reported.__cause__ is error


def test_a_complaint_of_ours_is_told_once():
    error = failure(add, 0, Reduces(UsageError("a future cannot be sent to a task")))
    assert "a future cannot be sent to a task" in str(error)
    assert error.__cause__ is None


def test_a_future_that_has_not_ended_cannot_be_sent():
    pending, ended = Future(), Future()
    ended.set_result(3)
    assert "pass its result()" in str(failure(add, pending))
    for future in (pending, [pending]):
        reads = define("def reads(): return FUTURE", FUTURE=future).reads
        assert "'FUTURE', which the function reads" in str(failure(reads))
        assert "pass its result()" in str(failure(reads))
    reads = define("def reads(): return FUTURE.result()", FUTURE=ended).reads
    fn, args, kwargs = unpack_call(pack_call(reads, (), {}))
    assert fn(*args, **kwargs) == 3


def test_deep_recursion_is_reported():
    deep = []
    for _ in range(200_000):
        deep = [deep]
    assert "argument 2 of 2 of type list" in str(failure(add, 0, deep))


def test_an_error_that_happens_only_once_is_reported():
    class Once:
        failed = False

        def __reduce__(self):
            if not Once.failed:
                Once.failed = True
                raise ValueError("first")
            return int, ()

    assert "the call of task add: ValueError: first" in str(failure(add, Once()))


# What cannot be unpickled


class Unpicklable:
    def __setstate__(self, state):
        raise SystemExit(3)

    def __getstate__(self):
        return {"some": "state"}


def test_errors_while_unpickling_are_reported():
    with pytest.raises(SerializationError, match=r"arguments of a task: SystemExit: 3") as caught:
        unpack_call(pack_call(add, (Unpicklable(),), {}))
    assert isinstance(caught.value.__cause__, SystemExit)


@pytest.mark.parametrize("other", [1, [], [1], [1, 2, 3, 4], {"a": 1}])
def test_a_payload_that_is_not_a_call_is_refused(other):
    with pytest.raises(SerializationError, match="not a task's call"):
        unpack_call(pickle.dumps(other, 5))


def test_names_of_tasks():
    class Caller:
        def __call__(self):
            pass

    assert task_name(add) == "add"
    assert task_name(len) == "len"
    assert task_name("initializer") == "initializer"
    assert task_name(functools.partial(add, 1)) == "partial(add)"
    assert task_name([].append) == "list.append"
    assert task_name(Caller()).endswith("Caller")
    assert task_name(lambda: None).endswith("<lambda>")
