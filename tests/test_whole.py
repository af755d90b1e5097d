"""Functions that no interrupt may cut in two: the stack tells whether one is under way."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from workpool import interrupts
from workpool.interrupts import Deferring, by_handler, defer_handlers, defer_interrupts
from workpool.job.drain import Terminated, leave
from workpool.serializer import pack_value
from workpool.whole import need_stack, whole, within


@whole
def outer() -> bool:
    return inner()


def inner() -> bool:
    return within(sys._getframe())


def test_within_sees_a_marked_function_that_is_under_way() -> None:
    assert outer()
    assert not inner()


def frames_left() -> int:
    try:
        return 1 + frames_left()
    except RecursionError:
        return 0


def test_who_needs_more_stack_than_there_is_learns_it_before() -> None:
    left = frames_left()
    need_stack(left // 2)
    with pytest.raises(RecursionError):
        need_stack(left + 10)


@pytest.fixture
def deferring() -> Iterator[None]:
    """Have Ctrl-C wait for marked functions, whatever pytest does with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    defer_interrupts()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("deferring")
def test_an_interrupt_waits_for_the_end_of_a_marked_function() -> None:
    steps = []

    @whole
    def marked() -> None:
        signal.raise_signal(signal.SIGINT)
        steps.append("end of the marked function")

    def program() -> None:
        marked()
        steps.append("after it")
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        program()
    assert steps == ["end of the marked function"]
    with pytest.raises(KeyboardInterrupt):  # outside it comes at once
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    defer_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # the program's own stays


@pytest.mark.usefixtures("deferring")
def test_a_marked_function_that_hangs_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "MOST_S", 0.1)

    @whole
    def marked() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        marked()


@pytest.mark.usefixtures("deferring")
def test_an_interrupt_after_one_that_came_late_waits_for_the_end_of_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @whole
    def marked(seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(seconds)

    def program() -> None:
        marked(0)
        time.sleep(5)
        raise AssertionError("it has been lost")

    monkeypatch.setattr(interrupts, "MOST_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        marked(30)
    monkeypatch.setattr(interrupts, "MOST_S", 60.0)
    with pytest.raises(KeyboardInterrupt):
        program()


@pytest.mark.usefixtures("deferring")
@pytest.mark.parametrize("profiled", [False, True])
def test_an_interrupt_comes_between_marked_functions(
    monkeypatch: pytest.MonkeyPatch, profiled: bool
) -> None:
    monkeypatch.setattr(interrupts, "MOST_S", 60.0)  # else it would come then at the latest
    done = []

    @whole
    def marked() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append(1)
        time.sleep(1e-3)
        done.append(2)

    def program() -> None:
        while len(done) < 1000:
            marked()
            time.sleep(2e-3)

    if profiled:  # then it tries from time to time
        # One in C: an interrupt that comes in a profile function of Python switches that off.
        sys.setprofile("".format)
    try:
        with pytest.raises(KeyboardInterrupt):
            program()
        assert done == [1, 2] * (len(done) // 2)
        assert profiled or done == [1, 2]
        assert (sys.getprofile() is None) != profiled
    finally:
        sys.setprofile(None)
    time.sleep(0.01)  # nothing comes afterwards


def test_a_step_takes_no_longer_because_a_signal_waits_for_its_end() -> None:
    looks = []

    def harms(frame: FrameType | None, late: bool) -> bool:
        looks.append(frame)
        return within(frame)

    @whole
    def marked() -> None:
        signal.raise_signal(signal.SIGUSR2)
        for number in range(1000):
            abs(number)

    def program() -> None:
        marked()
        time.sleep(5)

    before = signal.signal(signal.SIGUSR2, Deferring(leave._act, harms))
    try:
        with pytest.raises(Terminated) as raised:
            program()
        assert len(looks) < 20
        assert by_handler(raised.value)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_an_interrupt_that_came_just_before_it_is_tried_again_comes_once() -> None:
    def act(*_: object) -> None:
        raise InterruptedError

    handler = Deferring(act, lambda frame, late: False)
    handler._nudged = True  # it waited, and was raised before this came
    handler(signal.SIGINT, None)
    with pytest.raises(InterruptedError):
        handler(signal.SIGINT, None)


def test_a_handler_that_raises_nothing_is_called_once_for_a_signal() -> None:
    calls: list[int] = []
    Deferring(lambda signum, frame: calls.append(signum), lambda frame, late: False)(7, None)
    assert sys.getprofile() is None
    assert calls == [7]


def test_handlers_are_put_back_unless_others_were_put_meanwhile() -> None:
    def first(*_: object) -> None: ...

    def second(*_: object) -> None: ...

    numbers = signal.SIGUSR1, signal.SIGUSR2
    before = [signal.signal(number, first) for number in numbers]
    try:
        with defer_handlers():
            assert all(isinstance(signal.getsignal(number), Deferring) for number in numbers)
            signal.signal(signal.SIGUSR2, second)
        assert [signal.getsignal(number) for number in numbers] == [first, second]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_signal_does_not_come_where_it_would_be_taken_for_something_else() -> None:
    before = signal.signal(signal.SIGTERM, leave)

    class Slow:
        def __reduce__(self) -> tuple[type, tuple[()]]:
            signal.raise_signal(signal.SIGTERM)
            return Slow, ()

    def program() -> None:
        pack_value(Slow())  # else it would be a SerializationError
        time.sleep(30)

    try:
        with pytest.raises(Terminated, match="143"):
            program()
        assert Terminated(signal.SIGHUP).signal == "SIGHUP"
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_what_the_pickling_of_an_object_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupts, "MOST_S", 0.1)
    before = signal.signal(signal.SIGTERM, leave)

    class Hangs:
        def __reduce__(self) -> tuple[type, tuple[()]]:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(8)
            return Hangs, ()

    def program() -> None:
        pack_value(Hangs())
        time.sleep(8)

    begun = time.monotonic()
    try:
        with pytest.raises(Terminated):
            program()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - begun < 8
