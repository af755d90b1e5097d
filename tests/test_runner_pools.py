"""What a worker keeps of the pools whose tasks it runs, itself and in its child process."""

from __future__ import annotations

import os
from typing import Any

import pytest

from workpool.accumulator import Accumulator, spec_of
from workpool.context import CALL, Context, Limits, encode_setup
from workpool.serializer import pack_call, unpack_outcome
from workpool.serializer.code_cache import CodeCache
from workpool.system.inherited import of_us
from workpool.worker import isolation, runner

model: int | None = None


def test_pools_of_long_ago_are_forgotten() -> None:
    own = runner.Runner(1, "here")
    isolated = isolation.IsolatedRunner(own)
    setup = encode_setup(of_us(None), None, ())
    entered: list[int] = []

    def use(either: Any, number: int, limits: Limits | None) -> None:
        if either.find(number) is None:
            entered.append(number)
            context = Context(number, limits, setup, others=tuple(range(number)))
            either.enter(number, context.encoded())

    for either, limits, most in (
        (own, None, runner.POOLS),
        (isolated, Limits(), isolation.CONTEXTS),
    ):
        entered.clear()
        for number in range(most + 1):
            for each in (0, number):  # the first one is in use all the time
                use(either, each, limits)
        assert entered == list(range(most + 1))
        use(either, 1, limits)
        assert entered == [*range(most + 1), 1]


def test_pools_that_are_over_are_forgotten() -> None:
    own = runner.Runner(1, "here")
    setup = encode_setup(of_us(None), None, ())
    either: Any
    for either, limits in ((own, None), (isolation.IsolatedRunner(own), Limits())):
        either.enter(11, Context(1, limits, setup).encoded())
        either.enter(14, Context(4, limits, setup, others=(1, 3)).encoded())
        either.enter(13, Context(3, limits, setup, others=(1,)).encoded())  # made before the last
        assert all(map(either.find, (11, 13, 14)))
        either.enter(15, Context(5, limits, setup, others=(3, 6)).encoded())
        assert [number for number in (11, 13, 14, 15) if either.find(number)] == [13, 15]


def test_whose_tasks_run_is_known_of_each_pool_again() -> None:
    """What a task adds to an accumulator of another pool must not go into this one's window."""
    own = runner.Runner(1, "here")
    isolated = isolation.IsolatedRunner(own)
    setup = encode_setup(of_us(None), None, ())
    either: Any
    for either, limits, pool in ((own, None, 1), (isolated, Limits(), 2), (own, None, 3)):
        either.enter(10 + pool, Context(pool, limits, setup, others=(1, 2, 3)).encoded())
        assert own.contributions.pool == pool
    for either, pool in ((isolated, 2), (own, 1), (isolated, 2), (own, 3)):
        either.find(10 + pool)
        assert own.contributions.pool == pool


def test_tasks_of_each_pool_see_what_its_own_initializer_has_set() -> None:
    def setup(value: int) -> None:
        global model
        model = value

    def read() -> int | None:
        return model

    own, codes = runner.Runner(1, "here"), CodeCache()
    codes.lookup(read)
    code = codes.lookup(read)
    assert code is not None
    given = {1: (setup, (10,)), 2: (setup, (20,)), 3: (None, ())}
    for pool, seen in ((1, 10), (3, None), (2, 20), (2, 20), (1, 10), (3, None), (2, 20)):
        entered = own.find(10 + pool)
        if entered is None:
            context = Context(pool, None, encode_setup(of_us(None), *given[pool]), others=(1, 2, 3))
            entered = own.enter(10 + pool, context.encoded())
            entered.callables.add(code.code_id, code.data)
        for sent in (None, code):
            payload = pack_call(read, (), {}, sent)
            kind, encoded = own.call(entered, CALL, code.code_id if sent else 0, payload)
            assert unpack_outcome(kind, encoded) == (seen, None)
    assert model is None


def test_what_an_initializer_adds_does_not_count() -> None:
    """It is no task, and the first one of the pool adds what is its own."""
    own = runner.Runner(1, "here")
    numbers = Accumulator(spec_of((), "int64", "sum"))
    own.begin()
    try:
        setup = encode_setup(of_us(None), numbers.add, (1,))
        assert own.enter(1, Context(1, None, setup).encoded()).failure is None
        assert not own.contributions.parts
    finally:
        own.end()


def test_a_runner_leaves_no_hook_of_a_fork_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[object] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **given: hooks.append(given))
    runner.Runner(1, "here")  # one for each run of `workpool.run`, in a program that runs on
    assert not hooks
