"""Outcomes: values, remote tracebacks, and TaskError where an exception cannot travel."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
import traceback

import numpy as np
import pytest
from outcomes import carried, raised, remote_text

from workpool.errors import SerializationError, TaskError
from workpool.serializer import Kind, pack_exception, pack_value, task_name, unpack_outcome

# Values


@pytest.mark.parametrize("value", [None, 0, 1.5, "x", [None], {"a": (1,)}])
def test_values_come_back(value):
    assert unpack_outcome(Kind.VALUE, pack_value(value)) == (value, None)


def test_an_array_comes_back_in_place():
    array = np.arange(10_000.0)
    memory = np.frombuffer(bytearray(pack_value(array).tobytes()), np.uint8)
    value, error = unpack_outcome(Kind.VALUE, memory)
    assert error is None
    assert np.shares_memory(value, memory)
    assert np.array_equal(value, array)


def test_an_exception_returned_is_a_value():
    value, error = unpack_outcome(Kind.VALUE, pack_value(ValueError("returned")))
    assert isinstance(value, ValueError)
    assert error is None


def test_an_unpicklable_value_is_reported():
    def connect():
        pass

    with socket.socket() as connection, pytest.raises(SerializationError) as caught:
        pack_value(connection, connect)
    message = str(caught.value)
    assert f"result of task {task_name(connect)}" in message
    assert "type socket.socket" in message
    assert "return plain data" in message
    arrived = carried(caught.value)
    assert type(arrived) is SerializationError
    assert str(arrived) == message


class FailsToRestore:
    def __init__(self, error):
        self.error = error

    def __setstate__(self, state):
        raise state["error"]


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(2), RecursionError()])
def test_a_value_that_cannot_be_restored_is_reported(error):
    value, reported = unpack_outcome(Kind.VALUE, pack_value(FailsToRestore(error)), "simulate")
    assert value is None
    assert type(reported) is SerializationError
    assert "outcome of task simulate" in str(reported)
    assert type(reported.__cause__) is type(error)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("data", [b"", b"\x01\x00", pickle.dumps(1, 5)[:-1]])
def test_damaged_outcomes_are_reported(kind, data):
    value, reported = unpack_outcome(kind, data, "simulate")
    assert value is None
    assert type(reported) is SerializationError


def test_an_envelope_of_another_shape_is_reported():
    _, reported = unpack_outcome(Kind.EXCEPTION, pack_value((1, 2)))
    assert type(reported) is SerializationError


def test_an_unknown_kind_is_reported():
    assert type(unpack_outcome(7, pack_value(None))[1]) is SerializationError


def test_keyboard_interrupt_while_restoring_passes():
    with pytest.raises(KeyboardInterrupt):
        unpack_outcome(Kind.VALUE, pack_value(FailsToRestore(KeyboardInterrupt())))


# The remote traceback


def test_the_text_shows_the_users_frames_and_the_place():
    def simulate():
        return 1 / 0

    try:
        simulate()
    except ZeroDivisionError as caught:
        text = remote_text(carried(caught))
    assert text.startswith("Traceback (most recent call last)")
    assert "return 1 / 0" in text
    assert "in simulate" in text
    assert text.splitlines()[-2:] == [
        "ZeroDivisionError: division by zero",
        "### task simulate, worker rank 3 on node17",
    ]


def test_the_driver_prints_both_tracebacks():
    arrived = carried(raised(ValueError("here")))
    printed = "".join(traceback.format_exception(arrived))
    assert printed.index("### task simulate") < printed.index("direct cause")
    assert printed.endswith("ValueError: here\n")


@pytest.mark.parametrize("explicit", [True, False])
def test_causes_and_contexts_are_in_the_text(explicit):
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            if explicit:
                raise ValueError("outer") from inner
            raise ValueError("outer")  # noqa: B904
    except ValueError as outer:
        text = remote_text(carried(outer))
    words = "direct cause" if explicit else "During handling"
    assert text.index("KeyError: 'inner'") < text.index(words) < text.index("ValueError: outer")


def test_frames_of_workpool_are_trimmed():
    class Calls:
        def __reduce__(self):
            raise ValueError("mine")

    with pytest.raises(SerializationError) as caught:
        pack_value(Calls())
    text = remote_text(carried(caught.value.__cause__))
    assert "serializer" not in text.split("in __reduce__")[0].replace(__file__, "")


def test_an_error_of_workpool_itself_keeps_its_frames():
    with pytest.raises(SerializationError) as caught:
        pack_value(threading.Lock())
    inner = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert "in pack_value" in remote_text(carried(inner))


# What cannot travel


class Plain(Exception):
    pass


class Holds(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class RestoresAsText(Exception):
    def __reduce__(self):
        return str, ("not an exception",)


class CannotRestore(Exception):
    def __init__(self, a, b):
        super().__init__(a)

    def __reduce__(self):
        return CannotRestore, (1,)


class StrRaises(Exception):
    def __str__(self):
        raise ValueError("in __str__")

    __repr__ = __str__


class EverythingRaises(Exception):
    def __str__(self):
        raise SystemExit(1)

    __repr__ = __reduce__ = __str__

    def __reduce_ex__(self, protocol):
        raise KeyboardInterrupt


class ArgsRaise(Exception):
    @property
    def args(self):
        raise ValueError("in args")

    @property
    def __traceback__(self):
        raise ValueError("in __traceback__")


@pytest.mark.parametrize("kind", [Holds, RestoresAsText, EverythingRaises])
def test_the_rest_becomes_a_task_error(kind):
    arrived = carried(raised(kind("what happened")))
    assert type(arrived) is TaskError
    assert kind.__qualname__ in str(arrived)
    assert "task simulate raised" in str(arrived)
    if kind is not EverythingRaises:
        assert "what happened" in str(arrived)
        assert "raise exc" in remote_text(arrived)
    assert remote_text(arrived).endswith("### task simulate, worker rank 3 on node17")


def test_an_exception_whose_own_pickle_fails_becomes_a_task_error():
    arrived = carried(raised(CannotRestore("what happened", 2)))
    assert type(arrived) is TaskError
    assert "what happened" in str(arrived)
    assert "missing 1 required positional argument" in str(arrived)


def test_an_exception_that_cannot_be_shown_travels():
    arrived = carried(raised(StrRaises(5)))
    assert type(arrived) is StrRaises
    assert arrived.args == (5,)


def test_properties_that_raise_are_survived():
    assert isinstance(carried(raised(ArgsRaise("x"))), (ArgsRaise, TaskError))


def test_an_exception_that_fails_only_on_the_driver_loses_nothing(monkeypatch):
    data = pack_exception(raised(Plain("what happened")), task="simulate", rank=3, host="node17")
    monkeypatch.delattr(sys.modules[__name__], "Plain")
    value, arrived = unpack_outcome(Kind.EXCEPTION, data, "simulate")
    assert value is None
    assert type(arrived) is TaskError
    assert "Plain: what happened" in str(arrived)
    assert "cannot be restored here: AttributeError" in str(arrived)
    assert "raise exc" in remote_text(arrived)


def test_deep_recursion_in_a_task():
    def recurse():
        return recurse()

    try:
        recurse()
    except RecursionError as caught:
        arrived = carried(caught)
    assert type(arrived) is RecursionError
    assert len(remote_text(arrived)) < 10_000


def test_a_chain_of_a_thousand_causes():
    exc = ValueError(0)
    for i in range(1000):
        following = ValueError(i)
        following.__cause__ = exc
        exc = following
    assert type(carried(exc)) is ValueError


def test_an_exception_that_cannot_be_looked_at():
    class Meta(type):
        def __getattribute__(cls, name):
            raise RuntimeError(f"no {name}")

    class Odd(Exception, metaclass=Meta):
        pass

    arrived = carried(raised(Odd("odd")))
    assert type(arrived) is TaskError
    assert "Odd" in str(arrived)


def test_a_cause_that_cannot_be_assigned():
    class Causeless(Exception):
        @property
        def __cause__(self):
            return None

    arrived = carried(raised(Causeless("alone")))
    assert (type(arrived).__name__, str(arrived)) == ("Causeless", "alone")
