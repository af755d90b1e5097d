"""Functions that no interrupt may cut in two: the stack tells whether one is under way."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from workpool.whole import defer_interrupts, whole, within


@whole
def outer() -> bool:
    return inner()


def inner() -> bool:
    return within(sys._getframe())


def test_within_sees_a_marked_function_that_is_under_way() -> None:
    assert outer()
    assert not inner()


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
    assert steps == ["end of the marked function", "after it"]
    with pytest.raises(KeyboardInterrupt):  # outside it comes at once
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    defer_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # the program's own stays


@pytest.mark.usefixtures("deferring")
def test_a_marked_function_that_hangs_can_be_interrupted() -> None:
    @whole
    def marked() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        marked()
